/*
 * `start`: find or make the shim process of this container's pod and print where it listens.
 *
 * Order matters: the socket listens and the bundle's `address` file is written before the process is
 * forked, so that containerd, which may be killed at any point, always finds what it has to clean up;
 * the address is printed last, so that a start which failed has left neither process nor socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/scoped.h"
#include "shim/cli/cli.h"
#include "shim/cli/detach.h"
#include "shim/cli/options.h"
#include "shim/cli/socket.h"
#include "shim/oci/spec.h"
#include "shim/service/daemon.h"

#define STDIN_MAX (10u << 20)

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE        62
#define PR_SCHED_CORE_CREATE 1
#endif
#define SCHED_CORE_PROCESS_GROUP 2

SCOPED_DEFINE(struct spec, spec_free)

struct start {
    const struct cli_flags *flags;
    struct start_options options;
    bool debug;
    char *bundle, *socket, *address;
    char *ttrpc_address;
};

static void start_done_scoped(struct start *s)
{
    start_options_done(&s->options);
    free(s->bundle);
    free(s->socket);
    free(s->address);
    free(s->ttrpc_address);
}

/* Trouble with the options is no reason not to start: they are not for us more often than not. */
static void read_options(struct start *s)
{
    scoped_free char *data = NULL;
    size_t len = 0;

    if (isatty(STDIN_FILENO))
        return;
    if (fd_read_all(STDIN_FILENO, STDIN_MAX, &data, &len, NULL) == 0)
        (void)start_options_parse(data, len, s->flags->id, s->flags->ns, &s->options, NULL);
}

static bool env_says_debug(void)
{
    const char *value = getenv("GLOVEBOX_DEBUG");

    return value && value[0] && strcmp(value, "0") != 0;
}

static char *pick_ttrpc_address(const struct start *s)
{
    const char *env = getenv("TTRPC_ADDRESS");

    if (env && env[0])
        return xstrdup(env);
    if (s->options.ttrpc_address)
        return xstrdup(s->options.ttrpc_address);
    return s->flags->address[0] ? xasprintf("%s.ttrpc", s->flags->address) : NULL;
}

/* All containers of one group are served by one process. */
static int find_group(const char *id, char **ret, struct err *e)
{
    scoped(spec_free) struct spec *spec = NULL;
    scoped_fd int bundle = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (bundle < 0)
        return err_sys(e, "open the bundle");
    int r = spec_load(bundle, &spec, e);
    if (r < 0)
        return r;
    const char *group = spec_group(spec);
    if (group && cli_check_name("id", group, NULL) < 0)
        return err_set(e, -EINVAL,
                       "config.json: the annotation that names the pod has \"%.100s\", which is no name",
                       group);
    *ret = xstrdup(group ? group : id);
    return 0;
}

static int prepare(struct start *s, struct err *e)
{
    scoped_free char *group = NULL;
    int r = cli_check_name("namespace", s->flags->ns, e);

    if (r == 0)
        r = cli_check_name("id", s->flags->id, e);
    if (r < 0)
        return r;
    read_options(s);
    s->debug = s->flags->debug || s->options.debug || env_says_debug();
    s->ttrpc_address = pick_ttrpc_address(s);
    s->bundle = getcwd(NULL, 0);
    if (!s->bundle)
        return err_sys(e, "find the bundle");
    r = find_group(s->flags->id, &group, e);
    if (r < 0)
        return r;
    s->socket = socket_path(s->options.socket_dir, s->flags->address, s->flags->ns, group);
    s->address = xasprintf("unix://%s", s->socket);
    return 0;
}

/* One cookie for the shim and all it starts: no other tenant's thread shares a core with them. */
static int enter_core_group(struct err *e)
{
    const char *wanted = getenv("SCHED_CORE");

    if (!wanted || !wanted[0])
        return 0;
    if (prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, SCHED_CORE_PROCESS_GROUP, 0) < 0)
        return err_sys(e, "SCHED_CORE is set, but this kernel gives no core scheduling");
    return 0;
}

static int write_address(const struct start *s, struct err *e)
{
    return file_replace(AT_FDCWD, "address", s->address, 0600, e);
}

static int print_address(const struct start *s, struct err *e)
{
    int r = fd_write_all(STDOUT_FILENO, s->address, strlen(s->address));

    return r < 0 ? err_set(e, r, "print the address: %s", strerror(-r)) : 0;
}

static int run_daemon(const struct start *s, const struct detach *d)
{
    struct err e = {0};
    struct daemon_params p = {
        .ns = s->flags->ns,
        .id = s->flags->id,
        .address = s->flags->address,
        .ttrpc_address = s->ttrpc_address,
        .socket_path = s->socket,
        .bundle = s->bundle,
        .listen_fd = d->listen_fd,
        .debug = s->debug,
    };

    log_init(d->log_fd, s->debug ? LOG_DEBUG : LOG_INFO);
    /* ps(1) shows what this is: `start` is what made it, not what it does. */
    memset(s->flags->action, 0, strlen(s->flags->action));
    int r = daemon_run(&p, &e);
    if (r < 0)
        log_error("the shim cannot serve", "reason=%s", err_text(&e));
    return r < 0;
}

static void end_daemon(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* >0 in `start`: the daemon's pid; 0 in the daemon. */
static pid_t launch(const struct start *s, struct detach *d, struct err *e)
{
    int r = write_address(s, e);

    if (r == 0)
        r = enter_core_group(e);
    pid_t pid = r < 0 ? r : detach(d, e);
    if (pid <= 0)
        return pid;
    r = print_address(s, e);
    if (r < 0) {
        end_daemon(pid);
        return r;
    }
    return pid;
}

/*
 * Nothing that containerd had open by accident may live on in a process that outlives it; and no file of
 * ours may get the number of a missing standard stream, where an answer would be written into it.
 */
static void tidy_fds(void)
{
    int fd;

    (void)close_range(3, ~0U, 0);
    do {
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    } while (fd >= 0 && fd < 3);
    fd_close(fd);
}

static int join(const struct start *s, struct err *e)
{
    int r = write_address(s, e);

    return r < 0 ? r : print_address(s, e);
}

int cli_start(const struct cli_flags *f)
{
    __attribute__((cleanup(start_done_scoped))) struct start s = {.flags = f};
    struct err e = {0};
    int listen_fd = -1;

    tidy_fds();
    (void)signal(SIGPIPE, SIG_IGN);
    int r = prepare(&s, &e);
    if (r == 0)
        r = socket_claim(s.socket, &listen_fd, &e);
    if (r < 0)
        return cli_fail("start", &e);
    if (r > 0)
        return join(&s, &e) < 0 ? cli_fail("start", &e) : 0;

    struct detach d = {.listen_fd = listen_fd, .log_fd = -1, .shim_cgroup = s.options.shim_cgroup};
    pid_t pid = launch(&s, &d, &e);
    if (pid == 0)
        return run_daemon(&s, &d);
    fd_close(listen_fd);
    if (pid > 0)
        return 0;
    (void)unlink(s.socket);
    (void)unlink("address");
    return cli_fail("start", &e);
}
