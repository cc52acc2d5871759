#include "shim/runtime/fsm.h"

#include <assert.h>
#include <errno.h>

static const enum proc_state next[PS_STATES][PROC_EVENTS] = {
    [PS_CREATING] = {[EV_LAUNCHED] = PS_CREATED},
    [PS_CREATED] = {[EV_START] = PS_STARTING, [EV_REAPED] = PS_STOPPED, [EV_DELETE] = PS_DELETING},
    [PS_STARTING] = {[EV_STARTED] = PS_RUNNING, [EV_START_FAILED] = PS_STOPPED},
    [PS_RUNNING] = {[EV_REAPED] = PS_STOPPED, [EV_PAUSE] = PS_PAUSING},
    [PS_PAUSING] = {[EV_REAPED] = PS_STOPPED, [EV_FROZEN] = PS_PAUSED, [EV_THAWED] = PS_RUNNING},
    [PS_PAUSED] = {[EV_REAPED] = PS_STOPPED, [EV_THAWED] = PS_RUNNING},
    [PS_STOPPED] = {[EV_DELETE] = PS_DELETING},
};
static_assert(ARRAY_LEN(next) == PS_STATES && ARRAY_LEN(next[0]) == PROC_EVENTS,
              "every state and event has a cell");

enum proc_state fsm_next(enum proc_state state, enum proc_event event)
{
    assert(state < PS_STATES && event < PROC_EVENTS);
    return next[state][event];
}

struct verdict {
    int code; /* 0 = allowed */
    const char *text;
};

/*
 * The texts are what the reference shim answers: clients compare some of them.  A container that is
 * still being created does not exist yet for anyone but Delete and Kill, which abandon it.
 */
#define ABSENT                                                                                               \
    {                                                                                                        \
        -ENOENT, "container not created: not found"                                                          \
    }
#define GONE                                                                                                 \
    {                                                                                                        \
        -ENOENT, "process does not exist: not found"                                                         \
    }
#define FINISHED                                                                                             \
    {                                                                                                        \
        -ESRCH, "process already finished: not found"                                                        \
    }
#define NOT_CREATED                                                                                          \
    {                                                                                                        \
        -EBUSY, "process not created: failed precondition"                                                   \
    }
#define WRONG(text)                                                                                          \
    {                                                                                                        \
        -EBADFD, text                                                                                        \
    }

#define ALL_ABSENT                                                                                           \
    {                                                                                                        \
        [OP_START] = ABSENT, [OP_EXEC] = ABSENT, [OP_PAUSE] = ABSENT, [OP_RESUME] = ABSENT,                  \
        [OP_UPDATE] = ABSENT, [OP_STATS] = ABSENT, [OP_PIDS] = ABSENT, [OP_RESIZE] = ABSENT,                 \
        [OP_CLOSE_IO] = ABSENT, [OP_WAIT] = ABSENT, [OP_STATE] = ABSENT,                                     \
    }

static const struct verdict init_rules[PS_STATES][PROC_OPS] = {
    [PS_CREATING] = ALL_ABSENT,
    [PS_CREATED] = {[OP_PAUSE] = WRONG("cannot pause task in created state"),
                    [OP_RESUME] = WRONG("cannot resume a created process")},
    [PS_STARTING] = {[OP_START] = WRONG("cannot start a running process"),
                     [OP_DELETE] = WRONG("cannot delete a running process"),
                     [OP_PAUSE] = WRONG("cannot pause a process that is being started"),
                     [OP_RESUME] = WRONG("cannot resume a running process")},
    [PS_RUNNING] = {[OP_START] = WRONG("cannot start a running process"),
                    [OP_DELETE] = WRONG("cannot delete a running process"),
                    [OP_RESUME] = WRONG("cannot resume a running process")},
    [PS_PAUSING] = {[OP_START] = WRONG("cannot start a running process"),
                    [OP_DELETE] = WRONG("cannot delete a paused process"),
                    [OP_EXEC] = WRONG("cannot exec in a paused state"),
                    [OP_PAUSE] = WRONG("cannot pause a paused container"),
                    [OP_RESUME] = {-EBUSY,
                                   "cannot resume a container that is being paused: failed precondition"}},
    [PS_PAUSED] = {[OP_START] = WRONG("cannot start a paused process"),
                   [OP_DELETE] = WRONG("cannot delete a paused process"),
                   [OP_EXEC] = WRONG("cannot exec in a paused state"),
                   [OP_PAUSE] = WRONG("cannot pause a paused container")},
    [PS_STOPPED] = {[OP_START] = WRONG("cannot start a stopped process"),
                    [OP_KILL] = FINISHED,
                    [OP_EXEC] = WRONG("cannot exec in a stopped state"),
                    [OP_PAUSE] = WRONG("cannot pause a stopped container"),
                    [OP_RESUME] = WRONG("cannot resume a stopped container"),
                    [OP_UPDATE] = WRONG("cannot update a stopped container"),
                    [OP_STATS] = {-ENOENT, "cgroup does not exist: not found"},
                    [OP_PIDS] = FINISHED,
                    [OP_RESIZE] = WRONG("cannot resize a stopped process")},
    [PS_DELETING] = {[OP_START] = GONE,
                     [OP_DELETE] = GONE,
                     [OP_KILL] = FINISHED,
                     [OP_EXEC] = GONE,
                     [OP_PAUSE] = GONE,
                     [OP_RESUME] = GONE,
                     [OP_UPDATE] = GONE,
                     [OP_STATS] = GONE,
                     [OP_PIDS] = GONE,
                     [OP_RESIZE] = GONE},
};

static const struct verdict exec_rules[PS_STATES][PROC_OPS] = {
    [PS_CREATED] = {[OP_KILL] = NOT_CREATED},
    [PS_STARTING] = {[OP_START] = WRONG("cannot start a running process"),
                     [OP_DELETE] = WRONG("cannot delete a running process")},
    [PS_RUNNING] = {[OP_START] = WRONG("cannot start a running process"),
                    [OP_DELETE] = WRONG("cannot delete a running process")},
    [PS_STOPPED] = {[OP_START] = WRONG("cannot start a stopped process"),
                    [OP_KILL] = FINISHED,
                    [OP_RESIZE] = WRONG("cannot resize a stopped process")},
    [PS_DELETING] = {[OP_START] = GONE, [OP_DELETE] = GONE, [OP_KILL] = FINISHED, [OP_RESIZE] = GONE},
};

static int answer(const struct verdict *v, struct err *e)
{
    return v->code ? err_set(e, v->code, "%s", v->text) : 0;
}

int fsm_allows(enum proc_state state, bool is_exec, enum proc_op op, struct err *e)
{
    assert(state < PS_STATES && op < PROC_OPS);
    if (state == PS_NONE)
        return err_set(e, -ENOENT, "process does not exist: not found");
    return answer(is_exec ? &exec_rules[state][op] : &init_rules[state][op], e);
}

int fsm_allows_exec_start(enum proc_state init_state, struct err *e)
{
    static const struct verdict rules[PS_STATES] = {
        [PS_NONE] = ABSENT,
        [PS_CREATING] = ABSENT,
        [PS_PAUSING] = WRONG("cannot exec in a paused state"),
        [PS_PAUSED] = WRONG("cannot exec in a paused state"),
        [PS_STOPPED] = {-EBUSY, "cannot exec in a stopped container: failed precondition"},
        [PS_DELETING] = {-EBUSY, "cannot exec in a deleted container: failed precondition"},
    };

    assert(init_state < PS_STATES);
    return answer(&rules[init_state], e);
}

const char *fsm_state_name(enum proc_state state)
{
    static const char *const names[PS_STATES] = {"none",    "creating", "created", "starting", "running",
                                                 "pausing", "paused",   "stopped", "deleting"};

    assert(state < PS_STATES);
    return names[state];
}
