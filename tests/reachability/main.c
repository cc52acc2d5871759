/*
 * probe [-u UID]: runs every probe in a child of its own and prints one line each:
 *   GROUP <tab> NAME <tab> RESULT <tab> REACHED|not <tab> INDEX <tab> KEY
 * For the observer (watch.py) each names itself, and says its index by a close() of a number that never
 * is a descriptor; KEY is the system call that the probe is about.
 * With -u the children have that user id, no capabilities and no_new_privs.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

#define CHILD_SECONDS 5
#define MARK          0x7b000000
#define KILLED        1000 /* KILLED + signal: the child ended by a signal */

static int drop_to(uid_t uid)
{
    /* A changed uid makes the process undumpable, which would hide what /proc/self allows. */
    return setgid(uid) < 0 || setuid(uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
                   prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0
               ? -errno
               : 0;
}

/* The result travels through a pipe: exit codes are too small for it. */
static long run_in_child(const struct probe *p, long uid, int index)
{
    int pipe_fd[2];
    long result = -ECHILD;

    if (pipe(pipe_fd) < 0)
        return -errno;
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(pipe_fd[0]);
        alarm(CHILD_SECONDS);
        if (uid >= 0 && drop_to((uid_t)uid) < 0)
            _exit(1);
        prctl(PR_SET_NAME, "gbprobe");
        (void)close(MARK + index);
        result = p->run(p);
        prctl(PR_SET_NAME, "done");
        _exit(write(pipe_fd[1], &result, sizeof result) == sizeof result ? 0 : 1);
    }
    close(pipe_fd[1]);
    ssize_t n = read(pipe_fd[0], &result, sizeof result);
    close(pipe_fd[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (n != sizeof result)
        return WIFSIGNALED(status) ? -(KILLED + WTERMSIG(status)) : -ECHILD;
    return result;
}

static int is_reached(const struct probe *p, long r)
{
    for (size_t i = 0; i < PROBE_REACHED_MAX && p->reached[i]; i++)
        if (p->reached[i] == PROBE_OK ? r >= 0 : r == -p->reached[i])
            return 1;
    return 0;
}

static long key_of(const struct probe *p)
{
    static const struct {
        probe_fn run;
        long nr;
    } keys[] = {{run_socket, SYS_socket}, {run_setsockopt, SYS_setsockopt}, {run_getsockopt, SYS_getsockopt},
                {run_open, SYS_openat},   {run_sock_ioctl, SYS_ioctl},      {run_pty_ioctl, SYS_ioctl}};

    if (p->key)
        return p->key;
    if (p->run == run_syscall)
        return p->arg[0];
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (keys[i].run == p->run)
            return keys[i].nr;
    return -1; /* any: the result alone decides */
}

static void print_result(const struct probe *p, long r, int index)
{
    char text[64];

    if (r >= 0)
        (void)snprintf(text, sizeof text, "ok");
    else if (r <= -KILLED)
        (void)snprintf(text, sizeof text, "SIG%s", sigabbrev_np((int)(-r - KILLED)));
    else
        (void)snprintf(text, sizeof text, "%s", strerrorname_np((int)-r));
    printf("%s\t%s\t%s\t%s\t%d\t%ld\n", p->group, p->name, text, is_reached(p, r) ? "REACHED" : "not", index,
           key_of(p));
}

int main(int argc, char **argv)
{
    const struct {
        const struct probe *p;
        size_t n;
    } sets[] = {
        {probes_kernel, probes_kernel_n}, {probes_net, probes_net_n}, {probes_runtime, probes_runtime_n}};
    long uid = -1;
    int index = 0;

    for (int opt; (opt = getopt(argc, argv, "u:")) != -1;) {
        if (opt != 'u') {
            fprintf(stderr, "usage: probe [-u UID]\n");
            return 2;
        }
        uid = strtol(optarg, NULL, 10);
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++)
        for (size_t i = 0; i < sets[s].n; i++, index++)
            print_result(&sets[s].p[i], run_in_child(&sets[s].p[i], uid, index), index);
    return 0;
}
