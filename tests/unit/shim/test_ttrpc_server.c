#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "shim/ttrpc/frame.h"
#include "shim/ttrpc/server.h"
#include "ttrpc.pb-c.h"

#define PARKED_MAX 64

/* A server with four methods, and a peer that speaks raw bytes. */
struct fixture {
    struct loop *loop;
    struct ttrpc_server *server;
    struct sockaddr_un at;
    socklen_t at_len;
    struct ttrpc_call *parked[PARKED_MAX];
    size_t n_parked, n_cancelled;
    size_t big; /* bytes that "Big" answers with */
    size_t n_calls;
};

static void echo(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    struct fixture *f = data;

    f->n_calls++;
    assert_true(len > 0 || payload == NULL);
    ttrpc_reply(call, payload, len);
}

static void fail_bytes(void *data UNUSED, struct ttrpc_call *call, const uint8_t *payload UNUSED,
                       size_t len UNUSED)
{
    ttrpc_reply_error(call, TTRPC_NOT_FOUND, "no such \xff thing: not found");
}

static void on_cancel(void *data)
{
    struct fixture *f = data;

    f->n_cancelled++;
}

static void park(void *data, struct ttrpc_call *call, const uint8_t *payload UNUSED, size_t len)
{
    struct fixture *f = data;

    assert_true(f->n_parked < PARKED_MAX);
    f->parked[f->n_parked++] = call;
    if (len == 0) /* with a payload: parked without a cancel */
        ttrpc_call_on_cancel(call, on_cancel, f);
}

static void big(void *data, struct ttrpc_call *call, const uint8_t *payload UNUSED, size_t len UNUSED)
{
    struct fixture *f = data;
    scoped_free uint8_t *bytes = xcalloc(1, f->big);

    memset(bytes, 'b', f->big);
    ttrpc_reply(call, bytes, f->big);
}

static void end_server(void *data, struct ttrpc_call *call, const uint8_t *payload UNUSED, size_t len UNUSED)
{
    struct fixture *f = data;

    ttrpc_reply(call, NULL, 0);
    ttrpc_server_free(take(f->server));
}

static const struct ttrpc_method methods[] = {
    {"a.A", "Echo", echo}, {"a.A", "Fail", fail_bytes}, {"a.A", "Park", park},
    {"a.A", "Big", big},   {"a.A", "End", end_server},  {"b.B", "Echo", echo},
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct err e = {0};

    f->at.sun_family = AF_UNIX;
    int n = snprintf(f->at.sun_path + 1, sizeof f->at.sun_path - 1, "glovebox-test-%d", (int)getpid());
    f->at_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&f->at, f->at_len), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(loop_new(&f->loop, &e), 0);
    assert_int_equal(ttrpc_server_new(f->loop, fd, methods, ARRAY_LEN(methods), f, &f->server, &e), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ttrpc_server_free(f->server);
    loop_free(f->loop);
    free(f);
    return 0;
}

/* ---- the raw peer ---- */

static int dial(struct fixture *f)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&f->at, f->at_len), 0);
    return fd;
}

/* Writes all of it, letting the server run while the socket is full. */
static void put(struct fixture *f, int fd, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    for (size_t done = 0; done < n;) {
        ssize_t k = send(fd, p + done, n - done, MSG_NOSIGNAL);
        if (k < 0)
            assert_int_equal(errno, EAGAIN);
        else
            done += (size_t)k;
        assert_int_equal(loop_step(f->loop, 0, NULL), 0);
    }
}

static void put_frame(struct fixture *f, int fd, struct ttrpc_frame frame, const void *payload)
{
    uint8_t header[TTRPC_HEADER];

    ttrpc_frame_encode(&frame, header);
    put(f, fd, header, sizeof header);
    put(f, fd, payload, frame.len);
}

struct ask {
    uint32_t stream;
    const char *service, *method;
    const void *payload;
    size_t len;
    int64_t timeout_nano;
    uint8_t flags;
};

static void put_request(struct fixture *f, int fd, struct ask a)
{
    Ttrpc__Request q = TTRPC__REQUEST__INIT;

    q.service = (char *)(uintptr_t)(a.service ? a.service : "a.A");
    q.method = (char *)(uintptr_t)a.method;
    q.payload.data = (uint8_t *)(uintptr_t)a.payload;
    q.payload.len = a.len;
    q.timeout_nano = a.timeout_nano;
    size_t n = ttrpc__request__get_packed_size(&q);
    scoped_free uint8_t *bytes = xcalloc(1, n);
    ttrpc__request__pack(&q, bytes);
    put_frame(
        f, fd,
        (struct ttrpc_frame){.len = (uint32_t)n, .stream = a.stream, .type = TTRPC_REQUEST, .flags = a.flags},
        bytes);
}

static void get(struct fixture *f, int fd, void *out, size_t n)
{
    uint8_t *p = out;
    int64_t end = clock_mono_ms() + PATIENCE_MS;

    for (size_t done = 0; done < n;) {
        ssize_t k = recv(fd, p + done, n - done, 0);
        if (k < 0)
            assert_int_equal(errno, EAGAIN);
        else
            assert_int_not_equal(k, 0);
        done += k > 0 ? (size_t)k : 0;
        assert_true(clock_mono_ms() < end);
        if (k < 0)
            assert_int_equal(loop_step(f->loop, 5, NULL), 0);
    }
}

/* The next response; the caller frees it. */
static Ttrpc__Response *get_response(struct fixture *f, int fd, uint32_t stream)
{
    uint8_t header[TTRPC_HEADER];

    get(f, fd, header, sizeof header);
    struct ttrpc_frame frame = ttrpc_frame_decode(header);
    assert_int_equal(frame.type, TTRPC_RESPONSE);
    assert_int_equal(frame.flags, 0);
    assert_int_equal(frame.stream, stream);
    assert_true(frame.len <= TTRPC_PAYLOAD_MAX);
    scoped_free uint8_t *bytes = xcalloc(1, frame.len);
    get(f, fd, bytes, frame.len);
    Ttrpc__Response *r = ttrpc__response__unpack(NULL, frame.len, bytes);
    assert_non_null(r);
    return r;
}

static void expect_payload(struct fixture *f, int fd, uint32_t stream, const char *text)
{
    Ttrpc__Response *r = get_response(f, fd, stream);

    assert_null(r->status);
    assert_int_equal(r->payload.len, strlen(text));
    assert_memory_equal(r->payload.data, text, strlen(text));
    ttrpc__response__free_unpacked(r, NULL);
}

static void expect_status(struct fixture *f, int fd, uint32_t stream, int code, const char *text)
{
    Ttrpc__Response *r = get_response(f, fd, stream);

    assert_non_null(r->status);
    assert_int_equal(r->status->code, code);
    if (text)
        assert_string_equal(r->status->message, text);
    assert_int_equal(r->payload.len, 0);
    ttrpc__response__free_unpacked(r, NULL);
}

static void settle(struct fixture *f)
{
    for (int i = 0; i < 20; i++)
        assert_int_equal(loop_step(f->loop, 0, NULL), 0);
}

/* true: the server has closed this connection. */
static bool is_ended(int fd)
{
    uint8_t byte;

    return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

/* ---- calls ---- */

static void a_call_is_answered_on_its_stream(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo", .payload = "hello", .len = 5});
    expect_payload(f, fd, 1, "hello");
    put_request(f, fd,
                (struct ask){.stream = 3, .service = "b.B", .method = "Echo", .payload = "again", .len = 5});
    expect_payload(f, fd, 3, "again");
}

static void an_empty_answer_is_a_frame_of_no_bytes(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    uint8_t got[TTRPC_HEADER], want[TTRPC_HEADER] = {0, 0, 0, 0, 0, 0, 0, 1, TTRPC_RESPONSE, 0};

    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo"});
    get(f, fd, got, sizeof got);
    assert_memory_equal(got, want, sizeof want);
}

static void unknown_names_are_not_implemented(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .service = "c.C", .method = "Echo"});
    expect_status(f, fd, 1, TTRPC_UNIMPLEMENTED, "service c.C");
    put_request(f, fd, (struct ask){.stream = 3, .service = "b.B", .method = "Park"});
    expect_status(f, fd, 3, TTRPC_UNIMPLEMENTED, "method Park");
    put_request(f, fd, (struct ask){.stream = 5, .service = "", .method = ""});
    expect_status(f, fd, 5, TTRPC_UNIMPLEMENTED, "service ");
    put_request(f, fd, (struct ask){.stream = 7, .method = "Echo", .payload = "x", .len = 1});
    expect_payload(f, fd, 7, "x");
}

static void an_error_carries_its_text_as_utf8(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Fail"});
    expect_status(f, fd, 1, TTRPC_NOT_FOUND, "no such ? thing: not found");
}

static void malformed_requests_are_invalid_and_the_connection_stays(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    static const struct {
        const char *bytes;
        uint32_t len;
    } cases[] = {
        {"\xff\xff\xff\xff", 4}, /* a tag that never ends */
        {"\x0a\x7f"
         "abc",
         5},             /* a string longer than the message */
        {"\x08\x01", 2}, /* field 1 of another type */
        {"\x0a", 1},
    };

    uint32_t stream = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++, stream += 2) {
        put_frame(f, fd, (struct ttrpc_frame){.len = cases[i].len, .stream = stream, .type = TTRPC_REQUEST},
                  cases[i].bytes);
        expect_status(f, fd, stream, TTRPC_INVALID_ARGUMENT, NULL);
    }
    /* No bytes are a request without a name. */
    put_frame(f, fd, (struct ttrpc_frame){.stream = stream, .type = TTRPC_REQUEST}, "");
    expect_status(f, fd, stream, TTRPC_UNIMPLEMENTED, "service ");
    put_request(f, fd, (struct ask){.stream = stream + 2, .method = "Echo", .payload = "ok", .len = 2});
    expect_payload(f, fd, stream + 2, "ok");
}

static void stream_ids_are_odd_and_increase(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 2, .method = "Echo"});
    expect_status(f, fd, 2, TTRPC_INVALID_ARGUMENT, NULL);
    put_request(f, fd, (struct ask){.stream = 0, .method = "Echo"});
    expect_status(f, fd, 0, TTRPC_INVALID_ARGUMENT, NULL);
    put_request(f, fd, (struct ask){.stream = 7, .method = "Echo", .payload = "a", .len = 1});
    expect_payload(f, fd, 7, "a");
    put_request(f, fd, (struct ask){.stream = 7, .method = "Echo"});
    expect_status(f, fd, 7, TTRPC_INVALID_ARGUMENT, NULL);
    put_request(f, fd, (struct ask){.stream = 5, .method = "Echo"});
    expect_status(f, fd, 5, TTRPC_INVALID_ARGUMENT, NULL);
    put_request(f, fd, (struct ask){.stream = 0xffffffff, .method = "Echo", .payload = "z", .len = 1});
    expect_payload(f, fd, 0xffffffff, "z");
    assert_int_equal(f->n_calls, 2);

    scoped_fd int other = dial(f); /* each connection counts for itself */
    put_request(f, other, (struct ask){.stream = 1, .method = "Echo", .payload = "b", .len = 1});
    expect_payload(f, other, 1, "b");
}

static void streaming_is_refused_and_foreign_frames_are_ignored(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo", .flags = TTRPC_REMOTE_OPEN});
    expect_status(f, fd, 1, TTRPC_UNIMPLEMENTED, NULL);
    put_frame(f, fd, (struct ttrpc_frame){.len = 3, .stream = 1, .type = TTRPC_DATA}, "abc");
    expect_status(f, fd, 1, TTRPC_INVALID_ARGUMENT, NULL);
    put_frame(f, fd, (struct ttrpc_frame){.len = 3, .stream = 9, .type = TTRPC_RESPONSE}, "abc");
    put_frame(f, fd, (struct ttrpc_frame){.len = 3, .stream = 9, .type = 0}, "abc");
    put_frame(f, fd, (struct ttrpc_frame){.len = 3, .stream = 9, .type = 200, .flags = 0xff}, "abc");
    put_request(
        f, fd,
        (struct ask){.stream = 3, .method = "Echo", .payload = "on", .len = 2, .flags = TTRPC_REMOTE_CLOSED});
    expect_payload(f, fd, 3, "on");
}

/* ---- sizes ---- */

static void an_oversized_request_is_skipped_exactly(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    static const uint32_t lens[] = {TTRPC_PAYLOAD_MAX + 1, TTRPC_PAYLOAD_MAX + 16384 - TTRPC_HEADER,
                                    5u << 20};

    uint32_t stream = 1;
    for (size_t i = 0; i < ARRAY_LEN(lens); i++, stream += 4) {
        scoped_free uint8_t *junk = xcalloc(1, lens[i]);
        memset(junk, 0xa5, lens[i]);
        put_frame(f, fd, (struct ttrpc_frame){.len = lens[i], .stream = stream, .type = TTRPC_REQUEST}, junk);
        put_request(f, fd,
                    (struct ask){.stream = stream + 2, .method = "Echo", .payload = "after", .len = 5});
        expect_status(f, fd, stream, TTRPC_RESOURCE_EXHAUSTED, NULL);
        expect_payload(f, fd, stream + 2, "after");
    }
}

static void the_largest_request_is_served(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    size_t n = TTRPC_PAYLOAD_MAX - 64;
    scoped_free char *text = xcalloc(1, n + 1);

    memset(text, 'q', n);
    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo", .payload = text, .len = n});
    expect_payload(f, fd, 1, text);
}

static void an_oversized_answer_becomes_an_error(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    static const struct {
        size_t len;
        bool fits;
    } cases[] = {
        {TTRPC_PAYLOAD_MAX - 5, true}, /* tag and length take five bytes */
        {TTRPC_PAYLOAD_MAX - 4, false},
        {TTRPC_PAYLOAD_MAX + 1, false},
        {5u << 20, false},
    };

    uint32_t stream = 1;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++, stream += 2) {
        f->big = cases[i].len;
        put_request(f, fd, (struct ask){.stream = stream, .method = "Big"});
        if (!cases[i].fits) {
            expect_status(f, fd, stream, TTRPC_RESOURCE_EXHAUSTED, NULL);
            continue;
        }
        Ttrpc__Response *r = get_response(f, fd, stream);
        assert_null(r->status);
        assert_int_equal(r->payload.len, cases[i].len);
        ttrpc__response__free_unpacked(r, NULL);
    }
}

/* ---- pieces ---- */

static void frames_may_come_in_any_pieces(void **state)
{
    struct fixture *f = *state;
    static const size_t steps[] = {1, 2, 3, 7, 9, 10, 11, 64};
    uint8_t bytes[512];
    size_t n = 0;

    /* Three requests in a row, among them an empty one. */
    for (uint32_t stream = 1; stream <= 5; stream += 2) {
        Ttrpc__Request q = TTRPC__REQUEST__INIT;
        struct ttrpc_frame frame = {.stream = stream, .type = TTRPC_REQUEST};
        q.service = (char *)(uintptr_t) "a.A";
        q.method = (char *)(uintptr_t) "Echo";
        q.payload.data = (uint8_t *)(uintptr_t) "pieces";
        q.payload.len = stream == 3 ? 0 : 6;
        frame.len = (uint32_t)ttrpc__request__pack(&q, bytes + n + TTRPC_HEADER);
        ttrpc_frame_encode(&frame, bytes + n);
        n += TTRPC_HEADER + frame.len;
    }
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        scoped_fd int fd = dial(f);
        for (size_t at = 0; at < n; at += steps[i]) {
            put(f, fd, bytes + at, MIN(steps[i], n - at));
            settle(f);
        }
        expect_payload(f, fd, 1, "pieces");
        expect_payload(f, fd, 3, "");
        expect_payload(f, fd, 5, "pieces");
    }
}

static void both_sides_may_fill_the_socket_without_a_standstill(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    size_t n = 1u << 20;
    scoped_free char *text = xcalloc(1, n + 1);
    enum { CALLS = 24 };

    memset(text, 'f', n);
    /* Nothing is read here until all is written: put() would hang if the server waited for us. */
    for (uint32_t i = 0; i < CALLS; i++)
        put_request(f, fd, (struct ask){.stream = 2 * i + 1, .method = "Echo", .payload = text, .len = n});
    STEP_UNTIL(f->loop, f->n_calls == CALLS);
    assert_false(ttrpc_server_idle(f->server));
    for (uint32_t i = 0; i < CALLS; i++)
        expect_payload(f, fd, 2 * i + 1, text);
    STEP_UNTIL(f->loop, ttrpc_server_idle(f->server));
}

static void a_peer_that_never_reads_is_dropped_at_last(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 1);
    f->big = 4u << 20;
    f->big -= 64;
    for (uint32_t i = 1; i < 40 && f->n_cancelled == 0; i++) {
        put_request(f, fd, (struct ask){.stream = 2 * i + 1, .method = "Big"});
        settle(f);
    }
    assert_int_equal(f->n_cancelled, 1);
    scoped_fd int other = dial(f);
    put_request(f, other, (struct ask){.stream = 1, .method = "Echo", .payload = "x", .len = 1});
    expect_payload(f, other, 1, "x");
}

/* ---- many at once ---- */

static void answers_come_in_any_order(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    for (uint32_t stream = 1; stream <= 7; stream += 2)
        put_request(f, fd, (struct ask){.stream = stream, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 4);
    put_request(f, fd, (struct ask){.stream = 9, .method = "Echo", .payload = "first", .len = 5});
    expect_payload(f, fd, 9, "first");
    static const size_t order[] = {2, 0, 3, 1};
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        ttrpc_reply(f->parked[order[i]], (const uint8_t *)"late", 4);
        expect_payload(f, fd, (uint32_t)(2 * order[i] + 1), "late");
    }
    assert_int_equal(f->n_cancelled, 0);
}

static void a_closed_connection_cancels_its_own_parked_calls_only(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);
    scoped_fd int other = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park"});
    put_request(f, fd, (struct ask){.stream = 3, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 2);
    put_request(f, other, (struct ask){.stream = 1, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 3);
    fd_close(fd);
    STEP_UNTIL(f->loop, f->n_cancelled == 2);
    settle(f);
    assert_int_equal(f->n_cancelled, 2);
    ttrpc_reply(f->parked[2], (const uint8_t *)"mine", 4);
    expect_payload(f, other, 1, "mine");
}

static void a_reply_to_a_peer_that_has_gone_is_harmless(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park", .payload = "no cancel", .len = 9});
    put_request(f, fd, (struct ask){.stream = 3, .method = "Park", .payload = "no cancel", .len = 9});
    STEP_UNTIL(f->loop, f->n_parked == 2);
    fd_close(fd);
    settle(f);
    ttrpc_reply(f->parked[0], (const uint8_t *)"late", 4);
    ttrpc_reply_error(f->parked[1], TTRPC_UNKNOWN, "late");
    assert_int_equal(f->n_cancelled, 0);
}

static void requests_before_a_close_are_still_served(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);

    for (uint32_t i = 0; i < 100; i++)
        put_request(f, fd, (struct ask){.stream = 2 * i + 1, .method = "Echo", .payload = "x", .len = 1});
    fd_close(fd);
    STEP_UNTIL(f->loop, f->n_calls == 100);
}

static void a_half_closed_peer_gets_its_answers_then_the_end(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park"});
    put_request(f, fd, (struct ask){.stream = 3, .method = "Echo", .payload = "now", .len = 3});
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    expect_payload(f, fd, 3, "now");
    settle(f);
    assert_false(is_ended(fd));
    assert_int_equal(f->n_cancelled, 0);
    ttrpc_reply(f->parked[0], (const uint8_t *)"later", 5);
    expect_payload(f, fd, 1, "later");
    STEP_UNTIL(f->loop, is_ended(fd));
}

static void a_half_closed_peer_gets_a_large_answer_whole(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    f->big = 4000000;
    put_request(f, fd, (struct ask){.stream = 1, .method = "Big"});
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    settle(f);
    Ttrpc__Response *r = get_response(f, fd, 1);
    assert_int_equal(r->payload.len, f->big);
    ttrpc__response__free_unpacked(r, NULL);
    STEP_UNTIL(f->loop, is_ended(fd));
}

static void a_half_closed_peer_with_a_parked_call_may_leave(void **state)
{
    struct fixture *f = *state;
    int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 1);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    settle(f);
    assert_int_equal(f->n_cancelled, 0);
    fd_close(fd);
    STEP_UNTIL(f->loop, f->n_cancelled == 1);
}

static void a_parked_call_ends_at_its_deadline(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Park", .timeout_nano = 30000000});
    put_request(f, fd, (struct ask){.stream = 3, .method = "Park"});
    expect_status(f, fd, 1, TTRPC_DEADLINE_EXCEEDED, "context deadline exceeded");
    assert_int_equal(f->n_cancelled, 1);
    put_request(f, fd, (struct ask){.stream = 5, .method = "Park", .timeout_nano = 20000000});
    STEP_UNTIL(f->loop, f->n_parked == 3);
    ttrpc_reply(f->parked[2], (const uint8_t *)"in time", 7);
    expect_payload(f, fd, 5, "in time");
    for (int i = 0; i < 10; i++)
        assert_int_equal(loop_step(f->loop, 5, NULL), 0);
    assert_int_equal(f->n_cancelled, 1);
}

static void a_method_may_end_the_server(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);
    scoped_fd int other = dial(f);

    put_request(f, other, (struct ask){.stream = 1, .method = "Park"});
    STEP_UNTIL(f->loop, f->n_parked == 1);
    put_request(f, fd, (struct ask){.stream = 1, .method = "End"});
    STEP_UNTIL(f->loop, f->server == NULL);
    settle(f);
    assert_int_equal(f->n_cancelled, 1);
    expect_payload(f, fd, 1, ""); /* sent before it ended */
    assert_true(is_ended(fd));
    assert_true(is_ended(other));
}

static void on_alone(void *data)
{
    ++*(unsigned *)data;
}

static void the_end_of_the_last_connection_is_told(void **state)
{
    struct fixture *f = *state;
    unsigned alone = 0;

    ttrpc_server_on_alone(f->server, on_alone, &alone);
    assert_true(ttrpc_server_is_alone(f->server));
    int fd = dial(f);
    settle(f);
    assert_false(ttrpc_server_is_alone(f->server));
    fd_close(fd); /* one that asked for nothing was never there */
    settle(f);
    assert_true(ttrpc_server_is_alone(f->server));
    assert_int_equal(alone, 0);

    fd = dial(f);
    int other = dial(f);
    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo"});
    settle(f);
    fd_close(fd);
    settle(f);
    assert_int_equal(alone, 0);
    fd_close(other);
    settle(f);
    assert_int_equal(alone, 1);
    assert_true(ttrpc_server_is_alone(f->server));
    fd = dial(f);
    settle(f);
    ttrpc_server_free(take(f->server)); /* its own end is no news */
    assert_int_equal(alone, 1);
    fd_close(fd);
}

static void closing_the_listener_keeps_the_connections(void **state)
{
    struct fixture *f = *state;
    scoped_fd int fd = dial(f);

    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo"});
    expect_payload(f, fd, 1, "");
    ttrpc_server_stop_accepting(f->server);
    put_request(f, fd, (struct ask){.stream = 3, .method = "Echo", .payload = "x", .len = 1});
    expect_payload(f, fd, 3, "x");
    scoped_fd int late = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&f->at, f->at_len), -1);
}

/* ---- who may speak ---- */

static void other_users_are_turned_away(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uid_t uid;
        gid_t gid;
    } cases[] = {{65534, 65534}, {0, 65534}, {65534, 0}};

    if (geteuid() != 0) {
        print_message("skipped: only root can be somebody else\n");
        skip();
    }
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            if (setregid(cases[i].gid, cases[i].gid) < 0 || setreuid(cases[i].uid, cases[i].uid) < 0)
                _exit(2);
            int fd = socket(AF_UNIX, SOCK_STREAM, 0);
            uint8_t byte;
            if (connect(fd, (struct sockaddr *)&f->at, f->at_len) < 0)
                _exit(3);
            _exit(recv(fd, &byte, 1, 0) == 0 ? 0 : 4);
        }
        int status = -1;
        STEP_UNTIL(f->loop, waitpid(pid, &status, WNOHANG) == pid);
        assert_int_equal(status, 0);
    }
}

static void many_connections_are_served(void **state)
{
    struct fixture *f = *state;
    enum { N = 200 };
    int fds[N];

    for (size_t i = 0; i < N; i++) {
        fds[i] = dial(f);
        put_request(f, fds[i], (struct ask){.stream = 1, .method = "Echo", .payload = "c", .len = 1});
    }
    for (size_t i = 0; i < N; i++)
        expect_payload(f, fds[i], 1, "c");
    fd_close_all(fds, N);
    settle(f);
}

static void without_descriptors_the_server_waits_and_goes_on(void **state)
{
    struct fixture *f = *state;
    struct rlimit old, low;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    scoped_fd int fd = dial(f);
    scoped_fd int probe = dup(fd);
    low = old;
    low.rlim_cur = (rlim_t)probe + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    int64_t begin = clock_mono_ms();
    unsigned rounds = 0;
    while (clock_mono_ms() < begin + 30) {
        assert_int_equal(loop_step(f->loop, 10, NULL), 0);
        rounds++;
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(rounds < 20); /* it does not spin */
    put_request(f, fd, (struct ask){.stream = 1, .method = "Echo", .payload = "x", .len = 1});
    expect_payload(f, fd, 1, "x");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(a_call_is_answered_on_its_stream),
        TEST(an_empty_answer_is_a_frame_of_no_bytes),
        TEST(unknown_names_are_not_implemented),
        TEST(an_error_carries_its_text_as_utf8),
        TEST(malformed_requests_are_invalid_and_the_connection_stays),
        TEST(stream_ids_are_odd_and_increase),
        TEST(streaming_is_refused_and_foreign_frames_are_ignored),
        TEST(an_oversized_request_is_skipped_exactly),
        TEST(the_largest_request_is_served),
        TEST(an_oversized_answer_becomes_an_error),
        TEST(frames_may_come_in_any_pieces),
        TEST(both_sides_may_fill_the_socket_without_a_standstill),
        TEST(a_peer_that_never_reads_is_dropped_at_last),
        TEST(answers_come_in_any_order),
        TEST(a_closed_connection_cancels_its_own_parked_calls_only),
        TEST(a_reply_to_a_peer_that_has_gone_is_harmless),
        TEST(requests_before_a_close_are_still_served),
        TEST(a_half_closed_peer_gets_its_answers_then_the_end),
        TEST(a_half_closed_peer_gets_a_large_answer_whole),
        TEST(a_half_closed_peer_with_a_parked_call_may_leave),
        TEST(a_parked_call_ends_at_its_deadline),
        TEST(a_method_may_end_the_server),
        TEST(the_end_of_the_last_connection_is_told),
        TEST(closing_the_listener_keeps_the_connections),
        TEST(other_users_are_turned_away),
        TEST(many_connections_are_served),
        TEST(without_descriptors_the_server_waits_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
