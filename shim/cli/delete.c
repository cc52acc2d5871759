/*
 * `delete`: containerd calls it whenever a shim's connection has closed, after an orderly end too, and
 * for what it finds after a restart.  Stateless and idempotent; publishes nothing and asks no daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/scoped.h"
#include "shim/cli/cli.h"
#include "shim/cli/socket.h"
#include "shim/service/cleanup.h"
#include "task.pb-c.h"

#define ADDRESS_MAX 256

static int print_result(const struct cleanup_result *c, struct err *e)
{
    uint8_t out[64];
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Containerd__Task__V2__DeleteResponse m = CONTAINERD__TASK__V2__DELETE_RESPONSE__INIT;

    at.seconds = c->at.tv_sec;
    at.nanos = (int32_t)c->at.tv_nsec;
    m.pid = c->pid;
    m.exit_status = c->exit_status;
    m.exited_at = &at;
    if (containerd__task__v2__delete_response__get_packed_size(&m) > sizeof out)
        return err_set(e, -EMSGSIZE, "delete response is too long");
    size_t n = containerd__task__v2__delete_response__pack(&m, out);
    int r = fd_write_all(STDOUT_FILENO, out, n);
    return r < 0 ? err_set(e, r, "print the result: %s", strerror(-r)) : 0;
}

/* Read before the bundle may go; the socket is looked at when the containers are gone. */
static char *read_address(const char *bundle)
{
    scoped_fd int dir = open(bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char *text = NULL;

    if (dir < 0 || file_read(dir, "address", ADDRESS_MAX, &text, NULL, NULL) < 0)
        return NULL;
    return text;
}

int cli_delete(const struct cli_flags *f)
{
    struct cleanup_result result = {0};
    struct err e = {0};
    scoped_free char *cwd = NULL;
    const char *bundle = f->bundle;

    (void)signal(SIGPIPE, SIG_IGN);
    if (cli_check_name("namespace", f->ns, &e) < 0 || cli_check_name("id", f->id, &e) < 0)
        return cli_fail("delete", &e);
    if (!bundle[0]) {
        cwd = getcwd(NULL, 0);
        bundle = cwd ? cwd : ".";
    }
    scoped_free char *address = read_address(bundle);
    int r = cleanup_bundle(f->ns, f->id, bundle, &result, &e);
    if (address)
        socket_remove_stale(address);
    if (r < 0)
        return cli_fail("delete", &e);
    return print_result(&result, &e) < 0 ? cli_fail("delete", &e) : 0;
}
