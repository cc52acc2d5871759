#include "shim/runtime/state.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/proc.h"
#include "base/strbuf.h"

#define STATE_FILE_MAX (64 * 1024)
#define NAME_MAX_LEN   76

bool state_name_is_valid(const char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (n == 0 || n > NAME_MAX_LEN)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool alnum = isalnum((unsigned char)name[i]) && (unsigned char)name[i] < 128;
        bool sep = strchr("._-", name[i]) != NULL;
        if (!alnum && !(sep && i > 0 && i + 1 < n && !strchr("._-", name[i + 1])))
            return false;
    }
    return true;
}

static uint64_t start_time(pid_t pid)
{
    uint64_t start = 0;

    (void)proc_stat_field(pid, 22, &start);
    return start;
}

struct state_process state_process_of(pid_t pid)
{
    struct state_process p = {.pid = pid > 0 ? pid : 0};

    if (pid > 0)
        p.start = start_time(pid);
    return p;
}

int state_process_open(const struct state_process *p)
{
    if (p->pid <= 0 || p->start == 0)
        return -ESRCH;
    /* The pidfd first: it pins the process, so the start time read after it is that process's or a sign of
     * another. */
    scoped_fd int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0)
        return -ESRCH;
    if (start_time(p->pid) != p->start)
        return -ESRCH;
    return take_fd(fd);
}

struct text_field {
    const char *key;
    size_t offset;
};
static const struct text_field text_fields[] = {
    {"pod", offsetof(struct state, pod)},
    {"cgroup", offsetof(struct state, cgroup)},
    {"sentry_cgroup_of", offsetof(struct state, sentry_cgroup_of)},
    {"socket", offsetof(struct state, socket)},
    {"bundle", offsetof(struct state, bundle)},
    {"audit", offsetof(struct state, audit)},
};
static const struct text_field process_fields[] = {
    {"init", offsetof(struct state, init)},
    {"sentry", offsetof(struct state, sentry)},
    {"shim", offsetof(struct state, shim)},
};

static char **text_at(struct state *s, size_t i)
{
    return (char **)(void *)((char *)s + text_fields[i].offset);
}

static struct state_process *process_at(struct state *s, size_t i)
{
    return (struct state_process *)(void *)((char *)s + process_fields[i].offset);
}

static char *state_path(const char *state_dir, const char *ns, const char *id)
{
    return xasprintf("%s/%s/%s", state_dir, ns, id);
}

static int make_dirs(const char *state_dir, const char *ns, const char *dir, struct err *e)
{
    scoped_free char *ns_dir = xasprintf("%s/%s", state_dir, ns);
    const char *const all[] = {state_dir, ns_dir, dir};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (mkdir(all[i], 0700) < 0 && errno != EEXIST)
            return err_sys(e, "create %s", all[i]);
    return 0;
}

int state_write(const char *state_dir, const char *ns, const char *id, const struct state *s, struct err *e)
{
    scoped_free char *dir = state_path(state_dir, ns, id);
    scoped_strbuf struct strbuf out;
    struct state copy = *s; /* shallow: only to walk it by the tables */

    strbuf_init(&out, STATE_FILE_MAX);
    for (size_t i = 0; i < ARRAY_LEN(text_fields); i++)
        if (*text_at(&copy, i) && !strchr(*text_at(&copy, i), '\n'))
            strbuf_printf(&out, "%s %s\n", text_fields[i].key, *text_at(&copy, i));
    for (size_t i = 0; i < ARRAY_LEN(process_fields); i++) {
        const struct state_process *p = process_at(&copy, i);
        if (p->pid > 0)
            strbuf_printf(&out, "%s %d %" PRIu64 "\n", process_fields[i].key, p->pid, p->start);
    }
    if (s->has_exit)
        strbuf_printf(&out, "exit %u %lld %ld\n", s->exit_status, (long long)s->exit_at.tv_sec,
                      s->exit_at.tv_nsec);
    strbuf_puts(&out, "end\n");
    if (out.overflow)
        return err_set(e, -EFBIG, "the state of %s is too long to be noted", id);

    /* Once more when a clean-up of the last container of ns removed the parent in between. */
    for (int attempt = 0;; attempt++) {
        int r = make_dirs(state_dir, ns, dir, e);
        if (r == 0) {
            scoped_fd int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
            r = fd < 0 ? err_sys(e, "open %s", dir) : file_replace(fd, "state", out.data, 0600, e);
        }
        if (r != -ENOENT || attempt > 0)
            return r;
    }
}

static void read_line(struct state *s, char *line)
{
    char *value = strchr(line, ' ');

    if (!value)
        return;
    *value++ = '\0';
    for (size_t i = 0; i < ARRAY_LEN(text_fields); i++)
        if (strcmp(line, text_fields[i].key) == 0) {
            free(*text_at(s, i));
            *text_at(s, i) = xstrdup(value);
        }
    for (size_t i = 0; i < ARRAY_LEN(process_fields); i++) {
        struct state_process p;
        if (strcmp(line, process_fields[i].key) == 0 && sscanf(value, "%d %" SCNu64, &p.pid, &p.start) == 2 &&
            p.pid > 0)
            *process_at(s, i) = p;
    }
    long long sec;
    long nsec;
    if (strcmp(line, "exit") == 0 && sscanf(value, "%u %lld %ld", &s->exit_status, &sec, &nsec) == 3) {
        s->has_exit = true;
        s->exit_at = (struct timespec){.tv_sec = sec, .tv_nsec = nsec};
    }
}

int state_read(const char *state_dir, const char *ns, const char *id, struct state **ret, struct err *e)
{
    scoped_free char *path = xasprintf("%s/%s/%s/state", state_dir, ns, id);
    scoped_free char *text = NULL;
    size_t len;

    int r = file_read(AT_FDCWD, path, STATE_FILE_MAX, &text, &len, e);
    if (r < 0)
        return r;
    scoped(state_free) struct state *s = xcalloc(1, sizeof *s);
    /* A last line without its newline was cut: half a number is a wrong number. */
    char *line = text;
    for (char *nl = strchr(line, '\n'); nl; nl = strchr(line, '\n')) {
        *nl = '\0';
        read_line(s, line);
        line = nl + 1;
    }
    *ret = take(s);
    return 0;
}

void state_free(struct state *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < ARRAY_LEN(text_fields); i++)
        free(*text_at(s, i));
    free(s);
}

void state_remove(const char *state_dir, const char *ns, const char *id)
{
    scoped_free char *dir = state_path(state_dir, ns, id);
    scoped_free char *ns_dir = xasprintf("%s/%s", state_dir, ns);
    DIR *d = opendir(dir);

    if (d) {
        for (struct dirent *de; (de = readdir(d));)
            (void)unlinkat(dirfd(d), de->d_name, 0); /* "." and ".." refuse */
        closedir(d);
    }
    (void)rmdir(dir);
    (void)rmdir(ns_dir); /* only when empty */
}

char **state_ids(const char *state_dir, const char *ns)
{
    scoped_free char *dir = xasprintf("%s/%s", state_dir, ns);
    char **ids = xcalloc(1, sizeof *ids);
    size_t n = 0;
    DIR *d = opendir(dir);

    if (!d)
        return ids;
    for (struct dirent *de; (de = readdir(d));) {
        if (!state_name_is_valid(de->d_name))
            continue;
        ids = xrealloc_array(ids, n + 2, sizeof *ids);
        ids[n++] = xstrdup(de->d_name);
        ids[n] = NULL;
    }
    closedir(d);
    return ids;
}

void state_ids_free(char **ids)
{
    for (size_t i = 0; ids && ids[i]; i++)
        free(ids[i]);
    free(ids);
}
