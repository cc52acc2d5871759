/* Create: prepare -> (logger ready) -> launch -> adopt -> note -> answer; every failure undoes all of it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/hibernate/hibernate.h"
#include "shim/launcher/pod.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/runtime/state.h"

/* A deep copy of Create.rootfs: the launch may have to wait for a logger. */
struct mounts {
    struct launch_mount *item;
    size_t n;
};

static void mounts_free(struct mounts *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->n; i++) {
        const struct launch_mount *it = &m->item[i];
        char **options = (char **)(uintptr_t)it->options;
        for (size_t k = 0; k < it->n_options; k++)
            free(options[k]);
        free(options);
        free((char *)(uintptr_t)it->type);
        free((char *)(uintptr_t)it->source);
        free((char *)(uintptr_t)it->target);
    }
    free(m->item);
    free(m);
}

static struct mounts *mounts_copy(const struct launch_mount *from, size_t n)
{
    struct mounts *m = xcalloc(1, sizeof *m);

    m->item = xcalloc(n + 1, sizeof *m->item);
    m->n = n;
    for (size_t i = 0; i < n; i++) {
        char **options = xcalloc(from[i].n_options + 1, sizeof *options);
        for (size_t k = 0; k < from[i].n_options; k++)
            options[k] = xstrdup(from[i].options[k]);
        m->item[i] = (struct launch_mount){.type = xstrdup(from[i].type),
                                           .source = xstrdup(from[i].source),
                                           .target = xstrdup(from[i].target),
                                           .options = (const char *const *)options,
                                           .n_options = from[i].n_options};
    }
    return m;
}

static struct container *container_new(struct runtime *rt, const struct rt_create *req)
{
    struct container *c = xcalloc(1, sizeof *c);

    *c = (struct container){.rt = rt,
                            .id = xstrdup(req->id),
                            .bundle = xstrdup(req->bundle),
                            .proc_view_fd = -1,
                            .rootfs = mounts_copy(req->rootfs, req->n_rootfs)};
    list_init(&c->execs);
    process_init(&c->init, c, NULL);
    c->init.state = PS_CREATING;
    c->init.terminal = req->terminal;
    c->init.io_uid = req->io_uid;
    c->init.io_gid = req->io_gid;
    for (int i = 0; i < 3; i++)
        c->init.uri[i] = xstrdup(req->uri[i]);
    return c;
}

static void container_free(struct container *c)
{
    struct source *sources[] = {c->oom_watch, c->sweep_timer, c->hold_timer, c->freeze_timer,
                                c->refreeze_timer};

    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        source_free(sources[i]);
    hibernate_free(c->sleep);
    struct err gone = {0};
    answer_with(&c->resume_answer, fail(&gone, -EIO, "the container is gone"), NULL, &gone);
    LIST_FOREACH(n, &c->execs)
    {
        struct process *p = LIST_ENTRY(n, struct process, node);
        process_done(p);
        free(p);
    }
    process_done(&c->init);
    mounts_free(c->rootfs);
    spec_free(c->spec);
    fd_close(c->proc_view_fd);
    free(c->cgroup_path);
    free(c->bundle);
    free(c->id);
    free(c);
}

void container_drop(struct container *c)
{
    struct runtime *rt = c->rt;
    struct cgroup *cg = take(c->cg);

    if (cg)
        (void)cgroup_kill(cg, SIGKILL, NULL);
    (void)map_remove(rt->containers, c->id);
    source_free(take(c->oom_watch)); /* before the descriptor it watches goes with the cgroup */
    if (cg)
        trash_add(rt, cg, rt->ending ? NULL : c->id);
    container_free(c);
    pod_unneeded(rt);
}

static void create_failed(struct container *c, int r, struct err *e)
{
    struct answer a = c->init.answer;

    c->init.answer.fn = NULL;
    r = fail(e, r, "OCI runtime create failed");
    log_warn("create failed", "id=%s error=%s", c->id, err_text(e));
    pause_abandon(c, "the container could not be created");
    process_signal(&c->init, SIGKILL);
    pending_cancel(&c->init.pending);
    container_drop(c);
    answer_with(&a, r, NULL, e);
}

void create_abort(struct container *c, int code, const char *why)
{
    struct err e = {0};

    err_set(&e, code, "%s", why);
    create_failed(c, code, &e);
}

void runtime_abandon_create(struct runtime *rt, const char *id)
{
    struct container *c = container_find(rt, id);

    if (c && c->init.state == PS_CREATING)
        create_abort(c, -ECANCELED, "the caller has gone");
}

static void on_created(void *data, int r, struct launch_result *result, const struct err *launch_error)
{
    struct process *p = data;
    struct container *c = p->c;
    struct err e = {0};

    pending_remove(&p->pending);
    if (r < 0)
        e = *launch_error;
    else
        r = process_adopt(p, result, &e);
    if (r == 0)
        r = container_note(c, &e);
    if (r < 0) {
        create_failed(c, r, &e);
        return;
    }
    process_step(p, EV_LAUNCHED);
    pod_view_update(c->rt);
    log_info("container created", "id=%s pid=%d pod=%s", c->id, p->pid, c->rt->pod_id);

    const struct rt_create req = {.id = c->id,
                                  .bundle = c->bundle,
                                  .rootfs = c->rootfs->item,
                                  .n_rootfs = c->rootfs->n,
                                  .terminal = p->terminal,
                                  .uri = {p->uri[0], p->uri[1], p->uri[2]}};
    const struct rt_event_info info = {.id = c->id, .process = p->exit, .create = &req};
    c->rt->sink.publish(c->rt->sink.data, RT_CREATED, &info);
    mounts_free(take(c->rootfs));
    answer_with(&p->answer, 0, &p->exit, NULL);
}

static int create_launch(struct container *c, struct err *e)
{
    return process_launch(&c->init, c->rootfs->item, c->rootfs->n, on_created, e);
}

static void on_stdio_ready(void *data, int r, const struct err *stdio_error)
{
    struct process *p = data;
    struct err e = {0};

    if (r < 0)
        e = *stdio_error;
    else
        r = create_launch(p->c, &e);
    if (r < 0)
        create_failed(p->c, r, &e);
}

static int load_spec(struct container *c, struct err *e)
{
    scoped_fd int dir = open(c->bundle, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return err_sys(e, "bundle %s", c->bundle);
    int r = spec_load(dir, &c->spec, e);
    if (r == 0)
        r = spec_check(c->spec, e);
    if (r < 0)
        return r;
    if (!c->spec->has_process)
        return err_set(e, -EINVAL, "config.json: process: is missing");
    c->init.spec = &c->spec->process;
    /* The copy in Create decides; config.json has to agree, or the launcher would make the wrong thing. */
    c->init.spec->terminal = c->init.terminal;
    const struct spec_namespace *pid = &c->spec->ns[SPEC_NS_PID];
    c->private_pid_ns = pid->present && !pid->path;
    c->cgroup_path = c->spec->cgroups_path && *c->spec->cgroups_path ? xstrdup(c->spec->cgroups_path)
                                                                     : xasprintf("/%s/%s", c->rt->ns, c->id);
    return 0;
}

static int create_prepare(struct container *c, struct err *e)
{
    struct runtime *rt = c->rt;

    int r = load_spec(c, e);
    if (r < 0)
        return r;
    /* Noted before anything exists that a clean-up would have to find. */
    if (!rt->pod_id) {
        const char *group = spec_group(c->spec);
        rt->pod_id = xstrdup(group && state_name_is_valid(group) ? group : c->id);
    }
    if (!rt->sentry && !rt->sentry_cg_of)
        rt->sentry_cg_of = xstrdup(c->cgroup_path);
    r = container_note(c, e);
    if (r == 0)
        r = cgroup_create(c->cgroup_path, &c->spec->resources, &c->cg, e);
    if (r < 0)
        return r;
    r = pod_need(rt, c, e);
    if (r < 0)
        return r;
    oom_arm(c);
    quiet_update(rt);
    return process_open_stdio(&c->init, on_stdio_ready, e);
}

static int create_check(struct runtime *rt, const struct rt_create *req, struct err *e)
{
    if (!state_name_is_valid(req->id))
        return err_set(e, -EINVAL, "id: \"%.80s\" is not a valid name", req->id ? req->id : "");
    if (!req->bundle || req->bundle[0] != '/')
        return err_set(e, -EINVAL, "bundle: must be an absolute path");
    if (container_find(rt, req->id))
        return err_set(e, -EEXIST, "container %s: already exists", req->id);
    if (req->checkpoint && *req->checkpoint)
        return err_set(e, -ENOTSUP, "checkpoint: restoring is not supported: not implemented");
    return 0;
}

void runtime_create(struct runtime *rt, const struct rt_create *req, rt_done_fn done, void *data)
{
    struct err e = {0};
    struct answer a = {.fn = done, .data = data};

    int r = create_check(rt, req, &e);
    if (r < 0) {
        answer_with(&a, r, NULL, &e);
        return;
    }
    trash_forget(rt, req->id);
    struct container *c = container_new(rt, req);
    c->init.answer = a;
    (void)map_put(rt->containers, c->id, c);
    r = create_prepare(c, &e);
    if (r == 0)
        r = create_launch(c, &e);
    if (r < 0)
        create_failed(c, r, &e);
}
