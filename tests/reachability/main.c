/*
 * probe [-u UID]: runs every probe in a child of its own and prints one line each:
 *   GROUP <tab> NAME <tab> RESULT <tab> REACHED|not
 * With -u the children have that user id, no capabilities and no_new_privs.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

#define CHILD_SECONDS 5
#define KILLED 1000 /* KILLED + signal: the child ended by a signal */

static int drop_to(uid_t uid)
{
    /* A changed uid makes the process undumpable, which would hide what /proc/self allows. */
    return setgid(uid) < 0 || setuid(uid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0;
}

/* The result travels through a pipe: exit codes are too small for it. */
static long run_in_child(const struct probe *p, long uid)
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
        /* High numbers, so that the descriptors of the probe itself stay as they were at exec. */
        result = p->run(p);
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

static void print_result(const struct probe *p, long r)
{
    char text[64];

    if (r >= 0)
        (void)snprintf(text, sizeof text, "ok");
    else if (r <= -KILLED)
        (void)snprintf(text, sizeof text, "SIG%s", sigabbrev_np((int)(-r - KILLED)));
    else
        (void)snprintf(text, sizeof text, "%s", strerrorname_np((int)-r));
    printf("%s\t%s\t%s\t%s\n", p->group, p->name, text, is_reached(p, r) ? "REACHED" : "not");
}

int main(int argc, char **argv)
{
    const struct {
        const struct probe *p;
        size_t n;
    } sets[] = {{probes_kernel, probes_kernel_n}, {probes_net, probes_net_n}, {probes_runtime, probes_runtime_n}};
    long uid = -1;

    for (int opt; (opt = getopt(argc, argv, "u:")) != -1;) {
        if (opt != 'u') {
            fprintf(stderr, "usage: probe [-u UID]\n");
            return 2;
        }
        uid = strtol(optarg, NULL, 10);
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++)
        for (size_t i = 0; i < sets[s].n; i++)
            print_result(&sets[s].p[i], run_in_child(&sets[s].p[i], uid));
    return 0;
}
