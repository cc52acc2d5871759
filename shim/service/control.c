#include "shim/service/control.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "control.pb-c.h"
#include "shim/cgroup/stats.h"
#include "shim/runtime/runtime.h"
#include "shim/sentry/sentry.h"
#include "shim/service/service.h"
#include "shim/ttrpc/events.h"

struct memory {
    uint64_t now, peak;
};

static char *text(const char *s)
{
    return (char *)(uintptr_t)(s ? s : "");
}

static struct memory memory_of(struct service *s, const char *id)
{
    struct cgroup_stats st = {0};
    struct memory m = {0};

    if (runtime_stats(s->rt, id, &st, NULL) == 0 && st.mode == CGROUP_V2)
        m = (struct memory){.now = st.v2.memory.usage, .peak = st.v2.memory.max_usage};
    else if (st.mode == CGROUP_V1)
        m = (struct memory){.now = st.v1.usage.usage, .peak = st.v1.usage.max};
    cgroup_stats_done(&st);
    return m;
}

static uint64_t memory_of_pod(struct service *s)
{
    struct rt_pod_item item;
    uint64_t sum = 0;

    for (size_t at = 0; runtime_pod_next(s->rt, &at, &item);)
        sum += memory_of(s, item.id).now;
    return sum;
}

struct pause_call {
    struct service *s;
    struct ttrpc_call *call;
    uint64_t before;
};

static void on_paused(void *data, int r, const struct rt_reply *reply UNUSED, const struct err *e)
{
    struct pause_call *p = data;
    Glovebox__Shim__V1__PauseResponse m;

    if (r < 0) {
        service_error(p->call, r, e);
    } else {
        glovebox__shim__v1__pause_response__init(&m);
        m.memory_before = p->before;
        m.memory_after = memory_of_pod(p->s);
        service_reply(p->call, &m.base);
    }
    free(p);
}

METHOD(pause, glovebox__shim__v1__pause_request, Glovebox__Shim__V1__PauseRequest)
{
    struct pause_call *p = xcalloc(1, sizeof *p);

    *p = (struct pause_call){.s = s, .call = call, .before = memory_of_pod(s)};
    runtime_pause_pod(s->rt, on_paused, p);
}

static void on_resumed(void *data, int r, const struct rt_reply *reply UNUSED, const struct err *e)
{
    if (r < 0)
        service_error(data, r, e);
    else
        service_reply(data, NULL);
}

METHOD(resume, glovebox__shim__v1__resume_request, Glovebox__Shim__V1__ResumeRequest)
{
    runtime_resume_pod(s->rt, on_resumed, call);
}

/* The pod is what its most active container is. */
static const struct {
    Glovebox__Shim__V1__PodState pod;
    int rank;
} pod_states[PS_STATES] = {
    [PS_NONE] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_EMPTY, 0},
    [PS_CREATING] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_CREATED, 2},
    [PS_CREATED] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_CREATED, 2},
    [PS_STARTING] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_CREATED, 2},
    [PS_RUNNING] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_RUNNING, 4},
    [PS_PAUSING] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_PAUSING, 5},
    [PS_PAUSED] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_PAUSED, 3},
    [PS_STOPPED] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_STOPPED, 1},
    [PS_DELETING] = {GLOVEBOX__SHIM__V1__POD_STATE__POD_STOPPED, 1},
};

struct item {
    Glovebox__Shim__V1__Container m;
    Google__Protobuf__Timestamp since;
};

static void fill(struct service *s, const struct rt_pod_item *from, struct item *to)
{
    struct memory mem = memory_of(s, from->id);

    glovebox__shim__v1__container__init(&to->m);
    to->m.id = text(from->id);
    to->m.state = text(fsm_state_name(from->state));
    to->m.pid = (uint32_t)from->pid;
    to->m.memory_now = mem.now;
    to->m.memory_peak = mem.peak;
    to->since = service_time(&from->paused_at);
}

#define REFUSED_MAX 512

struct refused {
    struct sentry_count count[REFUSED_MAX];
    Glovebox__Shim__V1__Counter m[REFUSED_MAX], *list[REFUSED_MAX];
};

/* The number of refusals by call; *r outlives the message. */
static size_t fill_refused(struct service *s, struct refused *r)
{
    size_t n = MIN(runtime_refused(s->rt, r->count, REFUSED_MAX), (size_t)REFUSED_MAX);

    for (size_t i = 0; i < n; i++) {
        glovebox__shim__v1__counter__init(&r->m[i]);
        r->m[i].name = text(r->count[i].call);
        r->m[i].value = r->count[i].n;
        r->list[i] = &r->m[i];
    }
    return n;
}

#define CONTAINERS_MAX 1024 /* the answer stays far below a frame's limit */

METHOD(status, glovebox__shim__v1__status_request, Glovebox__Shim__V1__StatusRequest)
{
    Glovebox__Shim__V1__StatusResponse m;
    scoped_free struct item *items = xcalloc(CONTAINERS_MAX, sizeof *items);
    scoped_free Glovebox__Shim__V1__Container **list = xcalloc(CONTAINERS_MAX, sizeof *list);
    scoped_free struct refused *refused = xcalloc(1, sizeof *refused);
    struct rt_pod_item from;
    enum proc_state top = PS_NONE;

    glovebox__shim__v1__status_response__init(&m);
    for (size_t at = 0; m.n_containers < CONTAINERS_MAX && runtime_pod_next(s->rt, &at, &from);) {
        struct item *it = &items[m.n_containers];
        fill(s, &from, it);
        if (from.paused_at.tv_sec)
            it->m.paused_since = &it->since;
        if (it->m.paused_since && (!m.paused_since || m.paused_since->seconds < it->since.seconds))
            m.paused_since = &it->since;
        if (pod_states[from.state].rank > pod_states[top].rank)
            top = from.state;
        m.memory_now += it->m.memory_now;
        m.memory_peak += it->m.memory_peak;
        list[m.n_containers++] = &it->m;
    }
    m.containers = list;
    m.pod_id = text(runtime_pod_id(s->rt));
    m.state = pod_states[top].pod;
    m.broken = text(runtime_broken(s->rt));
    m.shim_pid = (uint32_t)getpid();
    m.sentry_pid = (uint32_t)runtime_sentry_pid(s->rt);
    m.n_refused_calls = fill_refused(s, refused);
    m.refused_calls = refused->list;
    m.events_dropped = events_dropped(s->events);
    service_reply(call, &m.base);
}

METHOD(set_egress, glovebox__shim__v1__set_egress_request, Glovebox__Shim__V1__SetEgressRequest)
{
    struct err e = {0};
    bool none = req->policy[0] == '\0';
    int r = none && req->confirm
                ? runtime_confirm_egress(s->rt, &e)
                : runtime_set_egress(s->rt, none ? NULL : req->policy, strlen(req->policy), &e);

    if (r < 0)
        service_error(call, r, &e);
    else
        service_reply(call, NULL);
}

void control_set_egress(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    on_set_egress(data, call, payload, len);
}

void control_pause(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    on_pause(data, call, payload, len);
}

void control_resume(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    on_resume(data, call, payload, len);
}

void control_status(void *data, struct ttrpc_call *call, const uint8_t *payload, size_t len)
{
    on_status(data, call, payload, len);
}
