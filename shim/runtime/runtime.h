#pragma once
/*
 * The containers of one pod and everything that happens to them.  No ttrpc here: a call comes in as
 * plain data and is answered through a function, at once or later from the loop; nothing blocks.
 *
 * Codes given to callers: -ENOENT unknown id, -ESRCH already finished, -EEXIST, -EINVAL bad request,
 * -EPERM refused by design, -EBUSY a precondition fails, -EBADFD wrong state, -ENOTSUP, -ECANCELED,
 * -ETIMEDOUT, and -EIO for everything else that went wrong on the way; the text says what.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/err.h"
#include "base/scoped.h"
#include "shim/launcher/launch.h"
#include "shim/runtime/fsm.h"

struct loop;
struct runtime;
struct rt_waiter;
struct cgroup_stats;

struct rt_reply {
    uint32_t pid;
    uint32_t status; /* exit status, 0-255 */
    struct timespec at;
};
/* Called exactly once per call.  reply is set when r == 0. */
typedef void (*rt_done_fn)(void *data, int r, const struct rt_reply *reply, const struct err *e);

struct rt_create {
    const char *id, *bundle;
    const struct launch_mount *rootfs;
    size_t n_rootfs;
    bool terminal;
    const char *uri[3];
    const char *checkpoint;
    uint32_t io_uid, io_gid; /* owner of the stdio pipes; 0:0 = the process's own ids */
};
struct rt_exec {
    const char *id, *exec_id;
    bool terminal;
    const char *uri[3];
    const char *spec_json; /* OCI Process */
    size_t spec_len;
};

/* What the world is told, in the order of 5.2 of the shim protocol. */
enum rt_event {
    RT_CREATED,
    RT_STARTED,
    RT_EXEC_ADDED,
    RT_EXEC_STARTED,
    RT_OOM,
    RT_EXITED,
    RT_DELETED,
    RT_PAUSED,
    RT_RESUMED
};
struct rt_event_info {
    const char *id;      /* of the container */
    const char *exec_id; /* NULL for its init */
    struct rt_reply process;
    const struct rt_create *create; /* RT_CREATED only */
};
struct rt_sink {
    void (*publish)(void *data, enum rt_event event,
                    const struct rt_event_info *info); /* must not call back */
    void *data;
};

struct rt_params {
    struct loop *loop;
    const char *ns;
    const char *id;          /* of the container that started the shim */
    const char *state_dir;   /* "/run/glovebox" */
    const char *audit_dir;   /* "/var/log/glovebox", NULL = no audit file */
    const char *socket_path; /* noted for the clean-up after a killed shim */
    bool debug;
    struct rt_sink sink;
};
int runtime_new(const struct rt_params *p, struct runtime **ret, struct err *e);
/* Kills what still runs; for the end of the process. */
void runtime_free(struct runtime *rt);

void runtime_create(struct runtime *rt, const struct rt_create *req, rt_done_fn done, void *data);
/* The caller of Create has gone: tear it down if it is not finished. */
void runtime_abandon_create(struct runtime *rt, const char *id);
void runtime_start(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data);
void runtime_delete(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data);
void runtime_pause(struct runtime *rt, const char *id, rt_done_fn done, void *data);
void runtime_resume(struct runtime *rt, const char *id, rt_done_fn done, void *data);
int runtime_exec(struct runtime *rt, const struct rt_exec *req, struct err *e);
int runtime_kill(struct runtime *rt, const char *id, const char *exec_id, int signal, bool all,
                 struct err *e);
int runtime_resize(struct runtime *rt, const char *id, const char *exec_id, unsigned width, unsigned height,
                   struct err *e);
int runtime_close_stdin(struct runtime *rt, const char *id, const char *exec_id, struct err *e);
/* json: OCI LinuxResources; only the fields that are present change. */
int runtime_update(struct runtime *rt, const char *id, const char *json, size_t len, struct err *e);
int runtime_stats(struct runtime *rt, const char *id, struct cgroup_stats *out, struct err *e);

/* 0: done() is called when the process ends (never from inside); *ret may be cancelled until then. */
int runtime_wait(struct runtime *rt, const char *id, const char *exec_id, rt_done_fn done, void *data,
                 struct rt_waiter **ret, struct err *e);
void runtime_wait_cancel(struct rt_waiter *w);

struct rt_state { /* strings belong to the runtime and live until the next call */
    const char *id, *exec_id, *bundle;
    const char *uri[3];
    bool terminal;
    enum proc_state state;
    struct rt_reply process;
};
int runtime_state(struct runtime *rt, const char *id, const char *exec_id, struct rt_state *ret,
                  struct err *e);

struct rt_pid {
    pid_t pid;
    const char *exec_id; /* of a known exec process, else NULL */
};
int runtime_pids(struct runtime *rt, const char *id, struct rt_pid **ret, size_t *ret_n, struct err *e);
pid_t runtime_init_pid(struct runtime *rt, const char *id); /* 0: unknown id */
bool runtime_is_empty(const struct runtime *rt);            /* no container is left */
bool runtime_is_leaving(const struct runtime *rt);          /* those that are left are being deleted */
bool runtime_is_clean(const struct runtime *rt);            /* nothing waits to be removed either */
bool runtime_all_ended(const struct runtime *rt);           /* the exits of all containers are told */
void runtime_kill_all(struct runtime *rt);                  /* the shim is told to end */

/* The whole pod, for the node agent.  Containers that do not run are left as they are. */
void runtime_pause_pod(struct runtime *rt, rt_done_fn done, void *data);
void runtime_resume_pod(struct runtime *rt, rt_done_fn done, void *data);
const char *runtime_pod_id(const struct runtime *rt); /* NULL before the first Create */
/* Iterate: start with *cursor = 0; 0 at the end. */
struct rt_pod_item {
    const char *id;
    enum proc_state state;
    pid_t pid;
    struct timespec paused_at; /* 0 = not paused */
};
int runtime_pod_next(struct runtime *rt, size_t *cursor, struct rt_pod_item *ret);
pid_t runtime_sentry_pid(const struct runtime *rt); /* 0 = none */
struct sentry_count;
size_t runtime_refused(const struct runtime *rt, struct sentry_count *out,
                       size_t max); /* as sentry_refused() */
const char *
runtime_broken(const struct runtime *rt); /* why the pod cannot run anything any more; NULL = it can */
/*
 * The pod's egress policy as JSON (shim/egress/policy.h), NULL = none any more; -EINVAL: it is not one, and
 * the old one stays.  confirm: the lease of the present one starts anew.
 */
int runtime_set_egress(struct runtime *rt, const char *json, size_t len, struct err *e);
int runtime_confirm_egress(struct runtime *rt, struct err *e);
/* State and exits in the log, for SIGUSR1. */
void runtime_dump(struct runtime *rt);

SCOPED_DEFINE(struct runtime, runtime_free)
