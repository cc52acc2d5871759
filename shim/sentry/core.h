#pragma once
/*
 * The inside of the sentry process: listeners, worker threads, calls in flight.
 *
 * Leader and followers.  One thread, the leader, waits for notifications and answers them itself; most
 * take microseconds.  Before a step that may block it parks the call, which passes the lead on to
 * another thread, so nothing ever blocks the loop.  The main thread talks to the shim and looks after
 * parked calls.  `lock` protects what says so; nobody holds it over a system call that can block.
 */
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/list.h"
#include "shim/sentry/audit.h"
#include "shim/sentry/egress.h"

#define LISTENERS_MAX     256
#define LISTENER_NAME_MAX 96
#define THREADS_MAX       256
#define THREADS_IDLE_MAX  2
#define NOTIFY_BYTES_MAX  256

struct listener {
    int fd;
    unsigned refs;                /* protected by core.lock */
    char name[LISTENER_NAME_MAX]; /* the container's id, for records */
};

/* One page that the shim reads: how often each call was refused by the sentry. */
#define COUNTED_CALLS 480
struct sentry_counts {
    _Atomic uint64_t refused[COUNTED_CALLS];
};

struct core {
    pthread_mutex_t lock;
    pthread_cond_t turn;                       /* followers wait here for the lead */
    struct listener *listeners[LISTENERS_MAX]; /* protected by lock, like all down to `parked` */
    size_t n_listeners;
    bool led, stopped, quiet; /* somebody leads; no receiving, please; nobody receives */
    unsigned n_threads, n_idle;
    struct list parked;
    unsigned n_parked;
    struct list questions; /* task.c: threads that wait for an answer of the shim */
    pthread_cond_t answered;
    pid_t recent[8]; /* processes that were asked for last */
    unsigned next_recent;
    uint64_t last_cookie;

    int wake_leader, wake_main; /* eventfds */
    int control;                /* the shim */
    pid_t pid;
    bool sync_wake_up, thread_pidfds; /* kernel features: >= 6.6, >= 6.9 */
    bool debug;
    struct audit audit;
    struct egress egress;
    struct dns *dns; /* NULL until the shim gives the first socket for it; main thread only */
    int dns_wake[2];
    struct sentry_counts *counts; /* shared with the shim */
    _Atomic int64_t cpu_milli, memory_bytes;
};

#define HANDLES_MAX 8
struct worker {
    struct core *core;
    pid_t tid;
    timer_t timer; /* interrupts this thread, once it has one */
    bool has_timer;
    /* Handles on recent callers. A handle on a thread that died never refers to its number's next owner. */
    struct handle {
        pid_t tid, tgid; /* tgid: the pidfd is the process's (before 6.9), 0: the thread's own */
        int pidfd;
    } handles[HANDLES_MAX];
    unsigned next_handle;
};

enum interrupt { INTERRUPT_NONE, INTERRUPT_SIGNAL, INTERRUPT_RELEASE, INTERRUPT_DEAD };

struct message;

struct call {
    struct core *core;
    struct worker *worker;
    struct listener *listener;
    union {
        struct seccomp_notif n;
        uint8_t space[NOTIFY_BYTES_MAX]; /* a later kernel's may be larger */
    } u;
    bool answered;
    /* while parked */
    bool parked;
    struct list node;      /* core.parked */
    int64_t looked_ms;     /* when its caller's signals were last asked for; at first, when it was parked */
    uint64_t query;        /* cookie of the question to the shim, 0 = none open */
    _Atomic int interrupt; /* enum interrupt */
};

void core_init(struct core *c);
int core_add_listener(struct core *c, int fd, const char *name); /* fd taken; 0 or -errno */
int core_start_worker(struct core *c);                           /* caller holds the lock; 0 or -errno */
void core_wake(int eventfd);
void core_stop(struct core *c, bool stopped);

/*
 * Before a step that may block: the lead goes to another thread.  -ENOBUFS: the pod has as many blocked
 * calls as it may have.  The call is unparked when its handler returns.
 */
int call_park(struct call *call);
/* After a parked step returned EINTR: answer it and return true, or false: go on. */
bool call_interrupted(struct call *call, int socket);
/* The thread's own timer, so that it leaves the lead only when a step really takes long. */
bool worker_arm(struct worker *w, int64_t us); /* 0 disarms; false: the pod has used up RLIMIT_SIGPENDING */
/* Main thread: looks after parked calls; returns how long to sleep, -1 = for ever. */
int core_tick(struct core *c);
void core_task_answer(struct core *c, uint64_t cookie, int tgid, bool pending);
void core_release_parked(struct core *c, const char *container); /* "" = of all */
bool core_is_quiet(struct core *c); /* nothing short is in flight and nothing is received */
bool core_is_empty(struct core *c); /* and nothing is parked */
/* A question to the shim, which may get lost when the shim is busy: it is asked again. */
void core_ask(struct core *c, const struct message *m);
