#include "shim/service/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "shim/cgroup/cgroup.h"
#include "shim/launcher/pod.h"
#include "shim/oci/spec.h"
#include "shim/runtime/state.h"
#include "shim/sentry/sentry.h"
#include "shim/service/paths.h"

#define DEATH_MS      3000 /* of the 5 s that containerd gives the whole invocation */
#define DYING_MS      300  /* for a shim that is on its way out */
#define STEP_MS       5
#define LAYERS_MAX    64
#define UMOUNT_TRIES  20
#define SENTRY_SUFFIX ".sentry"

char *paths_pod_link(const char *state_dir, const char *pod_id)
{
    return xasprintf("%s/" PODS_DIR "/%s.sock", state_dir, pod_id);
}

static void sleep_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

/* Keeps the first reason; the clean-up goes on. */
static void note(struct err *e, const struct err *why)
{
    log_warn("clean-up is incomplete", "error=%s", err_text(why));
    if (e && !e->code)
        *e = *why;
}

/* A process of ours, if it still is that process.  Gone or foreign is fine. */
static void kill_process(const struct state_process *p, int64_t deadline_ms)
{
    scoped_fd int fd = state_process_open(p);

    if (fd < 0)
        return;
    (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    (void)poll(&wait, 1, (int)MAX(deadline_ms - clock_mono_ms(), 0));
}

/* Kills what is in it, waits for the end, removes it. */
static void end_cgroup(struct cgroup *cg, int64_t deadline_ms, struct err *e)
{
    struct err why = {0};

    for (;;) {
        why.code = 0;
        if (!cgroup_is_empty(cg))
            (void)cgroup_kill(cg, SIGKILL, NULL); /* again: someone may have forked; thaws too */
        if (cgroup_remove(cg, &why) == 0)
            return;
        if (clock_mono_ms() >= deadline_ms)
            break;
        sleep_ms(STEP_MS);
    }
    note(e, &why);
}

static void end_cgroup_at(const char *path, int64_t deadline_ms, struct err *e)
{
    struct cgroup *cg = NULL;
    struct err why = {0};

    if (!path)
        return;
    int r = cgroup_open(path, &cg, &why);
    if (r == -ENOENT)
        return;
    if (r < 0) {
        note(e, &why);
        return;
    }
    end_cgroup(cg, deadline_ms, e);
    cgroup_free(cg);
}

/* The container whose sibling it is may be gone already. */
static void end_sentry_cgroup(const struct state *s, int64_t deadline_ms, struct err *e)
{
    struct cgroup *cg = NULL;

    if (!s->sentry_cgroup_of || cgroup_open_sibling(s->sentry_cgroup_of, SENTRY_SUFFIX, &cg, NULL) < 0)
        return;
    end_cgroup(cg, deadline_ms, e);
    cgroup_free(cg);
}

/* In our own mount namespace, which is the host's; the container's went with its processes. */
static void unmount_rootfs(const char *bundle)
{
    scoped_free char *path = xasprintf("%s/rootfs", bundle);

    for (int layer = 0, tries = 0; layer < LAYERS_MAX;) {
        if (umount2(path, UMOUNT_NOFOLLOW) == 0) {
            layer++;
            continue;
        }
        if (errno != EBUSY)
            return;
        if (++tries >= UMOUNT_TRIES && umount2(path, UMOUNT_NOFOLLOW | MNT_DETACH) < 0)
            return;
        sleep_ms(STEP_MS);
    }
}

/* Mounts below rootfs first: the newest at the end of mountinfo. */
static void unmount_below(const char *bundle)
{
    scoped_free char *text = NULL;
    scoped_free char *real = realpath(bundle, NULL);
    size_t len;

    if (!real || file_read(AT_FDCWD, "/proc/self/mountinfo", 16u << 20, &text, &len, NULL) < 0)
        return;
    scoped_free char *below = xasprintf("%s/rootfs/", real);
    for (char *end = text + len; end > text;) {
        char *line = end - 1;
        while (line > text && line[-1] != '\n')
            line--;
        *(end - 1) = '\0';
        char *field = line;
        for (int i = 0; field && i < 4; i++) {
            field = strchr(field, ' ');
            field = field ? field + 1 : NULL;
        }
        size_t n = field ? strcspn(field, " ") : 0;
        if (field && n > strlen(below) && memcmp(field, below, strlen(below)) == 0) {
            field[n] = '\0';
            (void)umount2(field, UMOUNT_NOFOLLOW | MNT_DETACH);
        }
        end = line;
    }
}

static bool socket_answers(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof addr.sun_path)
        return false;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* EAGAIN: the backlog is full, so somebody listens. */
    return fd >= 0 && (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0 || errno == EAGAIN);
}

/*
 * A killed process closes its sockets, which brought containerd here, before it is gone; and its parent
 * may leave the zombie for long.  A pidfd is readable as soon as the process has ended.  A state file
 * that was cut does not name the shim: then its socket tells.
 */
static bool shim_lives(const struct state *s)
{
    if (s->shim.pid <= 0) {
        bool answers = false;
        for (int ms = 0; ms < DYING_MS && (answers = s->socket && socket_answers(s->socket)); ms += 10)
            sleep_ms(10);
        return answers;
    }
    scoped_fd int fd = state_process_open(&s->shim);
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    return fd >= 0 && poll(&wait, 1, DYING_MS) == 0;
}

static void remove_socket(const char *path)
{
    struct stat st;

    if (path && lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && !socket_answers(path))
        (void)unlink(path);
}

/* The socket's address is in the bundle too. */
static char *socket_of_bundle(const char *bundle)
{
    scoped_free char *path = xasprintf("%s/address", bundle);
    scoped_free char *text = NULL;
    size_t len;

    if (file_read(AT_FDCWD, path, PATH_MAX, &text, &len, NULL) < 0 || strncmp(text, "unix:///", 8) != 0)
        return NULL;
    return xstrdup(text + 7);
}

static bool pod_has_others(const char *ns, const char *pod, const char *id)
{
    char **ids = state_ids(STATE_DIR, ns);
    bool found = false;

    for (size_t i = 0; ids[i] && !found; i++) {
        scoped(state_free) struct state *s = NULL;
        if (strcmp(ids[i], id) != 0 && state_read(STATE_DIR, ns, ids[i], &s, NULL) == 0)
            found = s->pod && strcmp(s->pod, pod) == 0;
    }
    state_ids_free(ids);
    return found;
}

/* What all containers shared; only when their shim is dead and this was the last of them. */
static void end_pod(const struct state *s, int64_t deadline_ms, struct err *e)
{
    struct err why = {0};
    struct stat st;
    int r;

    if (!state_name_is_valid(s->pod))
        return;
    /* A killed process's last reference to the lock may go a moment after the process (delayed fput). */
    while ((r = pod_release(s->pod, STATE_DIR, &why)) == -EBUSY && clock_mono_ms() < deadline_ms)
        sleep_ms(STEP_MS);
    if (r < 0 && r != -ENOENT)
        note(e, &why);
    if (sentry_clean_up(s->pod) < 0)
        log_warn("what the sentry made is not removed", "pod=%s", s->pod);
    remove_socket(s->socket);
    scoped_free char *link = paths_pod_link(STATE_DIR, s->pod);
    (void)unlink(link);
    (void)rmdir(STATE_DIR "/" PODS_DIR);
    if (s->audit && lstat(s->audit, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
        (void)unlink(s->audit);
}

/*
 * What the state file does not say is guessed from config.json, the way Create would decide it, and
 * without that from the names that containerd's own clients use.  Only what exists is touched.
 */
static void fill_from_bundle(struct state *s, const char *ns, const char *id, const char *bundle)
{
    scoped_fd int dir = open(bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct spec *spec = NULL;

    if (!s->socket)
        s->socket = socket_of_bundle(bundle);
    if (s->cgroup && s->pod)
        return;
    bool loaded = dir >= 0 && spec_load(dir, &spec, NULL) == 0;
    const char *group = loaded ? spec_group(spec) : NULL;
    if (!s->cgroup)
        s->cgroup = loaded && spec->cgroups_path && *spec->cgroups_path ? xstrdup(spec->cgroups_path)
                                                                        : xasprintf("/%s/%s", ns, id);
    if (!s->pod)
        s->pod = xstrdup(group && state_name_is_valid(group) ? group : id);
    if (!s->sentry_cgroup_of)
        s->sentry_cgroup_of = xstrdup(s->cgroup);
    if (loaded)
        spec_free(spec);
}

static void end_container(const char *ns, const char *id, const char *bundle, struct state *s,
                          int64_t deadline_ms, struct err *e)
{
    fill_from_bundle(s, ns, id, bundle);
    bool shim_dead = !shim_lives(s);

    /* First of all the sentry of a dead shim: nothing may be served to processes that are to die. */
    if (shim_dead)
        kill_process(&s->sentry, deadline_ms);
    /* Without waiting: a paused container's processes are frozen, and die when end_cgroup() thaws them. */
    kill_process(&s->init, 0);
    bool last = shim_dead && !pod_has_others(ns, s->pod, id);
    if (last)
        end_sentry_cgroup(s, deadline_ms, e);
    end_cgroup_at(s->cgroup, deadline_ms, e);
    kill_process(&s->init, deadline_ms); /* if it was in no cgroup of ours */
    unmount_below(bundle);
    unmount_rootfs(bundle);
    if (last)
        end_pod(s, deadline_ms, e);
    if (!e || !e->code)
        state_remove(STATE_DIR, ns, id);
}

/*
 * The shim of a sandbox is gone: containerd may call for the sandbox alone (task API v3, and v2 shims
 * in 2.0.0 to 2.0.5), so its members go with it.
 */
static void end_members(const char *ns, const char *id, const struct state *sandbox, int64_t deadline_ms,
                        struct err *e)
{
    if (!sandbox->pod || strcmp(sandbox->pod, id) != 0 || shim_lives(sandbox))
        return;
    char **ids = state_ids(STATE_DIR, ns);
    for (size_t i = 0; ids[i]; i++) {
        scoped(state_free) struct state *s = NULL;
        if (strcmp(ids[i], id) == 0 || state_read(STATE_DIR, ns, ids[i], &s, NULL) < 0)
            continue;
        if (s->pod && strcmp(s->pod, id) == 0 && !shim_lives(s) && s->bundle)
            end_container(ns, ids[i], s->bundle, s, deadline_ms, e);
    }
    state_ids_free(ids);
}

int cleanup_bundle(const char *ns, const char *id, const char *bundle, struct cleanup_result *ret,
                   struct err *e)
{
    struct err local = {0};
    struct err *err = e ? e : &local;
    scoped(state_free) struct state *s = NULL;
    int64_t deadline = clock_mono_ms() + DEATH_MS;

    *ret = (struct cleanup_result){.exit_status = 137, .at = clock_wall()};
    if (!state_name_is_valid(ns) || !state_name_is_valid(id))
        return err_set(err, -EINVAL, "namespace and id must be plain names, not \"%.40s\" and \"%.80s\"",
                       ns ? ns : "", id ? id : "");
    if (state_read(STATE_DIR, ns, id, &s, NULL) < 0)
        s = xcalloc(1, sizeof *s);
    ret->pid = (uint32_t)s->init.pid;
    if (s->has_exit) {
        ret->exit_status = s->exit_status;
        ret->at = s->exit_at;
    }
    err->code = 0;
    end_members(ns, id, s, deadline, err);
    end_container(ns, id, bundle, s, deadline, err);
    remove_socket(s->socket);
    return err->code;
}
