/*
 * driver [-n CYCLES] [-d IMAGE_DIR] [-r RUN_MS] [-p PAUSE_MS] [-k] COMMAND...
 * Runs COMMAND in a control group of its own and pauses and resumes it with its memory moved out, CYCLES
 * times.  Prints one line per cycle; its exit status is the command's. -k kills the pager in the middle.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/loop.h"
#include "shim/cgroup/cgroup.h"
#include "shim/cgroup/stats.h"
#include "shim/hibernate/hibernate.h"

struct driver {
    struct loop *loop;
    struct cgroup *cg;
    struct hibernate *h;
    struct source *timer;
    const char *image_dir;
    long cycles, run_ms, pause_ms, kill_pager;
    int64_t resumed_at;
    uint64_t before;
    pid_t child;
};

static void die(const char *what, const struct err *e)
{
    fprintf(stderr, "driver: %s: %s\n", what, err_text(e));
    exit(3);
}

static uint64_t memory(const struct driver *d)
{
    char path[64];
    char *text = NULL;
    uint64_t n = 0;
    struct cgroup_view views[16];
    size_t count = cgroup_views(d->cg, views, ARRAY_LEN(views));

    for (size_t i = 0; i < count; i++) {
        bool v2 = views[i].name[0] == '\0';
        if (!v2 && strcmp(views[i].name, "memory") != 0)
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", views[i].dir,
                       v2 ? "memory.current" : "memory.usage_in_bytes");
        if (file_read(-1, path, 64, &text, NULL, NULL) == 0)
            n = strtoull(text, NULL, 10);
        free(text);
        text = NULL;
    }
    return n;
}

static void start_pause(void *data);

static void on_paused(void *data, int r, const struct hibernate_result *result, const struct err *e)
{
    struct driver *d = data;

    if (r < 0) {
        printf("not paused: %s\n", err_text(e));
        hibernate_free(d->h);
        d->h = NULL;
        source_arm(d->timer, d->run_ms);
        return;
    }
    printf("paused: saved %.1f MiB in %llu ms, lazy %d, charge %.1f -> %.1f MiB",
           (double)result->saved_bytes / 1048576, (unsigned long long)result->duration_ms, result->lazy,
           (double)d->before / 1048576, (double)memory(d) / 1048576);
    fflush(stdout);
    if (d->kill_pager)
        kill(hibernate_pid(d->h), SIGKILL);
    usleep((useconds_t)d->pause_ms * 1000);
    struct err e2;
    d->resumed_at = clock_mono_ns();
    if (hibernate_resume(d->h, &e2) < 0)
        printf("; resume: %s\n", err_text(&e2));
}

static void on_resumable(void *data)
{
    struct driver *d = data;
    struct err e;

    if (cgroup_freeze(d->cg, false, &e) < 0)
        die("thaw", &e);
    printf("; thawed after %.1f ms", (double)(clock_mono_ns() - d->resumed_at) / 1e6);
}

static void on_finished(void *data)
{
    struct driver *d = data;

    printf("; all back after %.0f ms\n", (double)(clock_mono_ns() - d->resumed_at) / 1e6);
    fflush(stdout);
    hibernate_free(d->h);
    d->h = NULL;
    if (--d->cycles > 0)
        source_arm(d->timer, d->run_ms);
    else
        kill(d->child, SIGUSR1); /* the command finishes its checks and ends */
}

static void on_broken(void *data, const struct err *e)
{
    struct driver *d = data;

    printf("; broken: %s\n", err_text(e));
    (void)cgroup_kill(d->cg, SIGKILL, NULL);
    (void)cgroup_freeze(d->cg, false, NULL);
    hibernate_free(d->h);
    d->h = NULL;
}

static void start_pause(void *data)
{
    struct driver *d = data;
    struct cgroup *const groups[] = {d->cg};
    struct hibernate_params p = {.cgroups = groups, .n_cgroups = 1, .image_dir = d->image_dir};
    struct hibernate_events ev = {.paused = on_paused,
                                  .resumable = on_resumable,
                                  .finished = on_finished,
                                  .broken = on_broken,
                                  .data = d};
    struct err e;

    d->before = memory(d);
    if (hibernate_pause(d->loop, &p, &ev, &d->h, &e) < 0)
        die("pause", &e);
}

static void on_child(void *data, int signal)
{
    struct driver *d = data;
    int status;

    (void)signal;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (d->h && hibernate_reaped(d->h, pid, status))
            continue;
        if (pid != d->child)
            continue;
        struct err e;
        cgroup_kill(d->cg, SIGKILL, NULL);
        for (int i = 0; i < 100 && cgroup_remove(d->cg, &e) < 0; i++)
            usleep(10000);
        fflush(stdout);
        exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
}

int main(int argc, char **argv)
{
    struct driver d = {.cycles = 3, .run_ms = 1000, .pause_ms = 200, .image_dir = "/var/tmp"};
    struct err e;
    sigset_t set;
    char path[64];

    for (int opt; (opt = getopt(argc, argv, "+n:d:r:p:k")) != -1;) {
        if (opt == 'n')
            d.cycles = strtol(optarg, NULL, 10);
        else if (opt == 'd')
            d.image_dir = optarg;
        else if (opt == 'r')
            d.run_ms = strtol(optarg, NULL, 10);
        else if (opt == 'p')
            d.pause_ms = strtol(optarg, NULL, 10);
        else if (opt == 'k')
            d.kill_pager = 1;
        else
            return 2;
    }
    if (optind >= argc)
        return 2;
    snprintf(path, sizeof path, "/glovebox-hibernate-%d", getpid());
    if (cgroup_create(path, NULL, &d.cg, &e) < 0)
        die("cgroup", &e);
    if (loop_new(&d.loop, &e) < 0)
        die("loop", &e);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    loop_add_signals(d.loop, &set, on_child, &d, NULL);
    d.child = fork();
    if (d.child == 0) {
        struct cgroup_entry entry = cgroup_entry(d.cg);
        for (size_t i = 0; i < entry.n_v1_tasks; i++)
            if (write(entry.v1_tasks[i], "0", 1) != 1)
                _exit(126);
        if (entry.v2_dir >= 0 && file_write(entry.v2_dir, "cgroup.procs", "0", NULL) < 0)
            _exit(126);
        sigemptyset(&set);
        sigprocmask(SIG_SETMASK, &set, NULL);
        execvp(argv[optind], &argv[optind]);
        _exit(127);
    }
    loop_add_timer(d.loop, d.run_ms, start_pause, &d, &d.timer);
    loop_run(d.loop, &e);
    return 4;
}
