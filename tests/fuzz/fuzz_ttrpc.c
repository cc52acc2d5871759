/*
 * Bytes as they could come from a peer.  The first byte says who reads them: the server (with methods
 * that decode every Task request), a client that waits for answers, or the decoder of start's stdin.
 * For the first two the second byte says in which pieces they arrive.
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "base/macro.h"
#include "base/scoped.h"
#include "shim/cli/options.h"
#include "shim/ttrpc/client.h"
#include "shim/ttrpc/server.h"
#include "task.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PARKED_MAX 4096

static struct {
    struct loop *loop;
    struct ttrpc_server *server;
    struct sockaddr_un at;
    socklen_t at_len;
    size_t parked;
} world;

/* ---- the server's methods: decode, then answer, refuse or park ---- */

#define DECODER(name, prefix)                                                                                \
    static void name(void *d UNUSED, struct ttrpc_call *call, const uint8_t *payload, size_t len)            \
    {                                                                                                        \
        void *m = containerd__task__v2__##prefix##__unpack(NULL, len, payload);                              \
        if (!m) {                                                                                            \
            ttrpc_reply_error(call, TTRPC_INVALID_ARGUMENT, "bad");                                          \
            return;                                                                                          \
        }                                                                                                    \
        containerd__task__v2__##prefix##__free_unpacked(m, NULL);                                            \
        ttrpc_reply(call, payload, len);                                                                     \
    }
DECODER(on_create, create_task_request)
DECODER(on_start, start_request)
DECODER(on_exec, exec_process_request)
DECODER(on_update, update_task_request)
DECODER(on_kill, kill_request)
DECODER(on_resize, resize_pty_request)

static void on_cancel(void *d UNUSED)
{
    assert(world.parked > 0);
    world.parked--;
}

static void on_wait(void *d UNUSED, struct ttrpc_call *call, const uint8_t *payload UNUSED, size_t len UNUSED)
{
    if (world.parked >= PARKED_MAX) {
        ttrpc_reply_error(call, TTRPC_RESOURCE_EXHAUSTED, "too many");
        return;
    }
    world.parked++;
    ttrpc_call_on_cancel(call, on_cancel, NULL);
}

#define TASK "containerd.task.v2.Task"
static const struct ttrpc_method methods[] = {
    {TASK, "Create", on_create},    {TASK, "Start", on_start}, {TASK, "Exec", on_exec},
    {TASK, "Update", on_update},    {TASK, "Kill", on_kill},   {TASK, "Wait", on_wait},
    {TASK, "ResizePty", on_resize},
};

static void step(int n)
{
    while (n-- > 0)
        assert(loop_step(world.loop, 0, NULL) == 0);
}

static void make_world(void)
{
    if (world.loop)
        return;
    log_init(-1, LOG_ERROR);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    world.at.sun_family = AF_UNIX;
    /* An abstract name of the kernel's choice. */
    assert(fd >= 0 && bind(fd, (struct sockaddr *)&world.at, sizeof(sa_family_t)) == 0 && listen(fd, 8) == 0);
    world.at_len = sizeof world.at;
    assert(getsockname(fd, (struct sockaddr *)&world.at, &world.at_len) == 0);
    assert(loop_new(&world.loop, NULL) == 0);
    assert(ttrpc_server_new(world.loop, fd, methods, ARRAY_LEN(methods), NULL, &world.server, NULL) == 0);
}

/* Pieces of 1 to 64 bytes, or all at once. */
static void send_pieces(int fd, const uint8_t *data, size_t size, uint8_t how)
{
    size_t piece = how < 64 ? (size_t)how + 1 : size;

    for (size_t at = 0; at < size; at += piece) {
        if (send(fd, data + at, MIN(piece, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        step(1);
    }
}

static void to_server(const uint8_t *data, size_t size, uint8_t how)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert(fd >= 0 && connect(fd, (struct sockaddr *)&world.at, world.at_len) == 0);
    step(1);
    send_pieces(fd, data, size, how);
    step(2);
    fd_close(fd);
    step(2 + (int)(size / 16384));
    /* Whatever it was told, a closed connection leaves nothing parked. */
    for (int i = 0; world.parked > 0 && i < 1000; i++)
        step(1);
    assert(world.parked == 0);
}

static void on_done(void *count, enum ttrpc_code code UNUSED, const char *text, const uint8_t *payload,
                    size_t len)
{
    assert(text && (len == 0 || payload));
    ++*(unsigned *)count;
}

static void to_client(const uint8_t *data, size_t size, uint8_t how)
{
    enum { CALLS = 4 };
    unsigned done = 0;
    int pair[2];
    struct ttrpc_client *c = NULL;
    struct ttrpc_request q = {.service = TASK, .method = "State"};

    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    assert(ttrpc_client_new(world.loop, pair[0], &c, NULL) == 0);
    for (int i = 0; i < CALLS; i++)
        ttrpc_client_call(c, &q, on_done, &done);
    send_pieces(pair[1], data, size, how);
    step(2);
    fd_close(pair[1]);
    for (int i = 0; done < CALLS && i < 1000; i++)
        step(1);
    assert(done == CALLS); /* each exactly once */
    ttrpc_client_free(c);
    step(1);
}

static void to_options(const uint8_t *data, size_t size)
{
    struct start_options o = {0};

    (void)start_options_parse(data, size, "t1", "default", &o, NULL);
    start_options_done(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    make_world();
    if (size < 2)
        return 0;
    switch (data[0] % 3) {
    case 0:
        to_server(data + 2, size - 2, data[1]);
        break;
    case 1:
        to_client(data + 2, size - 2, data[1]);
        break;
    default:
        to_options(data + 2, size - 2);
    }
    return 0;
}
