#include "plan_rig.h"

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_sandbox.h"

/* A Sandbox "s" with uid u1; hash of its name 68... is computed, not written here. */
#define SANDBOX(spec, status)                                                                                \
    "{'metadata':{'name':'s','namespace':'n','uid':'u1','generation':3,'creationTimestamp':'2023-11-14T22:"  \
    "00:00Z'},"                                                                                              \
    "'spec':{'podTemplate':{'metadata':{'labels':{'app':'a'}},'spec':{'containers':[{'name':'c','image':'i'" \
    "}]}}" spec "},'status':" status "}"
#define OWNER                                                                                                \
    "'ownerReferences':[{'apiVersion':'agents.x-k8s.io/"                                                     \
    "v1beta1','kind':'Sandbox','name':'s','uid':'u1','controller':true}]"
#define OTHER                                                                                                \
    "'ownerReferences':[{'apiVersion':'apps/"                                                                \
    "v1','kind':'ReplicaSet','name':'r','uid':'u9','controller':true}]"
#define LABELS                                                                                               \
    "'labels':{'app':'a','agents.x-k8s.io/sandbox-name-hash':'HASH'},'annotations':{'agents.x-k8s.io/"       \
    "propagated-labels':'app'PAUSE}"
#define POD(owner, created, status)                                                                          \
    "{'metadata':{'name':'s','namespace':'n','uid':'p1','creationTimestamp':'" created "'," owner "," LABELS \
    "},"                                                                                                     \
    "'spec':{'nodeName':'n1'},'status':" status "}"
#define OLD   "2023-11-14T22:00:00Z"
#define YOUNG "2023-11-14T22:13:20Z"
#define READY                                                                                                \
    "{'phase':'Running','podIPs':[{'ip':'10.0.0.1'}],'conditions':[{'type':'Ready','status':'True'},{'type'" \
    ":'PodScheduled','status':'True'}]}"
#define PENDING "{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'True'}]}"
#define UNSCHEDULABLE                                                                                        \
    "{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'False','reason':'Unschedulable','"    \
    "message':'no room'}]}"
#define NOT_READY                                                                                            \
    "{'phase':'Running','podIPs':[{'ip':'10.0.0.1'}],'conditions':[{'type':'Ready','status':'False','"       \
    "lastTransitionTime':'2023-11-14T22:10:00Z'},{'type':'PodScheduled','status':'True'}]}"
#define NO_IMAGE                                                                                             \
    "{'phase':'Pending','conditions':[{'type':'PodScheduled','status':'True'}],'containerStatuses':[{'name'" \
    ":'c','image':'nope:1','state':{'waiting':{'reason':'ErrImagePull','message':'long'}}}]}"
#define FAILED                                                                                               \
    "{'phase':'Failed','reason':'Evicted','message':'disk','conditions':[{'type':'Ready','status':'False'}]" \
    "}"
#define SUCCEEDED "{'phase':'Succeeded','conditions':[{'type':'Ready','status':'False'}]}"
#define PAUSED(s, r, m)                                                                                      \
    "{'phase':'Running','podIPs':[{'ip':'10.0.0.1'}],'conditions':[{'type':'Ready','status':'True'},{'type'" \
    ":'PodScheduled','status':'True'},{'type':'glovebox.dev/Paused','status':'" s "','reason':'" r           \
    "','message':'" m "','lastTransitionTime':'2023-11-14T22:13:00Z'}]}"
#define RESUMED_UNREADY                                                                                      \
    "{'phase':'Running','podIPs':[{'ip':'10.0.0.1'}],'conditions':[{'type':'Ready','status':'False','"       \
    "lastTransitionTime':'2023-11-14T22:12:00Z'},{'type':'PodScheduled','status':'True'},{'type':'glovebox." \
    "dev/Paused','status':'False','reason':'Running','message':'took 1 "                                     \
    "ms','lastTransitionTime':'2023-11-14T22:13:10Z'}]}"
#define WAS_READY                                                                                            \
    "{'conditions':[{'type':'Ready','status':'True','reason':'DependenciesReady','message':'Pod is "         \
    "Ready','lastTransitionTime':'2023-11-14T22:01:00Z'},{'type':'Paused','status':'False','reason':'"       \
    "NotPaused','message':'','lastTransitionTime':'2023-11-14T22:01:00Z'},{'type':'Suspended','status':'"    \
    "False','reason':'NotSuspended','message':'','lastTransitionTime':'2023-11-14T22:01:00Z'}]}"
#define WAS_PAUSED                                                                                           \
    "{'conditions':[{'type':'Ready','status':'False','reason':'SandboxPaused','message':'Sandbox is "        \
    "paused','lastTransitionTime':'2023-11-14T22:01:00Z'},{'type':'Paused','status':'True','reason':'"       \
    "PausedInPlace','message':'','lastTransitionTime':'2023-11-14T22:01:00Z'},{'type':'Resumed','status':'"  \
    "False','reason':'PausedInPlace','message':'','lastTransitionTime':'2023-11-14T22:01:00Z'}]}"

struct one {
    const char *what, *sandbox;
    const char *pods[3];                    /* owned ones; or, with .named, a stranger */
    const char *plan;                       /* plan_text */
    const char *ready, *paused, *suspended; /* what is written; NULL: not looked at */
    const char *message;                    /* of Ready */
    const char *pause;                      /* annotations of the Pod, with a leading comma */
    const char *service;
    bool named, in_place, hold_paused, node_lost;
    enum owner_kind owner;
    const char *taken, *fault;
    bool again; /* wants to look again */
};

static const struct one cases[] = {
    /* ---- making ---- */
    {"a new sandbox gets its pod, and no status yet", SANDBOX("", "{}"), .plan = "pod+"},
    {"with volumes and a service",
     SANDBOX(",'service':true,'volumeClaimTemplates':[{'metadata':{'name':'v'},'spec':{}}]", "{}"),
     .plan = "pvc+ pod+ svc+"},
    {"a volume without a name is an error", SANDBOX(",'volumeClaimTemplates':[{'spec':{}}]", "{}"),
     .plan = "pod+ status !SandboxNotReady", .ready = "False/ReconcilerError"},
    {"a pod that was just made is worth no status",
     SANDBOX("", "{}"),
     {POD(OWNER, YOUNG, PENDING)},
     .plan = "",
     .again = true},
    {"one that takes longer is",
     SANDBOX("", "{}"),
     {POD(OWNER, OLD, PENDING)},
     .plan = "status",
     .ready = "False/DependenciesNotReady",
     .message = "Pod exists with phase: Pending"},
    {"a ready pod is told at once",
     SANDBOX("", "{}"),
     {POD(OWNER, YOUNG, READY)},
     .plan = "status",
     .ready = "True/DependenciesReady",
     .paused = "False/NotPaused",
     .suspended = "False/NotSuspended",
     .message = "Pod is Ready"},
    {"a required service counts", SANDBOX(",'service':true", "{}"), {POD(OWNER, OLD, READY)}, .plan = "svc+"},
    {"no node has room",
     SANDBOX("", "{}"),
     {POD(OWNER, OLD, UNSCHEDULABLE)},
     .plan = "status",
     .message = "Pod exists with phase: Pending: no room"},
    {"a missing image is named",
     SANDBOX("", "{}"),
     {POD(OWNER, OLD, NO_IMAGE)},
     .plan = "status",
     .message = "Pod exists with phase: Pending: container \"c\" cannot pull its image \"nope:1\""},
    {"a lost node is named",
     SANDBOX("", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .node_lost = true,
     .plan = "status !SandboxNotReady",
     .message = "Pod is Running but not Ready: its node \"n1\" does not answer"},
    {"a failed pod stays and is told",
     SANDBOX("", WAS_READY),
     {POD(OWNER, OLD, FAILED)},
     .plan = "status !SandboxFinished",
     .ready = "False/PodFailed",
     .message = "Pod failed: Evicted: disk"},
    {"a finished pod stays and is told",
     SANDBOX("", WAS_READY),
     {POD(OWNER, OLD, SUCCEEDED)},
     .plan = "status !SandboxFinished",
     .ready = "False/PodSucceeded"},
    {"a pod deleted by others is made again", SANDBOX("", WAS_READY), .plan = "pod+"},
    {"not ready any more",
     SANDBOX("", WAS_READY),
     {POD(OWNER, OLD, NOT_READY)},
     .plan = "status !SandboxNotReady",
     .ready = "False/DependenciesNotReady"},
    /* ---- strangers ---- */
    {"two pods are one too many",
     SANDBOX("", WAS_READY),
     {POD(OWNER, OLD, READY), POD(OWNER, OLD, READY)},
     .plan = "status !SandboxNotReady",
     .ready = "False/MultiplePods"},
    {"a stranger's pod is not touched",
     SANDBOX("", "{}"),
     {POD(OTHER, OLD, READY)},
     .named = true,
     .plan = "status !SandboxNotReady",
     .ready = "False/ReconcilerError",
     .message =
         "Error seen: Pod \"s\" exists and is not this sandbox's; delete it or choose another sandbox name"},
    {"a pod without owner and with our label is taken over",
     SANDBOX("", "{}"),
     {POD("'x':1", OLD, READY)},
     .named = true,
     .plan = "pod~"},
    {"a name taken by what we are not shown", SANDBOX("", "{}"), .taken = "pods \"s\" already exists",
     .plan = "status !SandboxNotReady", .ready = "False/ReconcilerError", .again = true},
    {"a stranger's service is not touched when none is asked for",
     SANDBOX("", "{}"),
     {POD(OWNER, OLD, READY)},
     .service = "{'metadata':{'name':'s','uid':'v1'},'spec':{}}",
     .plan = "status",
     .ready = "True/DependenciesReady"},
    {"and is an error when one is",
     SANDBOX(",'service':true", "{}"),
     {POD(OWNER, OLD, READY)},
     .service = "{'metadata':{'name':'s','uid':'v1'},'spec':{'clusterIP':'10.1.1.1'}}",
     .plan = "status !SandboxNotReady",
     .ready = "False/ReconcilerError"},
    {"a service not wanted any more goes",
     SANDBOX(",'service':false", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .service = "{'metadata':{'name':'s','uid':'v1'," OWNER "},'spec':{}}",
     .plan = "svc-"},
    {"what the API server says becomes the message", SANDBOX("", "{}"), .fault = "quota exceeded",
     .plan = "status !SandboxNotReady", .message = "Error seen: quota exceeded"},
    /* ---- suspend ---- */
    {"suspend deletes the pod",
     SANDBOX(",'operatingMode':'Suspended'", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .plan = "pod-"},
    {"suspended", SANDBOX(",'operatingMode':'Suspended'", WAS_READY), .plan = "status !SandboxSuspended",
     .ready = "False/SandboxSuspended", .suspended = "True/PodTerminated", .paused = "False/NotPaused",
     .message = "Sandbox is suspended"},
    {"a stranger's pod is not deleted",
     SANDBOX(",'operatingMode':'Suspended'", WAS_READY),
     {POD(OTHER, OLD, READY)},
     .named = true,
     .plan = "status !SandboxNotReady",
     .suspended = "False/PodNotOwned"},
    {"no volume is made for a suspended one",
     SANDBOX(",'operatingMode':'Suspended','volumeClaimTemplates':[{'metadata':{'name':'v'},'spec':{}}]",
             WAS_READY),
     .plan = "status !SandboxSuspended"},
    /* ---- pause ---- */
    {"pause asks the node agent",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .in_place = true,
     .plan = "pod~"},
    {"pausing is worth no status for a second",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true','glovebox.dev/pause-requested-at':'2023-11-14T22:13:19.900000Z'",
     .plan = "",
     .again = true},
    {"then it is",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true','glovebox.dev/pause-requested-at':'2023-11-14T22:13:00.000000Z'",
     .plan = "status",
     .paused = "False/Pausing",
     .ready = "True/DependenciesReady"},
    {"paused",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, PAUSED("True", "Paused", "memory before 10485760 after 1048576 bytes, took 9 ms"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true'",
     .plan = "status !SandboxPaused",
     .ready = "False/SandboxPaused",
     .paused = "True/PausedInPlace"},
    {"resume asks the node agent",
     SANDBOX(",'paused':false", WAS_PAUSED),
     {POD(OWNER, OLD, PAUSED("True", "Paused", "x"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true'",
     .plan = "pod~"},
    {"resuming is worth no status for a second",
     SANDBOX("", WAS_PAUSED),
     {POD(OWNER, OLD, PAUSED("True", "Paused", "x"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'false','glovebox.dev/pause-requested-at':'2023-11-14T22:13:19.900000Z'",
     .plan = "",
     .again = true},
    {"resumed",
     SANDBOX("", WAS_PAUSED),
     {POD(OWNER, OLD, PAUSED("False", "Running", "took 2 ms"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'false'",
     .plan = "status !SandboxResumed",
     .ready = "True/DependenciesReady",
     .paused = "False/NotPaused"},
    {"a probe that failed in the pause is forgiven until it can be repeated",
     SANDBOX("", WAS_PAUSED),
     {POD(OWNER, OLD, RESUMED_UNREADY)},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'false'",
     .plan = "status !SandboxResumed",
     .ready = "True/DependenciesReady",
     .again = true},
    {"resume failed",
     SANDBOX("", WAS_PAUSED),
     {POD(OWNER, OLD, PAUSED("True", "ResumeFailed", "shim is gone"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'false'",
     .plan = "status",
     .ready = "False/SandboxPaused",
     .paused = "True/ResumeFailed"},
    {"pause without glovebox is done by deletion",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .plan = "pod-"},
    {"paused by deletion", SANDBOX(",'paused':true", WAS_READY), .plan = "status !SandboxPaused",
     .ready = "False/SandboxPaused", .paused = "True/PodDeleted", .suspended = "True/PodTerminated",
     .message = "Sandbox is paused"},
    {"but not when it must be in place",
     SANDBOX(",'paused':true,'pausePolicy':{'mode':'InPlace'}", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .plan = "status",
     .paused = "False/PauseRefused",
     .ready = "True/DependenciesReady"},
    {"the agent refuses: deletion under Auto",
     SANDBOX(",'paused':true", WAS_READY),
     {POD(OWNER, OLD, PAUSED("False", "Refused", "old shim"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true'",
     .plan = "pod-"},
    {"the agent refuses: told under InPlace",
     SANDBOX(",'paused':true,'pausePolicy':{'mode':'InPlace'}", WAS_READY),
     {POD(OWNER, OLD, PAUSED("False", "Refused", "old shim"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true'",
     .plan = "status",
     .paused = "False/PauseRefused"},
    {"Delete deletes although it could be in place",
     SANDBOX(",'paused':true,'pausePolicy':{'mode':'Delete'}", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .in_place = true,
     .plan = "pod-"},
    {"suspend wins over pause",
     SANDBOX(",'paused':true,'operatingMode':'Suspended'", WAS_PAUSED),
     {POD(OWNER, OLD, PAUSED("True", "Paused", "x"))},
     .in_place = true,
     .pause = ",'glovebox.dev/pause':'true'",
     .plan = "pod-"},
    {"a pool member is held paused",
     SANDBOX("", "{}"),
     {POD(OWNER, OLD, READY)},
     .in_place = true,
     .hold_paused = true,
     .owner = OWNER_POOL,
     .plan = "pod~ sandbox~"},
    /* ---- the end ---- */
    {"expired: the pod goes, the object stays",
     SANDBOX(",'shutdownTime':'2023-11-14T22:13:00Z'", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .plan = "pod- status !SandboxExpired",
     .ready = "False/SandboxExpired"},
    {"expired: all goes",
     SANDBOX(",'shutdownTime':'2023-11-14T22:13:00Z','shutdownPolicy':'Delete'", WAS_READY),
     {POD(OWNER, OLD, READY)},
     .plan = "pod- sandbox- !SandboxExpired"},
    {"not yet expired",
     SANDBOX(",'shutdownTime':'2023-11-14T22:14:00Z'", "{}"),
     {POD(OWNER, OLD, READY)},
     .plan = "status",
     .again = true},
};

static void fill(char *out, size_t size, const char *text, const char *pause)
{
    char hash[HASH_TEXT_MAX];

    hash_text("s", hash);
    out[0] = '\0';
    while (*text) {
        size_t n = strlen(out);
        if (strncmp(text, "HASH", 4) == 0) {
            snprintf(out + n, size - n, "%s", hash);
            text += 4;
        } else if (strncmp(text, "PAUSE", 5) == 0 && text[5] == '}') {
            snprintf(out + n, size - n, "%s", pause ? pause : "");
            text += 5;
        } else {
            snprintf(out + n, size - n, "%c", *text++);
        }
    }
}

static void check_one(const struct one *c)
{
    json_t *trees[4] = {J(c->sandbox)}, *service = c->service ? J(c->service) : NULL;
    const json_t *none[4] = {NULL};
    struct sandbox s = {.service = 0};
    struct pod pods[3] = {{.phase = 0}};
    struct sandbox_world w = {.now_ms = NOW_MS,
                              .owner = c->owner,
                              .cluster_domain = "cluster.local",
                              .in_place = c->in_place,
                              .claims = none,
                              .hold_paused = c->hold_paused,
                              .node_lost = c->node_lost,
                              .taken = c->taken,
                              .fault = c->fault,
                              .hold = c->fault != NULL,
                              .service = service};
    size_t n = 0;
    struct plan plan;

    for (; n < 3 && c->pods[n]; n++) {
        char text[4096];
        fill(text, sizeof text, c->pods[n], c->pause);
        trees[n + 1] = J(text);
        pod_read(trees[n + 1], &pods[n]);
    }
    if (c->named)
        w.named = &pods[0];
    else
        w.owned = pods, w.n_owned = n;
    sandbox_read(trees[0], &s);
    plan_init(&plan);
    sandbox_plan(&s, &w, &plan);
    if (strcmp(plan_text(&plan), c->plan) != 0)
        fail_msg("%s: plan is \"%s\", expected \"%s\"", c->what, plan_text(&plan), c->plan);
    const struct {
        const char *type, *want;
    } looked[] = {{COND_READY, c->ready}, {COND_PAUSED, c->paused}, {COND_SUSPENDED, c->suspended}};
    for (size_t i = 0; i < ARRAY_LEN(looked); i++)
        if (looked[i].want &&
            strcmp(written(&plan, STEP_SANDBOX_STATUS, looked[i].type), looked[i].want) != 0)
            fail_msg("%s: %s is \"%s\", expected \"%s\"", c->what, looked[i].type,
                     written(&plan, STEP_SANDBOX_STATUS, looked[i].type), looked[i].want);
    if (c->message && strcmp(written_message(&plan, STEP_SANDBOX_STATUS, COND_READY), c->message) != 0)
        fail_msg("%s: message is \"%s\"", c->what, written_message(&plan, STEP_SANDBOX_STATUS, COND_READY));
    if (c->again != (plan.again_ms > 0))
        fail_msg("%s: looks again in %lld ms", c->what, (long long)plan.again_ms);
    plan_done(&plan);
    for (size_t i = 0; i <= n; i++)
        json_decref(trees[i]);
    json_decref(service);
}

static void every_state_of_a_sandbox_has_its_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_one(&cases[i]);
}

static void a_written_status_is_never_written_again(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct one *c = &cases[i];
        json_t *object = J(c->sandbox), *pod = NULL;
        const json_t *none[4] = {NULL};
        struct sandbox s = {.service = 0};
        struct pod pods[1] = {{.phase = 0}};
        struct sandbox_world w = {.now_ms = NOW_MS,
                                  .cluster_domain = "x",
                                  .in_place = c->in_place,
                                  .claims = none,
                                  .hold_paused = c->hold_paused,
                                  .owner = c->owner,
                                  .node_lost = c->node_lost,
                                  .taken = c->taken,
                                  .fault = c->fault,
                                  .hold = true};
        struct plan plan;

        if (c->pods[0] && !c->pods[1]) {
            char text[4096];
            fill(text, sizeof text, c->pods[0], c->pause);
            pod = J(text);
            pod_read(pod, &pods[0]);
            if (c->named)
                w.named = pods;
            else
                w.owned = pods, w.n_owned = 1;
        }
        for (int round = 0; round < 3; round++) {
            memset(&s, 0, sizeof s);
            sandbox_read(object, &s);
            plan_init(&plan);
            sandbox_plan(&s, &w, &plan);
            const struct step *step = plan_find(&plan, STEP_SANDBOX_STATUS);
            if (step && round == 2)
                fail_msg("%s: the status is written again: %s", c->what,
                         json_dumps(step->body, JSON_COMPACT));
            if (step) { /* as the API server would merge it */
                const char *key;
                json_t *value, *status = json_object_get(object, "status");
                json_object_foreach(json_object_get(step->body, "status"), key,
                                    value) if (json_is_null(value)) json_object_del(status, key);
                else json_object_set(status, key, value);
            }
            plan_done(&plan);
            w.now_ms += 5000;
        }
        json_decref(object);
        json_decref(pod);
    }
}

static void time_of_a_condition_moves_only_with_its_status(void **state)
{
    json_t *object = J(SANDBOX("", WAS_READY)), *pod;
    const json_t *none[1] = {NULL};
    struct sandbox s = {.service = 0};
    struct pod p = {.phase = 0};
    char text[4096];
    struct plan plan;

    (void)state;
    fill(text, sizeof text, POD(OWNER, OLD, READY), NULL);
    pod = J(text);
    sandbox_read(object, &s);
    pod_read(pod, &p);
    struct sandbox_world w = {
        .now_ms = NOW_MS, .claims = none, .owned = &p, .n_owned = 1, .cluster_domain = "x"};
    plan_init(&plan);
    sandbox_plan(&s, &w, &plan);
    const json_t *status = json_object_get(plan_find(&plan, STEP_SANDBOX_STATUS)->body, "status");
    assert_string_equal(condition_str(condition_find(status, COND_READY), "lastTransitionTime"),
                        "2023-11-14T22:01:00Z");
    assert_string_equal(condition_str(condition_find(status, COND_POD_SCHEDULED), "lastTransitionTime"),
                        "2023-11-14T22:13:20Z");
    plan_done(&plan);
    json_decref(object);
    json_decref(pod);
}

static void the_pod_is_what_the_template_says(void **state)
{
    json_t *o = J("{'metadata':{'name':'s','namespace':'n','uid':'u1','labels':{'agents.x-k8s.io/"
                  "created-by':'me'}},'spec':{'podTemplate':{"
                  "'metadata':{'labels':{'app':'a','agents.x-k8s.io/"
                  "claim-uid':'evil'},'annotations':{'b':'2','a':'1','glovebox.dev/pause':'true'}},"
                  "'spec':{'containers':[{'name':'c'}],'volumes':[{'name':'v','emptyDir':{}},{'name':'w','"
                  "emptyDir':{}}]}},"
                  "'volumeClaimTemplates':[{'metadata':{'name':'v'},'spec':{}}]}}");
    struct sandbox s = {.service = 0};
    json_t *pod, *want;

    (void)state;
    sandbox_read(o, &s);
    pod = pod_body(&s, &(struct pod_extra){.owner = OWNER_NONE});
    want = J("[{'name':'w','emptyDir':{}},{'name':'v','persistentVolumeClaim':{'claimName':'v-s'}}]");
    assert_true(json_equal(obj_at(pod, "spec.volumes"), want));
    json_decref(want);
    assert_null(obj_label(pod, LABEL_CLAIM_UID));
    assert_null(obj_annotation(pod, ANN_POD_PAUSE));
    assert_string_equal(obj_label(pod, LABEL_CREATED_BY), "unknown");
    assert_string_equal(obj_annotation(pod, ANN_PROPAGATED_LABELS), "app");
    assert_string_equal(obj_annotation(pod, ANN_PROPAGATED_ANNOTATIONS), "a,b");
    assert_true(obj_is_controlled_by(pod, "u1"));
    json_decref(pod);
    json_decref(o);
}

static void ports_of_a_service_are_sorted_and_named(void **state)
{
    json_t *spec = J("{'containers':[{'name':'a','ports':[{'containerPort':80,'name':'web'},{'containerPort':"
                     "53,'protocol':'UDP'},{'containerPort':80}]},"
                     "{'name':'b','ports':[{'containerPort':81,'name':'web'},{'containerPort':53}]}],"
                     "'initContainers':[{'name':'i','ports':[{'containerPort':1}]},{'name':'s','"
                     "restartPolicy':'Always','ports':[{'containerPort':2}]}]}");
    json_t *ports = service_ports(spec);
    static const struct {
        int port;
        const char *protocol, *name;
    } want[] = {{2, "TCP", "p-2-tcp"},
                {53, "TCP", "p-53-tcp"},
                {53, "UDP", "p-53-udp"},
                {80, "TCP", "web"},
                {81, "TCP", "web-2"}};

    (void)state;
    assert_int_equal(json_array_size(ports), ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const json_t *p = json_array_get(ports, i);
        assert_int_equal(obj_int(p, "port", 0), want[i].port);
        assert_string_equal(obj_str(p, "protocol"), want[i].protocol);
        assert_string_equal(obj_str(p, "name"), want[i].name);
    }
    json_decref(ports);
    json_decref(spec);
}

static void names_hash_as_the_field_hashes_them(void **state)
{
    static const struct {
        const char *text, *hash;
    } vectors[] = {{"", "811c9dc5"},           {"a", "e40c292c"},
                   {"my-sandbox", "374de8f5"}, {"python-sandbox-pool", "00375482"},
                   {"test", "afd071e5"},       {"sandbox-claim-1234abcd", "fb126098"}};
    char out[HASH_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        hash_text(vectors[i].text, out);
        assert_string_equal(out, vectors[i].hash);
        assert_int_equal(hash_parse(out), hash_str(vectors[i].text));
    }
    assert_int_equal(hash_parse("0037548"), 0);
    assert_int_equal(hash_parse("0037548G"), 0);
    assert_int_equal(hash_parse(NULL), 0);
}

static void the_agents_message_is_read_back(void **state)
{
    char text[128];
    int64_t before, after;

    (void)state;
    snprintf(text, sizeof text, POD_PAUSED_MESSAGE, 5000000000ULL, 1000ULL, 12LL);
    assert_true(pause_message_read(text, &before, &after));
    assert_int_equal(before, 5000000000LL);
    assert_int_equal(after, 1000);
    assert_false(pause_message_read("something else", &before, &after));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_of_a_sandbox_has_its_plan),
        cmocka_unit_test(a_written_status_is_never_written_again),
        cmocka_unit_test(time_of_a_condition_moves_only_with_its_status),
        cmocka_unit_test(the_pod_is_what_the_template_says),
        cmocka_unit_test(ports_of_a_service_are_sorted_and_named),
        cmocka_unit_test(names_hash_as_the_field_hashes_them),
        cmocka_unit_test(the_agents_message_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
