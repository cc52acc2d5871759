/*
 * The Task service, containerd.task.v2.Task and v3.Task from one table: the messages are the same.
 * Every method ends in exactly one reply, now or from a callback of the runtime.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runc.pb-c.h"
#include "shim/cgroup/stats.h"
#include "shim/runtime/runtime.h"
#include "shim/service/control.h"
#include "shim/service/pack.h"
#include "shim/service/service.h"
#include "task.pb-c.h"

static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

/* Everything up to the last "/" is a prefix that some clients send. */
static bool is_type(const ProtobufCMessage *any_msg, const char *bare)
{
    const Google__Protobuf__Any *any = (const Google__Protobuf__Any *)(const void *)any_msg;
    const char *slash = any ? strrchr(any->type_url, '/') : NULL;

    return any && strcmp(slash ? slash + 1 : any->type_url, bare) == 0;
}

/* --- answers of the runtime --- */

static void on_empty(void *data, int r, const struct rt_reply *reply UNUSED, const struct err *e)
{
    if (r < 0)
        service_error(data, r, e);
    else
        service_reply(data, NULL);
}

static void on_started(void *data, int r, const struct rt_reply *reply, const struct err *e)
{
    Containerd__Task__V2__StartResponse m;

    if (r < 0) {
        service_error(data, r, e);
        return;
    }
    containerd__task__v2__start_response__init(&m);
    m.pid = reply->pid;
    service_reply(data, &m.base);
}

struct delete_call {
    struct service *s;
    struct ttrpc_call *call;
};

static void reply_deleted(struct ttrpc_call *call, int r, const struct rt_reply *reply, const struct err *e)
{
    Containerd__Task__V2__DeleteResponse m;

    if (r < 0) {
        service_error(call, r, e);
        return;
    }
    Google__Protobuf__Timestamp at = service_time(&reply->at);
    containerd__task__v2__delete_response__init(&m);
    m.pid = reply->pid;
    m.exit_status = reply->status;
    m.exited_at = reply->at.tv_sec ? &at : NULL;
    service_reply(call, &m.base);
}

static void on_deleted(void *data, int r, const struct rt_reply *reply, const struct err *e)
{
    struct delete_call *d = data;
    struct service *s = d->s;

    reply_deleted(d->call, r, reply, e);
    free(d);
    if (s->shutdown_due && runtime_is_empty(s->rt))
        s->shutdown(s->data);
}

/* --- Create --- */

struct create_call {
    struct service *s;
    struct ttrpc_call *call; /* NULL: the caller has gone */
    char *id;
};

static void on_created(void *data, int r, const struct rt_reply *reply, const struct err *e)
{
    struct create_call *cc = data;

    if (cc->call && r < 0) {
        service_error(cc->call, r, e);
    } else if (cc->call) {
        Containerd__Task__V2__CreateTaskResponse m;
        containerd__task__v2__create_task_response__init(&m);
        m.pid = reply->pid;
        service_reply(cc->call, &m.base);
    }
    if (r == 0)
        cc->s->created(cc->s->data);
    free(cc->id);
    free(cc);
}

static void on_create_cancel(void *data)
{
    struct create_call *cc = data;

    cc->call = NULL;
    runtime_abandon_create(cc->s->rt, cc->id); /* answers through on_created */
}

static struct launch_mount *mounts_of(const Containerd__Task__V2__CreateTaskRequest *req)
{
    struct launch_mount *m = xcalloc(req->n_rootfs + 1, sizeof *m);

    for (size_t i = 0; i < req->n_rootfs; i++) {
        const Containerd__Types__Mount *from = req->rootfs[i];
        m[i] = (struct launch_mount){.type = from->type,
                                     .source = from->source,
                                     .target = from->target,
                                     .options = (const char *const *)from->options,
                                     .n_options = from->n_options};
    }
    return m;
}

/* Options of other types, or that cannot be read, change nothing: clients send them to any shim. */
static void read_options(const Google__Protobuf__Any *any, struct rt_create *c)
{
    if (!any || !is_type(&any->base, "containerd.runc.v1.Options"))
        return;
    Containerd__Runc__V1__Options *o =
        containerd__runc__v1__options__unpack(NULL, any->value.len, any->value.data);
    if (!o) {
        log_warn("options of Create cannot be read", "id=%s", c->id);
        return;
    }
    c->io_uid = o->io_uid;
    c->io_gid = o->io_gid;
    containerd__runc__v1__options__free_unpacked(o, NULL);
}

METHOD(Create, containerd__task__v2__create_task_request, Containerd__Task__V2__CreateTaskRequest)
{
    if (s->closing) {
        ttrpc_reply_error(call, TTRPC_UNAVAILABLE, "the shim is shutting down: unavailable");
        return;
    }
    scoped_free struct launch_mount *rootfs = mounts_of(req);
    struct rt_create c = {.id = req->id,
                          .bundle = req->bundle,
                          .rootfs = rootfs,
                          .n_rootfs = req->n_rootfs,
                          .terminal = req->terminal,
                          .uri = {req->stdin, req->stdout, req->stderr},
                          .checkpoint = req->checkpoint};
    read_options(req->options, &c);

    struct create_call *cc = xcalloc(1, sizeof *cc);
    *cc = (struct create_call){.s = s, .call = call, .id = xstrdup(req->id)};
    ttrpc_call_on_cancel(call, on_create_cancel, cc);
    runtime_create(s->rt, &c, on_created, cc);
}

METHOD(Start, containerd__task__v2__start_request, Containerd__Task__V2__StartRequest)
{
    runtime_start(s->rt, req->id, req->exec_id, on_started, call);
}

METHOD(Delete, containerd__task__v2__delete_request, Containerd__Task__V2__DeleteRequest)
{
    struct delete_call *d = xcalloc(1, sizeof *d);

    *d = (struct delete_call){.s = s, .call = call};
    runtime_delete(s->rt, req->id, req->exec_id, on_deleted, d);
}

METHOD(Pause, containerd__task__v2__pause_request, Containerd__Task__V2__PauseRequest)
{
    runtime_pause(s->rt, req->id, on_empty, call);
}

METHOD(Resume, containerd__task__v2__resume_request, Containerd__Task__V2__ResumeRequest)
{
    runtime_resume(s->rt, req->id, on_empty, call);
}

static void reply_result(struct ttrpc_call *call, int r, const struct err *e)
{
    on_empty(call, r, NULL, e);
}

METHOD(Exec, containerd__task__v2__exec_process_request, Containerd__Task__V2__ExecProcessRequest)
{
    struct err e = {0};
    static const char suffix[] = "runtime-spec/1/Process";

    if (!req->spec || strlen(req->spec->type_url) < sizeof suffix - 1 ||
        strcmp(req->spec->type_url + strlen(req->spec->type_url) - (sizeof suffix - 1), suffix) != 0) {
        ttrpc_reply_error(call, TTRPC_INVALID_ARGUMENT,
                          "spec: must be a runtime-spec Process: invalid argument");
        return;
    }
    const struct rt_exec x = {.id = req->id,
                              .exec_id = req->exec_id,
                              .terminal = req->terminal,
                              .uri = {req->stdin, req->stdout, req->stderr},
                              .spec_json = (const char *)req->spec->value.data,
                              .spec_len = req->spec->value.len};
    reply_result(call, runtime_exec(s->rt, &x, &e), &e);
}

METHOD(Kill, containerd__task__v2__kill_request, Containerd__Task__V2__KillRequest)
{
    struct err e = {0};

    reply_result(call,
                 runtime_kill(s->rt, req->id, req->exec_id, req->signal > 1024 ? 1024 : (int)req->signal,
                              req->all, &e),
                 &e);
}

METHOD(ResizePty, containerd__task__v2__resize_pty_request, Containerd__Task__V2__ResizePtyRequest)
{
    struct err e = {0};

    reply_result(call, runtime_resize(s->rt, req->id, req->exec_id, req->width, req->height, &e), &e);
}

METHOD(CloseIO, containerd__task__v2__close_iorequest, Containerd__Task__V2__CloseIORequest)
{
    struct err e = {0};

    /* stdin=false closes nothing, but an unknown process is an error all the same. */
    struct rt_state state;
    int r = req->stdin ? runtime_close_stdin(s->rt, req->id, req->exec_id, &e)
                       : runtime_state(s->rt, req->id, req->exec_id, &state, &e);
    reply_result(call, r, &e);
}

METHOD(Update, containerd__task__v2__update_task_request, Containerd__Task__V2__UpdateTaskRequest)
{
    struct err e = {0};

    if (!req->resources) { /* annotations only: nothing to do */
        struct rt_state state;
        reply_result(call, runtime_state(s->rt, req->id, NULL, &state, &e), &e);
        return;
    }
    reply_result(call,
                 runtime_update(s->rt, req->id, (const char *)req->resources->value.data,
                                req->resources->value.len, &e),
                 &e);
}

/* --- Wait --- */

struct wait_call {
    struct ttrpc_call *call;
    struct rt_waiter *waiter;
};

static void on_waited(void *data, int r, const struct rt_reply *reply, const struct err *e)
{
    struct wait_call *w = data;
    Containerd__Task__V2__WaitResponse m;

    if (r < 0) {
        service_error(w->call, r, e);
    } else {
        Google__Protobuf__Timestamp at = service_time(&reply->at);
        containerd__task__v2__wait_response__init(&m);
        m.exit_status = reply->status;
        m.exited_at = &at;
        service_reply(w->call, &m.base);
    }
    free(w);
}

static void on_wait_cancel(void *data)
{
    struct wait_call *w = data;

    runtime_wait_cancel(w->waiter);
    free(w);
}

METHOD(Wait, containerd__task__v2__wait_request, Containerd__Task__V2__WaitRequest)
{
    struct err e = {0};
    struct wait_call *w = xcalloc(1, sizeof *w);

    w->call = call;
    int r = runtime_wait(s->rt, req->id, req->exec_id, on_waited, w, &w->waiter, &e);
    if (r < 0) {
        service_error(call, r, &e);
        free(w);
        return;
    }
    ttrpc_call_on_cancel(call, on_wait_cancel, w);
}

/* --- State, Pids, Stats, Connect, Shutdown --- */

static const Containerd__Types__Status wire_status[PS_STATES] = {
    [PS_CREATED] = CONTAINERD__TYPES__STATUS__CREATED,  [PS_STARTING] = CONTAINERD__TYPES__STATUS__CREATED,
    [PS_RUNNING] = CONTAINERD__TYPES__STATUS__RUNNING,  [PS_PAUSING] = CONTAINERD__TYPES__STATUS__PAUSING,
    [PS_PAUSED] = CONTAINERD__TYPES__STATUS__PAUSED,    [PS_STOPPED] = CONTAINERD__TYPES__STATUS__STOPPED,
    [PS_DELETING] = CONTAINERD__TYPES__STATUS__STOPPED,
};

METHOD(State, containerd__task__v2__state_request, Containerd__Task__V2__StateRequest)
{
    struct err e = {0};
    struct rt_state st;
    Containerd__Task__V2__StateResponse m;

    int r = runtime_state(s->rt, req->id, req->exec_id, &st, &e);
    if (r < 0) {
        service_error(call, r, &e);
        return;
    }
    Google__Protobuf__Timestamp at = service_time(&st.process.at);
    containerd__task__v2__state_response__init(&m);
    m.id = text(st.exec_id ? st.exec_id : st.id);
    m.bundle = text(st.bundle);
    m.pid = st.process.pid;
    m.status = wire_status[st.state];
    m.stdin = text(st.uri[0]);
    m.stdout = text(st.uri[1]);
    m.stderr = text(st.uri[2]);
    m.terminal = st.terminal;
    m.exit_status = st.process.status;
    m.exited_at = st.process.at.tv_sec ? &at : NULL;
    m.exec_id = text(st.exec_id);
    service_reply(call, &m.base);
}

/* ProcessInfo.info of an exec process; the caller frees value.data. */
static void details_of(const char *exec_id, Google__Protobuf__Any *any)
{
    Containerd__Runc__V1__ProcessDetails d;

    containerd__runc__v1__process_details__init(&d);
    d.exec_id = text(exec_id);
    google__protobuf__any__init(any);
    any->type_url = text("containerd.runc.v1.ProcessDetails");
    any->value.data = service_pack(&d.base, &any->value.len);
}

METHOD(Pids, containerd__task__v2__pids_request, Containerd__Task__V2__PidsRequest)
{
    struct err e = {0};
    scoped_free struct rt_pid *pids = NULL;
    size_t n = 0;
    Containerd__Task__V2__PidsResponse m;

    int r = runtime_pids(s->rt, req->id, &pids, &n, &e);
    if (r < 0) {
        service_error(call, r, &e);
        return;
    }
    scoped_free Containerd__Types__ProcessInfo *info = xcalloc(n + 1, sizeof *info);
    scoped_free Containerd__Types__ProcessInfo **list = xcalloc(n + 1, sizeof *list);
    scoped_free Google__Protobuf__Any *any = xcalloc(n + 1, sizeof *any);
    for (size_t i = 0; i < n; i++) {
        containerd__types__process_info__init(&info[i]);
        info[i].pid = (uint32_t)pids[i].pid;
        if (pids[i].exec_id) {
            details_of(pids[i].exec_id, &any[i]);
            info[i].info = &any[i];
        }
        list[i] = &info[i];
    }
    containerd__task__v2__pids_response__init(&m);
    m.processes = list;
    m.n_processes = n;
    service_reply(call, &m.base);
    for (size_t i = 0; i < n; i++)
        free(any[i].value.data);
}

METHOD(Stats, containerd__task__v2__stats_request, Containerd__Task__V2__StatsRequest)
{
    struct err e = {0};
    struct cgroup_stats stats = {0};
    Containerd__Task__V2__StatsResponse m;
    Google__Protobuf__Any any;
    const char *type;

    int r = runtime_stats(s->rt, req->id, &stats, &e);
    if (r < 0) {
        cgroup_stats_done(&stats);
        service_error(call, r, &e);
        return;
    }
    google__protobuf__any__init(&any);
    any.value.data = pack_stats(&stats, &type, &any.value.len);
    any.type_url = text(type);
    containerd__task__v2__stats_response__init(&m);
    m.stats = &any;
    service_reply(call, &m.base);
    free(any.value.data);
    cgroup_stats_done(&stats);
}

METHOD(Connect, containerd__task__v2__connect_request, Containerd__Task__V2__ConnectRequest)
{
    Containerd__Task__V2__ConnectResponse m;

    /* Unknown ids too: containerd connects before it creates. */
    containerd__task__v2__connect_response__init(&m);
    m.shim_pid = (uint32_t)getpid();
    m.task_pid = (uint32_t)runtime_init_pid(s->rt, req->id);
    service_reply(call, &m.base);
}

METHOD(Shutdown, containerd__task__v2__shutdown_request, Containerd__Task__V2__ShutdownRequest)
{
    service_reply(call, NULL);
    if (runtime_is_empty(s->rt))
        s->shutdown(s->data);
    else if (runtime_is_leaving(s->rt))
        /* The Delete's caller was killed; the next containerd only says this, once, and forgets us. */
        s->shutdown_due = true;
}

METHOD(Checkpoint, containerd__task__v2__checkpoint_task_request, Containerd__Task__V2__CheckpointTaskRequest)
{
    ttrpc_reply_error(call, TTRPC_UNIMPLEMENTED, "Checkpoint is not supported: not implemented");
}

#define TASK(name)                                                                                           \
    {"containerd.task.v2.Task", #name, on_##name},                                                           \
    {                                                                                                        \
        "containerd.task.v3.Task", #name, on_##name                                                          \
    }
const struct ttrpc_method service_methods[] = {
    TASK(State),
    TASK(Create),
    TASK(Start),
    TASK(Delete),
    TASK(Pids),
    TASK(Pause),
    TASK(Resume),
    TASK(Checkpoint),
    TASK(Kill),
    TASK(Exec),
    TASK(ResizePty),
    TASK(CloseIO),
    TASK(Update),
    TASK(Wait),
    TASK(Stats),
    TASK(Connect),
    TASK(Shutdown),
    {"glovebox.shim.v1.Control", "Pause", control_pause},
    {"glovebox.shim.v1.Control", "Resume", control_resume},
    {"glovebox.shim.v1.Control", "Status", control_status},
    {"glovebox.shim.v1.Control", "SetEgress", control_set_egress},
};
const size_t service_n_methods = ARRAY_LEN(service_methods);
