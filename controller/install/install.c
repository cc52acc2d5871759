#include "controller/install/install.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/scoped.h"
#include "controller/cli/flags.h"
#include "controller/install/containerd.h"
#include "controller/install/kernel.h"
#include "controller/kube/api.h"
#include "controller/kube/kubeconfig.h"
#include "controller/sandbox/names.h"

#define SHIM_NAME    "containerd-shim-glovebox-v1"
#define SHIM_MAX     (64u << 20)
#define CONFIG_MAX   (1u << 20)
#define DROP_IN      "etc/containerd/conf.d/glovebox.toml"
#define RESTART_OWED "run/glovebox/containerd-restart-owed"

struct options {
    const char *host, *shim, *bin_dir, *config, *handler, *restart, *node, *kubeconfig;
    bool no_label, runtime_path;
};

#define O(member) offsetof(struct options, member)
static const struct flag flags[] = {
    {"host", FLAG_STRING, O(host), "where the node's root is mounted (/host)"},
    {"shim", FLAG_STRING, O(shim), "the shim to install (/usr/local/bin/" SHIM_NAME ")"},
    {"bin-dir", FLAG_STRING, O(bin_dir), "folder on the node for it (/usr/local/bin)"},
    {"runtime-path", FLAG_BOOL, O(runtime_path),
     "name the shim by its path: bin-dir is not on containerd's PATH (false)"},
    {"containerd-config", FLAG_STRING, O(config),
     "containerd's configuration on the node (/etc/containerd/config.toml)"},
    {"handler", FLAG_STRING, O(handler), "name of the runtime (" RUNTIME_HANDLER ")"},
    {"restart-command", FLAG_STRING, O(restart),
     "run on the node when something changed (systemctl restart containerd)"},
    {"node", FLAG_STRING, O(node), "name of this node's Node object ($NODE_NAME)"},
    {"kubeconfig", FLAG_STRING, O(kubeconfig), "file that says where the API server is; not needed in a pod"},
    {"no-label", FLAG_BOOL, O(no_label), "leave the Node object alone (false)"},
    {NULL, FLAG_STRING, 0, NULL},
};

static const struct options defaults = {
    .host = "/host",
    .shim = "/usr/local/bin/" SHIM_NAME,
    .bin_dir = "/usr/local/bin",
    .config = "/etc/containerd/config.toml",
    .handler = RUNTIME_HANDLER,
    .restart = "systemctl restart containerd",
};

static const char *relative(const char *path)
{
    return path + strspn(path, "/");
}

/* ---- files on the node ---- */

/* *ret NULL when there is no such file. */
static int read_if_there(int host, const char *path, size_t max, char **ret, size_t *ret_len, struct err *e)
{
    if (faccessat(host, relative(path), F_OK, 0) < 0) {
        *ret = NULL;
        return 0;
    }
    return file_read(host, relative(path), max, ret, ret_len, e);
}

static int make_folder_of(int host, const char *path, struct err *e)
{
    scoped_free char *copy = xstrdup(relative(path));

    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(host, copy, 0755) < 0 && errno != EEXIST)
            return err_sys(e, "make folder /%s", copy);
        *slash = '/';
    }
    return 0;
}

/* 1: it was there already.  A new file beside the old one, then a rename: shims that start meanwhile get
 * one or the other, and running ones keep the file they have. */
static int install_shim(int host, const struct options *o, struct err *e)
{
    scoped_free char *to = xasprintf("%s/" SHIM_NAME, relative(o->bin_dir));
    scoped_free char *tmp = xasprintf("%s.new", to);
    scoped_free char *want = NULL, *have = NULL;
    size_t want_len = 0, have_len = 0;
    int r = file_read(AT_FDCWD, o->shim, SHIM_MAX, &want, &want_len, e);

    if (r < 0)
        return err_wrap(e, r, "--shim %s", o->shim);
    r = read_if_there(host, to, SHIM_MAX, &have, &have_len, NULL);
    if (r == 0 && have && have_len == want_len && memcmp(have, want, want_len) == 0)
        return 1;
    if ((r = make_folder_of(host, to, e)) < 0)
        return r;
    (void)unlinkat(host, tmp, 0);
    scoped_fd int fd = openat(host, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0755);
    if (fd < 0)
        return err_sys(e, "create /%s", tmp);
    r = fd_write_all(fd, want, want_len);
    if (r < 0 || fsync(fd) < 0)
        return err_set(e, r < 0 ? r : -errno, "write /%s", tmp);
    return renameat(host, tmp, host, to) < 0 ? err_sys(e, "rename /%s", tmp) : 0;
}

static int keep_backup(int host, const struct options *o, const char *text, struct err *e)
{
    scoped_free char *backup = xasprintf("%s.before-glovebox", relative(o->config));

    if (!text || faccessat(host, backup, F_OK, 0) == 0)
        return 0;
    return file_replace(host, backup, text, 0600, e);
}

/* A restart that was needed and failed is tried again by the next run, although the files are right by then.
 * /run is empty after a boot, and then containerd has read them. */
static bool restart_is_owed(int host)
{
    return faccessat(host, RESTART_OWED, F_OK, 0) == 0;
}

static void owe_restart(int host)
{
    (void)mkdirat(host, "run", 0755);
    (void)mkdirat(host, "run/glovebox", 0711);
    scoped_fd int fd = openat(host, RESTART_OWED, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    (void)fd;
}

/* *ret_changed: containerd has to read it again. */
static int write_config(int host, const struct options *o, const char *before,
                        const struct containerd_plan *p, bool *ret_changed, struct err *e)
{
    int r = 0;

    *ret_changed = p->config || p->drop_in;
    if (*ret_changed)
        owe_restart(host);
    if (p->config && (r = keep_backup(host, o, before, e)) == 0 &&
        (r = make_folder_of(host, o->config, e)) == 0)
        r = file_replace(host, relative(o->config), p->config, 0644, e);
    if (r < 0)
        return r;
    if (p->drop_in && *p->drop_in) {
        if ((r = make_folder_of(host, DROP_IN, e)) == 0)
            r = file_replace(host, DROP_IN, p->drop_in, 0644, e);
    } else if (p->drop_in && unlinkat(host, DROP_IN, 0) < 0 && errno != ENOENT) {
        r = err_sys(e, "remove /" DROP_IN);
    }
    return r;
}

/* ---- containerd ---- */

/* Never returns. */
static void exec_on_node(int host, int mount_ns, const char *command)
{
    /* In the node's own mount namespace: systemctl refuses to work in what looks like a chroot. */
    bool there = mount_ns >= 0 ? setns(mount_ns, CLONE_NEWNS) == 0 : fchdir(host) == 0 && chroot(".") == 0;

    if (there && chdir("/") == 0)
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int wait_status(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 126;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* With the node's files, so that its service manager's client finds its socket.  (The node's processes stay
 * invisible: a PID namespace can only be joined downwards.)  Containers go on while containerd restarts. */
static int run_on_node(int host, const char *command, struct err *e)
{
    scoped_fd int mount_ns = openat(host, "proc/1/ns/mnt", O_RDONLY | O_CLOEXEC);
    pid_t pid = fork();

    if (pid < 0)
        return err_sys(e, "fork");
    if (pid == 0)
        exec_on_node(host, mount_ns, command);
    int status = wait_status(pid);
    return status == 0 ? 0 : err_set(e, -EIO, "on the node \"%s\" ended with status %d", command, status);
}

static int restart(int host, const struct options *o, struct err *e)
{
    int r = *o->restart ? run_on_node(host, o->restart, e) : 0;

    if (r == 0)
        (void)unlinkat(host, RESTART_OWED, 0);
    return r;
}

/* ---- the Node object ---- */

static const struct kube_resource nodes = {"", "v1", "nodes", "Node", true};

struct call {
    struct loop *loop;
    int code;
    char text[256];
};

static void on_answer(void *data, const struct kube_result *r)
{
    struct call *c = data;

    c->code = r->code;
    (void)snprintf(c->text, sizeof c->text, "%s", r->message);
    loop_quit(c->loop);
}

static int patch_node(const struct options *o, json_t *body, struct err *e)
{
    struct call c = {.code = -EIO};
    struct kube_config *config;
    struct kube *kube;
    int r = loop_new(&c.loop, e);

    if (r == 0 && (r = kube_config_find(o->kubeconfig, &config, e)) == 0 &&
        (r = kube_new(c.loop, config, &kube, e)) == 0) {
        kube_call(kube,
                  &(struct kube_request){
                      .verb = KUBE_MERGE_PATCH, .resource = &nodes, .name = o->node, .body = body},
                  on_answer, &c);
        r = loop_run(c.loop, e);
        kube_free(kube);
        if (r == 0 && c.code < 0)
            r = err_set(e, c.code, "%s", c.text);
    }
    loop_free(c.loop);
    json_decref(body);
    return r < 0 ? err_wrap(e, r, "label node %s", o->node) : 0;
}

/* missing NULL: the label and the note go. */
static int label_node(const struct options *o, bool ready, const char *missing, struct err *e)
{
    if (o->no_label || !o->node || !*o->node)
        return 0;
    return patch_node(o,
                      json_pack("{s{s{so} s{so}}}", "metadata", "labels", NODE_READY,
                                ready ? json_string("true") : json_null(), "annotations", NODE_MISSING,
                                missing && *missing ? json_string(missing) : json_null()),
                      e);
}

/* ---- commands ---- */

static int read_files(int host, const struct options *o, char **config, char **drop_in, struct err *e)
{
    int r = read_if_there(host, o->config, CONFIG_MAX, config, NULL, e);

    return r < 0 ? r : read_if_there(host, DROP_IN, CONFIG_MAX, drop_in, NULL, e);
}

static int install(const struct options *o, int host, struct err *e)
{
    scoped_free char *before = NULL, *drop_in = NULL, *path = NULL;
    struct containerd_plan plan = {NULL, NULL};
    char missing[512];
    bool changed = false;

    kernel_missing(missing, sizeof missing);
    if (missing[0]) {
        log_warn("the node cannot run glovebox", "missing=%s", missing);
        return label_node(o, false, missing, e);
    }
    int shim = install_shim(host, o, e);
    if (shim < 0)
        return shim;
    int r = read_files(host, o, &before, &drop_in, e);
    if (o->runtime_path)
        path = xasprintf("%s/" SHIM_NAME, o->bin_dir);
    if (r == 0)
        r = containerd_add(before, drop_in, o->handler, path, &plan, e);
    if (r == 0)
        r = write_config(host, o, before, &plan, &changed, e);
    containerd_plan_done(&plan);
    changed = changed || restart_is_owed(host);
    if (r == 0 && changed)
        r = restart(host, o, e);
    if (r == 0)
        r = label_node(o, true, NULL, e);
    if (r == 0)
        log_info("installed", "shim=%s config=%s", shim == 1 ? "already there" : "written",
                 changed ? "written, containerd restarted" : "already right");
    return r;
}

/* What only we made goes, too: the backup of a file that is again as it was, or a file of one line. */
static void tidy_config(int host, const struct options *o)
{
    scoped_free char *path = xasprintf("%s.before-glovebox", relative(o->config)), *now = NULL, *old = NULL;

    if (read_if_there(host, o->config, CONFIG_MAX, &now, NULL, NULL) < 0 || !now)
        return;
    if (read_if_there(host, path, CONFIG_MAX, &old, NULL, NULL) == 0 && old && strcmp(old, now) == 0)
        (void)unlinkat(host, path, 0);
    else if (!old && strcmp(now, CONTAINERD_EMPTY) == 0)
        (void)unlinkat(host, relative(o->config), 0);
}

/* The shim stays while pods use it: containerd needs the file to end them. */
static bool pods_are_left(int host)
{
    scoped_fd int fd = openat(host, "run/glovebox/pods", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink > 2;
}

static int uninstall(const struct options *o, int host, struct err *e)
{
    scoped_free char *before = NULL, *drop_in = NULL;
    scoped_free char *shim = xasprintf("%s/" SHIM_NAME, relative(o->bin_dir));
    struct containerd_plan plan = {NULL, NULL};
    bool changed = false, left = pods_are_left(host);
    int r = label_node(o, false, NULL, e);

    if (r == 0)
        r = read_files(host, o, &before, &drop_in, e);
    if (r == 0)
        r = containerd_remove(before, drop_in, &plan, e);
    if (r == 0)
        r = write_config(host, o, NULL, &plan, &changed, e);
    containerd_plan_done(&plan);
    if (r == 0 && changed)
        tidy_config(host, o);
    changed = changed || restart_is_owed(host);
    if (r == 0 && changed)
        r = restart(host, o, e);
    if (r == 0 && !left && unlinkat(host, shim, 0) < 0 && errno != ENOENT)
        r = err_sys(e, "remove /%s", shim);
    if (r == 0)
        log_info("uninstalled", "shim=%s config=%s", left ? "kept, pods still run with it" : "removed",
                 changed ? "restored, containerd restarted" : "had no entry");
    return r;
}

static int command_main(int argc, char **argv, const char *name,
                        int (*fn)(const struct options *, int, struct err *))
{
    struct options o = defaults;
    struct err e = {0};
    int r = flags_parse(flags, argc, argv, &o, &e);

    if (r == 1) {
        scoped_free char *usage = xasprintf("glovebox-controller %s [flags]", name);
        flags_print(flags, usage);
        return 0;
    }
    log_init(STDERR_FILENO, LOG_INFO);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!o.node)
        o.node = getenv("NODE_NAME");
    scoped_fd int host = r < 0 ? -1 : open(o.host, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (r == 0 && host < 0)
        r = err_sys(&e, "--host %s", o.host);
    if (r == 0)
        r = fn(&o, host, &e);
    if (r < 0)
        (void)fprintf(stderr, "glovebox-controller %s: %s\n", name, err_text(&e));
    return r < 0;
}

int install_main(int argc, char **argv)
{
    return command_main(argc, argv, "install", install);
}

int uninstall_main(int argc, char **argv)
{
    return command_main(argc, argv, "uninstall", uninstall);
}
