#pragma once
/*
 * What the files of this folder share.  A process is an init or an exec; a container has one init and
 * any number of execs; the runtime has the containers, and with the first of them the pod: namespaces,
 * id range and sentry.
 */
#include "base/list.h"
#include "shim/runtime/reaper.h"
#include "shim/runtime/runtime.h"
#include "shim/runtime/stdio.h"

struct cgroup;
struct container;
struct hibernate;
struct map;
struct pod;
struct sentry;
struct source;
struct spec;
struct spec_process;

/* A launch that runs; while one does, exits of unknown pids are kept. */
struct pending {
    struct list node; /* runtime.launches */
    struct launch *launch;
};

/* Who waits for the call in progress; fn NULL = nobody. */
struct answer {
    rt_done_fn fn;
    void *data;
};

struct process {
    struct list node; /* container.execs */
    struct container *c;
    char *exec_id; /* NULL = init */
    enum proc_state state;
    struct spec_process *spec; /* exec: owned; init: belongs to the container's spec */
    bool terminal;
    char *uri[3];
    uint32_t io_uid, io_gid;
    struct stdio *io;
    pid_t pid;
    int pidfd, sync_fd;
    struct reaper_watch *watch;
    struct pending pending;
    struct answer answer; /* Create, Start or Delete: never two at once, the state forbids it */
    struct list waiters;
    bool reaped; /* the exit is known, perhaps not told yet */
    bool exit_told;
    bool close_stdin; /* CloseIO before there was anything to close */
    bool has_size;
    unsigned width, height;
    int pending_signal;     /* Kill while the launch ran */
    bool deleting;          /* Delete came before the start: it goes on when the process is dead */
    struct rt_reply exit;   /* pid, status, time */
    struct err start_error; /* Start has failed and waits for the process's end */
};

struct rt_waiter {
    struct list node; /* process.waiters */
    struct answer answer;
    struct rt_reply reply;
    struct source *later; /* the process had ended when Wait came */
};

struct container {
    struct runtime *rt;
    char *id, *bundle;
    struct spec *spec;
    struct cgroup *cg;
    char *cgroup_path;
    struct mounts *rootfs; /* until Create is answered */
    struct process init;
    struct list execs;
    bool private_pid_ns;
    int proc_view_fd; /* synthetic /proc files, -1 = none */
    uint64_t oom_told;
    struct source *oom_watch;
    struct source *sweep_timer; /* kills what is left in the cgroup after init's end */
    int sweeps;
    struct source *hold_timer; /* bounds how long init's exit waits for those of its execs */
    bool hold_over;
    bool exiting; /* its execs are being failed, see exit.c */
    struct source *freeze_timer;
    int64_t freeze_deadline_ms;
    bool freezing;
    struct answer pause_answer;
    struct timespec paused_at;
    struct source *refreeze_timer;
    bool pod_pause;          /* Pause came for the whole pod */
    bool stop_asked;         /* PAUSING: the freezer or the pager has asked its threads to stop */
    struct hibernate *sleep; /* its memory is in an image, or still coming back */
    bool sleep_again;        /* PAUSING, and waits for the memory of the last time to be back */
    bool lazy;               /* paused memory comes back on demand */
    uint64_t saved_bytes;
    struct answer resume_answer; /* Resume waits for the pager */
};

enum quiet { QUIET_NO, QUIET_COMING, QUIET_YES };

struct runtime {
    struct loop *loop;
    struct reaper *reaper;
    char *ns, *id, *state_dir, *audit_dir, *socket_path, *pod_id;
    bool debug;
    struct rt_sink sink;
    struct map *containers;
    struct list launches;
    struct list trash; /* cgroups that are still busy */
    struct source *trash_timer;
    struct pod *pod;
    struct sentry *sentry;
    char *resolv_conf; /* the host's file behind the pod's, NULL = none */
    bool serves_dns;
    struct cgroup *sentry_cg;
    char *sentry_cg_of; /* path of the container's cgroup whose sibling it is */
    char *broken;       /* why nothing can run in the pod any more */
    struct source *broken_source;
    enum quiet quiet;
    struct source *quiet_timer;
    struct probes *probes; /* while all that runs is paused: who answers the kubelet */
    bool ending;
    int64_t view_cpu, view_memory; /* what the sentry shows: thousandths, bytes */
    struct answer pod_answer;      /* Pause of the whole pod */
    struct answer pod_resume;      /* Resume of the whole pod */
    bool pod_resuming;             /* its containers are being woken: not the time to answer */
    struct err pod_error;
};

/* runtime.c */
struct container *container_find(const struct runtime *rt, const char *id);
struct process *process_find(struct runtime *rt, const char *id, const char *exec_id, struct err *e);
/* Looks up and asks the table; NULL with e set otherwise. */
struct process *process_for(struct runtime *rt, const char *id, const char *exec_id, enum proc_op op,
                            struct err *e);
void process_init(struct process *p, struct container *c, const char *exec_id);
void process_done(struct process *p);
void process_step(struct process *p, enum proc_event event);
void answer_with(struct answer *a, int r, const struct rt_reply *reply,
                 const struct err *e); /* once; fn NULL is fine */
void answer_waiters(struct process *p, int r, const struct err *e);
/* The codes of lower parts mean something else to our callers: everything but the few that are ours becomes
 * -EIO. */
int op_code(int r);
int fail(struct err *e, int r, const char *what); /* op_code and "what: " in front of the text */
void tell(struct process *p, enum rt_event event);
void pending_add(struct runtime *rt, struct pending *pending);
void pending_remove(struct pending *pending); /* idempotent */
void pending_cancel(struct pending *pending); /* launch_cancel if it still runs */
void process_signal(struct process *p, int signal);

/* podlife.c */
int pod_need(struct runtime *rt, struct container *c, struct err *e);
void pod_unneeded(
    struct runtime *rt); /* stops the sentry and frees the namespaces when no container is left */
void pod_view_update(struct runtime *rt);
int container_note(struct container *c, struct err *e); /* writes the state file */

/* launching.c */
int process_open_stdio(struct process *p, void (*ready)(void *, int, const struct err *), struct err *e);
int process_launch(struct process *p, const struct launch_mount *rootfs, size_t n_rootfs, launch_done_fn done,
                   struct err *e);
/* Takes the result: registers with the reaper, hands the listener to the sentry, connects the console. */
int process_adopt(struct process *p, struct launch_result *result, struct err *e);

/* create.c */
void container_drop(struct container *c); /* out of the map and freed; its cgroup goes to the trash; the pod
                                             too if it was the last */
void create_abort(struct container *c, int code, const char *why);

/* start.c, delete.c */
void start_failed(struct process *p, int r, const char *why);
void start_failed_end(struct process *p);
void delete_stopped(struct process *p);

/* exit.c */
void on_process_exit(void *data, const struct reaper_exit *ex);
void exit_check(struct container *c); /* tells what may be told now */
void oom_check(struct container *c);
void oom_arm(struct container *c);

/* trash.c: takes cg; tries now and then from a timer; id: whose state directory goes with it, or NULL. */
void trash_add(struct runtime *rt, struct cgroup *cg, const char *id);
void trash_free(struct runtime *rt);
void trash_forget(struct runtime *rt,
                  const char *id); /* the id is used again: a last try, then its entry is dropped */

/* egress.c: what the sandbox's annotation asks for */
int egress_begin(struct runtime *rt, const struct spec *spec, struct err *e);

/* sleep.c: pause with the memory given back */
bool sleep_begin(struct container *c); /* false: freeze it plainly */
bool sleep_wake(struct container *c, int *r,
                struct err *e); /* false: nothing to bring back; else pause_wake() comes later */
void sleep_broken(struct container *c, const struct err *e);
bool sleep_reaped(struct runtime *rt, pid_t pid, int status);

/* pause.c */
void quiet_update(struct runtime *rt);
void pause_abandon(struct container *c, const char *why);
void pause_thaw(struct container *c);           /* after SIGKILL */
void pause_plain(struct container *c);          /* freeze without giving memory back */
void pause_frozen(struct container *c);         /* PAUSING is over: everything stands still */
void pause_wake(struct container *c);           /* thaw and answer Resume */
void pause_release_parked(struct container *c); /* its threads have been asked to stop */
void pause_let_die(struct container *c);        /* v1: an exec of a frozen container was killed */
