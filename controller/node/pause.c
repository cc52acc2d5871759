#include "controller/node/pause.h"

#include <string.h>

#include "controller/kube/object.h"
#include "controller/sandbox/names.h"

static void add_ids(const json_t *list, struct pod_facts *ret)
{
    static const char scheme[] = "containerd://";
    size_t i;
    json_t *c;

    json_array_foreach(list, i, c)
    {
        const char *id = obj_str(c, "containerID");
        if (id && strncmp(id, scheme, strlen(scheme)) == 0 && ret->n_ids < PAUSE_IDS_MAX)
            ret->ids[ret->n_ids++] = id + strlen(scheme);
    }
}

static const char *text(const json_t *o, const char *path)
{
    const char *s = obj_str(o, path);

    return s ? s : "";
}

void pod_facts_read(const json_t *pod, struct pod_facts *ret)
{
    const char *wanted = obj_annotation(pod, ANN_POD_PAUSE);
    const json_t *c = obj_condition(pod, COND_POD_PAUSED);

    *ret = (struct pod_facts){
        .wanted = wanted && strcmp(wanted, PAUSE_TRUE) == 0,
        .deleting = obj_is_deleting(pod),
        .running = strcmp(text(pod, "status.phase"), "Running") == 0,
        .ready = obj_condition_is_true(pod, "Ready"),
        .status = text(c, "status"),
        .reason = text(c, "reason"),
        .message = text(c, "message"),
    };
    add_ids(obj_at(pod, "status.containerStatuses"), ret);
    add_ids(obj_at(pod, "status.initContainerStatuses"), ret);
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static enum pause_step decide_pause(const struct pod_facts *pod, const struct shim_facts *shim)
{
    bool says_paused = is(pod->status, "True");

    if (!shim->found) {
        if (!shim->searched)
            return PAUSE_SCAN;
        /* Refused once is refused until the wish or the shim changes. */
        return is(pod->reason, POD_PAUSE_REFUSED) ? PAUSE_NOTHING : PAUSE_REPORT;
    }
    if (shim->paused && says_paused && is(pod->reason, POD_PAUSED))
        return PAUSE_NOTHING;
    /* Not before it is Ready: a pod that pauses half-started would never become so.  One that is paused
     * already, by us before a restart, or in part, need not be Ready any more. */
    if (!pod->ready && !shim->paused && !is(pod->reason, POD_PAUSE_FAILED))
        return PAUSE_NOTHING;
    return PAUSE_DO; /* pausing a paused pod does nothing but tell its memory */
}

static enum pause_step decide_run(const struct pod_facts *pod, const struct shim_facts *shim)
{
    bool says_paused = is(pod->status, "True"), half_paused = is(pod->reason, POD_PAUSE_FAILED);

    if (shim->found)
        return shim->paused || says_paused || half_paused ? PAUSE_UNDO : PAUSE_NOTHING;
    if (!says_paused && !half_paused)
        return PAUSE_NOTHING;
    /* The API says paused, but nothing here is: the containers were made anew, or the node was. */
    return shim->searched ? PAUSE_REPORT : PAUSE_SCAN;
}

enum pause_step pause_decide(const struct pod_facts *pod, const struct shim_facts *shim)
{
    /* A paused pod that is deleted needs nothing from us: the shim thaws what the kubelet kills. */
    if (pod->deleting || shim->busy)
        return PAUSE_NOTHING;
    if (shim->have_result)
        return PAUSE_REPORT;
    if (!pod->running || pod->n_ids == 0)
        return PAUSE_NOTHING;
    return pod->wanted ? decide_pause(pod, shim) : decide_run(pod, shim);
}
