#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/ttrpc/client.h"
#include "shim/ttrpc/frame.h"
#include "shim/ttrpc/server.h"
#include "ttrpc.pb-c.h"

/* Our client against our server, and against bytes by hand. */
struct fixture {
    struct loop *loop;
    struct ttrpc_server *server;
    struct ttrpc_client *client;
    char address[64];
    struct ttrpc_call *parked[8];
    size_t n_parked;
    bool free_in_callback;
    unsigned n_done, n_closed;
    enum ttrpc_code code;
    char text[256];
    size_t len;
};

static void echo(void *data UNUSED, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    ttrpc_reply(call, payload, len);
}

static void refuse(void *data UNUSED, struct ttrpc_call *call, const uint8_t *payload UNUSED,
                   size_t len UNUSED)
{
    ttrpc_reply_error(call, TTRPC_FAILED_PRECONDITION, "not now: failed precondition");
}

static void park(void *data, struct ttrpc_call *call, const uint8_t *payload UNUSED, size_t len UNUSED)
{
    struct fixture *f = data;

    f->parked[f->n_parked++] = call;
}

static const struct ttrpc_method methods[] = {
    {"s", "Echo", echo}, {"s", "Refuse", refuse}, {"s", "Park", park}};

static int listen_on(struct fixture *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    static unsigned serial;

    (void)snprintf(f->address, sizeof f->address, "@glovebox-client-%d-%u", (int)getpid(), serial++);
    memcpy(at.sun_path + 1, f->address + 1, strlen(f->address) - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(f->address))),
                     0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);

    assert_int_equal(loop_new(&f->loop, NULL), 0);
    assert_int_equal(
        ttrpc_server_new(f->loop, listen_on(f), methods, ARRAY_LEN(methods), f, &f->server, NULL), 0);
    assert_int_equal(ttrpc_client_connect(f->loop, f->address, &f->client, NULL), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ttrpc_client_free(f->client);
    ttrpc_server_free(f->server);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void on_done(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload, size_t len)
{
    struct fixture *f = data;

    assert_true(len == 0 || payload != NULL);
    f->n_done++;
    f->code = code;
    (void)snprintf(f->text, sizeof f->text, "%s",
                   code == TTRPC_OK && len < 200 ? (payload ? (const char *)payload : "") : text);
    f->len = len;
    if (f->free_in_callback)
        ttrpc_client_free(take(f->client));
}

static void on_closed(void *data)
{
    struct fixture *f = data;

    f->n_closed++;
    if (f->free_in_callback && f->client)
        ttrpc_client_free(take(f->client));
}

static void call(struct fixture *f, const char *method, const void *payload, size_t len, int64_t timeout_ms)
{
    struct ttrpc_request q = {.service = "s",
                              .method = method,
                              .ns = "default",
                              .payload = payload,
                              .len = len,
                              .timeout_ms = timeout_ms};
    unsigned before = f->n_done;

    ttrpc_client_call(f->client, &q, on_done, f);
    assert_int_equal(f->n_done, before); /* never from inside the call */
}

static void answers_and_errors_come_back(void **state)
{
    struct fixture *f = *state;

    call(f, "Echo", "hi", 3, 1000);
    STEP_UNTIL(f->loop, f->n_done == 1);
    assert_int_equal(f->code, TTRPC_OK);
    assert_string_equal(f->text, "hi");
    call(f, "Echo", NULL, 0, 0);
    STEP_UNTIL(f->loop, f->n_done == 2);
    assert_int_equal(f->code, TTRPC_OK);
    assert_int_equal(f->len, 0);
    call(f, "Refuse", "x", 1, 1000);
    STEP_UNTIL(f->loop, f->n_done == 3);
    assert_int_equal(f->code, TTRPC_FAILED_PRECONDITION);
    assert_string_equal(f->text, "not now: failed precondition");
    call(f, "Nothing", "x", 1, 1000);
    STEP_UNTIL(f->loop, f->n_done == 4);
    assert_int_equal(f->code, TTRPC_UNIMPLEMENTED);
}

static void many_calls_share_one_connection(void **state)
{
    struct fixture *f = *state;
    size_t n = 1u << 20;
    scoped_free char *text = xcalloc(1, n);

    call(f, "Park", NULL, 0, 0);
    for (int i = 0; i < 20; i++)
        call(f, "Echo", text, n, 5000);
    STEP_UNTIL(f->loop, f->n_done == 20);
    assert_int_equal(f->code, TTRPC_OK);
    assert_int_equal(f->len, n);
    ttrpc_reply(f->parked[0], NULL, 0);
    STEP_UNTIL(f->loop, f->n_done == 21);
}

static void a_late_answer_is_ignored(void **state)
{
    struct fixture *f = *state;

    call(f, "Park", NULL, 0, 30);
    STEP_UNTIL(f->loop, f->n_done == 1);
    assert_int_equal(f->code, TTRPC_DEADLINE_EXCEEDED);
    assert_int_equal(f->n_parked, 1);
    ttrpc_reply(f->parked[0], (const uint8_t *)"late", 5);
    call(f, "Echo", "ok", 3, 1000);
    STEP_UNTIL(f->loop, f->n_done == 2);
    assert_string_equal(f->text, "ok");
}

static void a_closed_connection_ends_all_calls(void **state)
{
    struct fixture *f = *state;

    ttrpc_client_on_closed(f->client, on_closed, f);
    call(f, "Park", NULL, 0, 0);
    call(f, "Park", NULL, 0, 10000);
    STEP_UNTIL(f->loop, f->n_parked == 2);
    ttrpc_server_free(take(f->server));
    STEP_UNTIL(f->loop, f->n_closed == 1);
    assert_int_equal(f->n_done, 2);
    assert_int_equal(f->code, TTRPC_UNAVAILABLE);
    call(f, "Echo", "x", 1, 1000); /* a later one hears it, too */
    STEP_UNTIL(f->loop, f->n_done == 3);
    assert_int_equal(f->code, TTRPC_UNAVAILABLE);
    assert_int_equal(f->n_closed, 1);
    ttrpc_reply(f->parked[0], NULL, 0);
    ttrpc_reply(f->parked[1], NULL, 0);
}

static void the_client_may_be_freed_by_its_callbacks(void **state)
{
    struct fixture *f = *state;

    f->free_in_callback = true;
    call(f, "Echo", "a", 2, 1000);
    call(f, "Echo", "b", 2, 1000);
    STEP_UNTIL(f->loop, f->n_done == 1);
    for (int i = 0; i < 10; i++)
        assert_int_equal(loop_step(f->loop, 1, NULL), 0);
    assert_int_equal(f->n_done, 1);
}

static void the_client_may_be_freed_when_the_connection_ends(void **state)
{
    struct fixture *f = *state;

    f->free_in_callback = true;
    ttrpc_client_on_closed(f->client, on_closed, f);
    call(f, "Park", NULL, 0, 0);
    call(f, "Park", NULL, 0, 0);
    STEP_UNTIL(f->loop, f->n_parked == 2);
    ttrpc_server_free(take(f->server));
    STEP_UNTIL(f->loop, f->n_done == 1);
    assert_null(f->client);
    assert_int_equal(f->n_closed, 0);
    ttrpc_reply(f->parked[0], NULL, 0);
    ttrpc_reply(f->parked[1], NULL, 0);
}

static void a_freed_client_calls_nobody(void **state)
{
    struct fixture *f = *state;

    call(f, "Echo", "a", 2, 20);
    ttrpc_client_free(take(f->client));
    for (int i = 0; i < 10; i++)
        assert_int_equal(loop_step(f->loop, 5, NULL), 0);
    assert_int_equal(f->n_done, 0);
}

static void an_oversized_request_is_not_sent(void **state)
{
    struct fixture *f = *state;
    size_t n = 5u << 20;
    scoped_free char *text = xcalloc(1, n);

    call(f, "Echo", text, n, 1000);
    STEP_UNTIL(f->loop, f->n_done == 1);
    assert_int_equal(f->code, TTRPC_RESOURCE_EXHAUSTED);
    call(f, "Echo", "x", 2, 1000);
    STEP_UNTIL(f->loop, f->n_done == 2);
    assert_int_equal(f->code, TTRPC_OK);
}

static void addresses_have_three_forms(void **state)
{
    struct fixture *f = *state;
    char text[80];
    struct err e = {0};

    (void)snprintf(text, sizeof text, "unix://%s", f->address);
    scoped_fd int fd = ttrpc_dial(text, &e);
    assert_true(fd >= 0);
    assert_int_equal(ttrpc_dial("unix:///nonexistent/x.sock", &e), -ENOENT);
    assert_non_null(strstr(err_text(&e), "/nonexistent/x.sock"));
    assert_int_equal(ttrpc_dial("/nonexistent/x.sock", NULL), -ENOENT);
    assert_int_equal(ttrpc_dial("", &e), -EINVAL);
    assert_int_equal(ttrpc_dial("unix://", &e), -EINVAL);
    scoped_free char *longest = xcalloc(1, 200);
    memset(longest, 'a', 199);
    assert_int_equal(ttrpc_dial(longest, &e), -ENAMETOOLONG);
}

/* ---- a server by hand ---- */

static void what_is_no_answer_of_ours_is_ignored(void **state)
{
    struct fixture *f = *state;
    int pair[2];
    uint8_t bytes[128];
    struct ttrpc_client *c = NULL;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    scoped_fd int peer = pair[1];
    assert_int_equal(ttrpc_client_new(f->loop, pair[0], &c, NULL), 0);
    struct ttrpc_request q = {.service = "s", .method = "m", .timeout_ms = 2000};
    ttrpc_client_call(c, &q, on_done, f);
    assert_true(recv(peer, bytes, sizeof bytes, 0) > TTRPC_HEADER);
    struct ttrpc_frame got = ttrpc_frame_decode(bytes);
    assert_int_equal(got.stream, 1);
    assert_int_equal(got.type, TTRPC_REQUEST);

    /* another stream; another type; then a broken message on the right stream */
    size_t n = unhex("00000000 00000003 0200  00000000 00000001 0300  00000000 00000001 0100"
                     "00000002 00000001 0200 0aff",
                     bytes, sizeof bytes);
    assert_int_equal(send(peer, bytes, n, 0), (ssize_t)n);
    STEP_UNTIL(f->loop, f->n_done == 1);
    assert_int_equal(f->code, TTRPC_INTERNAL);

    /* an answer above the limit is skipped and ends the call */
    ttrpc_client_call(c, &q, on_done, f);
    n = unhex("00400001 00000003 0200", bytes, sizeof bytes);
    assert_int_equal(send(peer, bytes, n, 0), (ssize_t)n);
    STEP_UNTIL(f->loop, f->n_done == 2);
    assert_int_equal(f->code, TTRPC_RESOURCE_EXHAUSTED);
    ttrpc_client_free(c);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(answers_and_errors_come_back),
        TEST(many_calls_share_one_connection),
        TEST(a_late_answer_is_ignored),
        TEST(a_closed_connection_ends_all_calls),
        TEST(the_client_may_be_freed_by_its_callbacks),
        TEST(the_client_may_be_freed_when_the_connection_ends),
        TEST(a_freed_client_calls_nobody),
        TEST(an_oversized_request_is_not_sent),
        TEST(addresses_have_three_forms),
        TEST(what_is_no_answer_of_ours_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
