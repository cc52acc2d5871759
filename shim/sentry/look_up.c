/*
 * The shim's answer about a thread of the pod, from procfs.  Of the text, which holds the thread's name,
 * only numbers after fixed labels at line starts are used; the kernel escapes newlines in names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/sentry/task.h"

#define STATUS_MAX        16384
#define THREADS_LOOKED_AT 64

struct status {
    uint64_t tgid, own, shared, blocked;
};

static uint64_t number_after(const char *text, const char *label, int base)
{
    const char *at = strstr(text, label);
    return at ? strtoull(at + strlen(label), NULL, base) : 0;
}

static int read_status(const char *path, struct status *ret)
{
    scoped_free char *text = NULL;
    int r = file_read(AT_FDCWD, path, STATUS_MAX, &text, NULL, NULL);
    if (r < 0)
        return r;
    *ret = (struct status){
        .tgid = number_after(text, "\nTgid:\t", 10),
        .own = number_after(text, "\nSigPnd:\t", 16),
        .shared = number_after(text, "\nShdPnd:\t", 16),
        .blocked = number_after(text, "\nSigBlk:\t", 16),
    };
    return 0;
}

/*
 * A signal to the whole process goes to one thread (complete_signal): to the main thread if it can take
 * it, else to one of the others.  It is ours for certain when all the others block it.
 */
static bool only_candidate(pid_t tid, const struct status *st)
{
    char path[64];
    uint64_t signals = st->shared & ~st->blocked;
    int n = 0;

    if ((uint64_t)tid == st->tgid)
        return signals != 0;
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)st->tgid);
    DIR *dir = opendir(path);
    if (!dir)
        return false;
    for (const struct dirent *d = readdir(dir); d && signals && n < THREADS_LOOKED_AT;
         d = readdir(dir), n++) {
        struct status other;
        int id = (int)strtol(d->d_name, NULL, 10);
        if (id <= 0 || id == tid)
            continue;
        (void)snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)st->tgid, id);
        if (read_status(path, &other) == 0)
            signals &= other.blocked;
    }
    (void)closedir(dir);
    return signals != 0 && n < THREADS_LOOKED_AT;
}

int task_look_up(pid_t tid, bool *ret_pending)
{
    char path[64];
    struct status st;

    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)tid);
    int r = read_status(path, &st);
    if (r < 0)
        return r;
    *ret_pending =
        (st.own & ~st.blocked) != 0 || ((st.shared & ~st.blocked) != 0 && only_candidate(tid, &st));
    return (int)st.tgid;
}
