#pragma once
/*
 * The life cycle of an init or exec process as two tables, both pure: which call is allowed in which
 * state (and what the caller is told otherwise), and which event leads where.
 *
 *             launched         start           started          pause         frozen
 *   CREATING ---------> CREATED ------> STARTING ------> RUNNING ------> PAUSING ------> PAUSED
 *      | launch failed     | reaped       | failed         | reaped ^ thawed |             | thawed ->
 * RUNNING v                   v              v                v        `--------'             | reaped (gone)
 * STOPPED <---------+----------------+-------------------------------' | delete
 *                          v
 *                       DELETING --> (gone)
 *
 * An exec process is born CREATED (registered only) and never pauses by itself.
 */
#include <stdbool.h>

#include "base/err.h"

enum proc_state {
    PS_NONE,
    PS_CREATING,
    PS_CREATED,
    PS_STARTING,
    PS_RUNNING,
    PS_PAUSING,
    PS_PAUSED,
    PS_STOPPED,
    PS_DELETING,
    PS_STATES,
};

enum proc_event {
    EV_LAUNCHED,
    EV_START,
    EV_STARTED,
    EV_START_FAILED,
    EV_REAPED,
    EV_PAUSE,
    EV_FROZEN,
    EV_THAWED,
    EV_DELETE,
    PROC_EVENTS,
};

enum proc_op {
    OP_START,
    OP_DELETE,
    OP_KILL,
    OP_EXEC,
    OP_PAUSE,
    OP_RESUME,
    OP_UPDATE,
    OP_STATS,
    OP_PIDS,
    OP_RESIZE,
    OP_CLOSE_IO,
    OP_WAIT,
    OP_STATE,
    PROC_OPS,
};

/* PS_NONE: the event cannot happen in that state. */
enum proc_state fsm_next(enum proc_state state, enum proc_event event);

/*
 * 0: the call may go on.  Otherwise the error for its caller: -ENOENT (no such process),
 * -ESRCH (it has finished), -EBADFD (wrong state), -EBUSY (a precondition fails).
 */
int fsm_allows(enum proc_state state, bool is_exec, enum proc_op op, struct err *e);
/* May an exec process start while its container's init is in `init_state`? */
int fsm_allows_exec_start(enum proc_state init_state, struct err *e);

const char *fsm_state_name(enum proc_state state);
