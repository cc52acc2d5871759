#include "unit.h"

#include <string.h>

#include "shim/runtime/probes.h"

#define PREFACE  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define HEADERS  "\0\0\3\1\4\0\0\0\1abc"
#define DATA_END "\0\0\5\0\1\0\0\0\1\0\0\0\0\0"

static void each_kind_of_probe_gets_its_answer(void **state)
{
#define TEXT(t) t, sizeof(t) - 1
    static const struct {
        const char *what, *got;
        size_t n;
        const char *begins; /* of the answer; NULL: none */
        bool done;
    } cases[] = {
        {"nothing yet", TEXT(""), NULL, false},
        {"half a request", TEXT("GET / HTTP/1.1\r\nHost: x\r\n"), NULL, false},
        {"the kubelet", TEXT("GET /h HTTP/1.1\r\nHost: x\r\nUser-Agent: kube-probe/1.37\r\n\r\n"),
         "HTTP/1.1 200", true},
        {"somebody else", TEXT("GET /h HTTP/1.1\r\nHost: x\r\nUser-Agent: curl\r\n\r\n"), "HTTP/1.1 503",
         true},
        {"the name elsewhere", TEXT("GET /User-Agent:kube-probe/ HTTP/1.1\r\nUser-Agent: x\r\n\r\n"),
         "HTTP/1.1 503", true},
        {"TLS", TEXT("\26\3\1\2"), NULL, true},
        {"bytes", TEXT("\0\1"), NULL, true},
        {"part of the HTTP/2 preface", TEXT("PRI * HT"), NULL, false},
        {"gRPC, no call yet", TEXT(PREFACE SETTINGS), NULL, false},
        {"gRPC, headers only", TEXT(PREFACE SETTINGS HEADERS), NULL, false},
        {"gRPC, half a frame", TEXT(PREFACE SETTINGS HEADERS "\0\0\5\0\1\0\0\0\1\0\0"), NULL, false},
        {"gRPC, asked", TEXT(PREFACE SETTINGS HEADERS DATA_END), "", true},
        {"gRPC, a frame that is longer than all", TEXT(PREFACE "\377\377\377\0\1\0\0\0\1"), NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool done = !cases[i].done;
        size_t n = 0;
        const char *a = probes_answer((const unsigned char *)cases[i].got, cases[i].n, true, &n, &done);
        if (done != cases[i].done || (a != NULL) != (cases[i].begins != NULL))
            fail_msg("%s: %s, done %d", cases[i].what, a ? a : "no answer", done);
        if (a && *cases[i].begins)
            assert_memory_equal(a, cases[i].begins, strlen(cases[i].begins));
    }
}

static void check_frames(const char *answer, size_t n, const unsigned char (*want)[3], size_t n_want)
{
    const unsigned char *a = (const unsigned char *)answer;
    size_t at = 0, i = 0;

    assert_non_null(answer);
    for (; at + 9 <= n; i++) {
        assert_true(i < n_want);
        assert_int_equal(a[at + 3], want[i][0]);
        assert_int_equal(a[at + 4], want[i][1]);
        assert_int_equal(a[at + 8], want[i][2]);
        at += 9 + (size_t)(a[at] << 16 | a[at + 1] << 8 | a[at + 2]);
    }
    assert_int_equal(at, n);
    assert_int_equal(i, n_want);
}

/* Type, flags, stream; the lengths in the canned answers are those of what follows them. */
static void grpc_is_greeted_at_once_and_answered_in_whole_frames(void **state)
{
    static const unsigned char asked[] = PREFACE SETTINGS HEADERS DATA_END;
    static const unsigned char greeting[][3] = {{4, 0, 0}, {4, 1, 0}},
                               answer[][3] = {{1, 4, 1}, {0, 0, 1}, {1, 5, 1}};
    size_t n = 0;
    bool done;

    (void)state;
    const char *a = probes_answer(asked, sizeof PREFACE - 1, false, &n, &done);
    assert_false(done);
    check_frames(a, n, greeting, ARRAY_LEN(greeting));
    assert_null(probes_answer(asked, sizeof PREFACE - 1, true, &n, &done));
    assert_false(done);
    a = probes_answer(asked, sizeof asked - 1, true, &n, &done);
    assert_true(done);
    check_frames(a, n, answer, ARRAY_LEN(answer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_probe_gets_its_answer),
        cmocka_unit_test(grpc_is_greeted_at_once_and_answered_in_whole_frames),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
