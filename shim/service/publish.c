/* Runtime events as containerd's task events: one row per event names topic, message and packer. */
#include <stdlib.h>

#include "base/alloc.h"
#include "events.pb-c.h"
#include "shim/runtime/runtime.h"
#include "shim/service/service.h"
#include "shim/ttrpc/events.h"

static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

/* The generated structs want char *, and do not write. */
#define PACK(name, type, lower, ...)                                                                         \
    static uint8_t *name(const struct rt_event_info *i, size_t *ret_len)                                     \
    {                                                                                                        \
        Google__Protobuf__Timestamp at = service_time(&i->process.at);                                       \
        Containerd__Events__##type m;                                                                        \
        containerd__events__##lower##__init(&m);                                                             \
        (void)at;                                                                                            \
        m.container_id = text(i->id);                                                                        \
        __VA_ARGS__                                                                                          \
        return service_pack(&m.base, ret_len);                                                               \
    }

PACK(pack_start, TaskStart, task_start, m.pid = i->process.pid;)
PACK(pack_exec_added, TaskExecAdded, task_exec_added, m.exec_id = text(i->exec_id);)
PACK(pack_exec_started, TaskExecStarted, task_exec_started, m.exec_id = text(i->exec_id);
     m.pid = i->process.pid;)
PACK(pack_oom, TaskOOM, task_oom, )
PACK(pack_exit, TaskExit, task_exit, m.id = text(i->exec_id ? i->exec_id : i->id); m.pid = i->process.pid;
     m.exit_status = i->process.status; m.exited_at = &at;)
PACK(pack_delete, TaskDelete, task_delete, m.pid = i->process.pid; m.exit_status = i->process.status;
     m.exited_at = &at;)
PACK(pack_paused, TaskPaused, task_paused, )
PACK(pack_resumed, TaskResumed, task_resumed, )

static uint8_t *pack_create(const struct rt_event_info *i, size_t *ret_len)
{
    const struct rt_create *c = i->create;
    Containerd__Events__TaskCreate m;
    Containerd__Events__TaskIO io;
    scoped_free Containerd__Types__Mount *mounts = xcalloc(c->n_rootfs + 1, sizeof *mounts);
    scoped_free Containerd__Types__Mount **list = xcalloc(c->n_rootfs + 1, sizeof *list);

    containerd__events__task_create__init(&m);
    containerd__events__task_io__init(&io);
    for (size_t k = 0; k < c->n_rootfs; k++) {
        containerd__types__mount__init(&mounts[k]);
        mounts[k].type = text(c->rootfs[k].type);
        mounts[k].source = text(c->rootfs[k].source);
        mounts[k].target = text(c->rootfs[k].target);
        mounts[k].options = (char **)(uintptr_t)c->rootfs[k].options;
        mounts[k].n_options = c->rootfs[k].n_options;
        list[k] = &mounts[k];
    }
    io.stdin = text(c->uri[0]);
    io.stdout = text(c->uri[1]);
    io.stderr = text(c->uri[2]);
    io.terminal = c->terminal;
    m.container_id = text(i->id);
    m.bundle = text(c->bundle);
    m.rootfs = list;
    m.n_rootfs = c->n_rootfs;
    m.io = &io;
    m.checkpoint = text(c->checkpoint);
    m.pid = i->process.pid;
    return service_pack(&m.base, ret_len);
}

static const struct {
    const char *topic, *type;
    uint8_t *(*pack)(const struct rt_event_info *info, size_t *ret_len);
} rows[] = {
    [RT_CREATED] = {"/tasks/create", "containerd.events.TaskCreate", pack_create},
    [RT_STARTED] = {"/tasks/start", "containerd.events.TaskStart", pack_start},
    [RT_EXEC_ADDED] = {"/tasks/exec-added", "containerd.events.TaskExecAdded", pack_exec_added},
    [RT_EXEC_STARTED] = {"/tasks/exec-started", "containerd.events.TaskExecStarted", pack_exec_started},
    [RT_OOM] = {"/tasks/oom", "containerd.events.TaskOOM", pack_oom},
    [RT_EXITED] = {"/tasks/exit", "containerd.events.TaskExit", pack_exit},
    [RT_DELETED] = {"/tasks/delete", "containerd.events.TaskDelete", pack_delete},
    [RT_PAUSED] = {"/tasks/paused", "containerd.events.TaskPaused", pack_paused},
    [RT_RESUMED] = {"/tasks/resumed", "containerd.events.TaskResumed", pack_resumed},
};

void service_publish(void *data, enum rt_event event, const struct rt_event_info *info)
{
    struct service *s = data;
    size_t len;
    scoped_free uint8_t *buf = rows[event].pack(info, &len);

    events_publish(s->events, rows[event].topic, rows[event].type, buf, len);
}
