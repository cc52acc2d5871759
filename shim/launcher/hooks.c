#include "shim/launcher/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scoped.h"
#include "shim/launcher/sys.h"

#define OUTPUT_MAX  300 /* of what a failed hook printed */
#define NO_LIMIT_MS (24 * 3600 * 1000)

static const char *const kind_name[] = {"prestart",       "createRuntime", "createContainer",
                                        "startContainer", "poststart",     "poststop"};
_Static_assert(ARRAY_LEN(kind_name) == HOOK_KINDS, "a kind of hook has no name");

static char *state_json(const struct hook_state *s)
{
    json_t *notes = json_object();

    for (size_t i = 0; i < s->spec->n_annotations; i++)
        (void)json_object_set_new(notes, s->spec->annotations[i].key,
                                  json_string(s->spec->annotations[i].value));
    json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:o}", "ociVersion",
                             s->spec->oci_version ? s->spec->oci_version : "1.0.2", "id", s->id, "status",
                             s->status, "bundle", s->bundle, "annotations", notes);
    if (root && s->pid > 0)
        (void)json_object_set_new(root, "pid", json_integer(s->pid));
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

struct running {
    pid_t pid;
    int pidfd, in, out; /* our ends of its stdin and of its stdout+stderr */
    char output[OUTPUT_MAX + 1];
    size_t n_output;
};

static NORETURN void exec_hook(const struct spec_hook *h, int in, int out)
{
    char *const no_env[] = {NULL}, *self[] = {h->path, NULL};
    sigset_t none;

    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)umask(0022);
    (void)setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    (void)close_range(3, ~0U, 0);
    (void)execve(h->path, h->args.n ? h->args.item : self, h->env.item ? h->env.item : no_env);
    dprintf(2, "%s: %s", h->path, strerror(errno));
    _exit(127);
}

static int start(const struct spec_hook *h, struct running *run, struct err *e)
{
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    if (pipe2(out, O_CLOEXEC) < 0) {
        fd_close_all(in, 2);
        return err_sys(e, "pipe");
    }
    run->pid = sys_fork(0, SIGCHLD, -1, &run->pidfd);
    if (run->pid == 0)
        exec_hook(h, in[0], out[1]);
    fd_close(in[0]);
    fd_close(out[1]);
    run->in = in[1];
    run->out = out[0];
    (void)fd_set_nonblock(run->in, true);
    (void)fd_set_nonblock(run->out, true);
    if (run->pid > 0)
        return 0;
    fd_close(run->in);
    fd_close(run->out);
    return err_set(e, run->pid, "fork: %s", strerror(-run->pid));
}

static void read_output(struct running *run)
{
    char buf[512];
    ssize_t n;

    while ((n = read(run->out, buf, sizeof buf)) > 0) {
        size_t keep = MIN((size_t)n, OUTPUT_MAX - run->n_output);
        memcpy(run->output + run->n_output, buf, keep);
        run->n_output += keep;
    }
    if (n == 0) {
        fd_close(run->out);
        run->out = -1;
    }
}

/* Feeds and listens until the hook ends. 1: the time is over. */
static int attend(struct running *run, const char *json, int64_t deadline_ms)
{
    size_t left = strlen(json);

    for (;;) {
        struct pollfd p[] = {{.fd = run->pidfd, .events = POLLIN},
                             {.fd = run->out, .events = POLLIN},
                             {.fd = run->in, .events = POLLOUT}};
        int64_t wait = deadline_ms - clock_mono_ms();
        if (wait <= 0)
            return 1;
        if (poll(p, ARRAY_LEN(p), (int)wait) < 0 && errno != EINTR)
            return -errno;
        if (p[1].revents)
            read_output(run);
        if (p[2].revents) {
            ssize_t n = write(run->in, json, left);
            json += n > 0 ? n : 0;
            left -= n > 0 ? (size_t)n : 0;
            if (left == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                fd_close(run->in);
                run->in = -1;
            }
        }
        if (p[0].revents & POLLIN) {
            if (run->out >= 0)
                read_output(run);
            return 0;
        }
    }
}

static int run_one(const struct spec_hook *h, const char *json, struct err *e)
{
    struct running run = {.pidfd = -1, .in = -1, .out = -1};
    int64_t limit = h->timeout_s > 0 ? (int64_t)h->timeout_s * 1000 : NO_LIMIT_MS;
    int status = 0;

    int r = start(h, &run, e);
    if (r < 0)
        return r;
    r = attend(&run, json, clock_mono_ms() + limit);
    if (r != 0)
        (void)kill(-run.pid, SIGKILL);
    if (r != 0)
        (void)kill(run.pid, SIGKILL);
    (void)waitpid(run.pid, &status, 0);
    fd_close(run.pidfd);
    fd_close(run.in);
    fd_close(run.out);
    run.output[run.n_output] = '\0';
    run.output[strcspn(run.output, "\r\n")] = '\0';
    if (r > 0)
        return err_set(e, -ETIMEDOUT, "timed out after %d s", h->timeout_s);
    if (r < 0)
        return err_set(e, r, "%s", strerror(-r));
    if (WIFSIGNALED(status))
        return err_set(e, -EIO, "killed by signal %d: %s", WTERMSIG(status), run.output);
    if (WEXITSTATUS(status) != 0)
        return err_set(e, -EIO, "exit status %d: %s", WEXITSTATUS(status), run.output);
    return 0;
}

int hooks_run(const struct hook_state *s, enum spec_hook_kind kind, struct err *e)
{
    const struct spec_hooks *hooks = &s->spec->hooks[kind];

    if (hooks->n == 0)
        return 0;
    scoped_free char *json = state_json(s);
    if (!json)
        return err_set(e, -EINVAL, "hooks: the state cannot be written as JSON");
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < hooks->n; i++) {
        int r = run_one(&hooks->item[i], json, e);
        if (r < 0)
            return err_wrap(e, r, "%s hook #%zu %s", kind_name[kind], i, hooks->item[i].path);
    }
    return 0;
}

/* ---- inside --------------------------------------------------------------------------------------- */

static NORETURN void exec_inside(const struct spec_hook *h, int in, int (*before_exec)(void *), void *data)
{
    char *const no_env[] = {NULL}, *self[] = {h->path, NULL};

    if (dup2(in, 0) < 0 || dup2(2, 1) < 0 || before_exec(data) < 0)
        _exit(126);
    (void)execve(h->path, h->args.n ? h->args.item : self, h->env.item ? h->env.item : no_env);
    _exit(127);
}

/* Without pidfd, poll or clone3: what the filter gives to everybody. */
static int wait_inside(pid_t pid, int timeout_s, int *ret_status)
{
    int64_t end = clock_mono_ms() + (timeout_s > 0 ? (int64_t)timeout_s * 1000 : NO_LIMIT_MS);

    for (;;) {
        pid_t got = waitpid(pid, ret_status, WNOHANG);
        if (got == pid)
            return 0;
        if (got < 0 && errno != EINTR)
            return -errno;
        if (clock_mono_ms() >= end) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, ret_status, 0);
            return -ETIMEDOUT;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

static int run_inside(const struct spec_hook *h, const char *json, int (*before_exec)(void *), void *data,
                      struct err *e)
{
    int in[2], status = 0;

    if (pipe2(in, O_CLOEXEC) < 0)
        return err_sys(e, "pipe");
    (void)fd_set_nonblock(in[1], true);
    /* A pipe holds 64 KiB; a state that is longer is cut rather than waited for. */
    (void)!write(in[1], json, strlen(json));
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        exec_inside(h, in[0], before_exec, data);
    fd_close_all(in, 2);
    if (pid < 0)
        return err_sys(e, "fork");
    int r = wait_inside(pid, h->timeout_s, &status);
    if (r == -ETIMEDOUT)
        return err_set(e, r, "timed out after %d s", h->timeout_s);
    if (r < 0)
        return err_set(e, r, "%s", strerror(-r));
    if (WIFSIGNALED(status))
        return err_set(e, -EIO, "killed by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) ? err_set(e, -EIO, "exit status %d", WEXITSTATUS(status)) : 0;
}

int hooks_run_inside(const struct hook_state *s, int (*before_exec)(void *data), void *data, struct err *e)
{
    const struct spec_hooks *hooks = &s->spec->hooks[HOOK_START_CONTAINER];

    if (hooks->n == 0)
        return 0;
    scoped_free char *json = state_json(s);
    if (!json)
        return err_set(e, -EINVAL, "hooks: the state cannot be written as JSON");
    for (size_t i = 0; i < hooks->n; i++) {
        int r = run_inside(&hooks->item[i], json, before_exec, data, e);
        if (r < 0)
            return err_wrap(e, r, "%s hook #%zu %s", kind_name[HOOK_START_CONTAINER], i, hooks->item[i].path);
    }
    return 0;
}
