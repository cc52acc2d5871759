#include "plan_rig.h"

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_claim.h"

#define CLAIM(spec, status)                                                                                  \
    "{'metadata':{'name':'c','namespace':'n','uid':'c1','generation':1,'creationTimestamp':'2023-11-14T22:"  \
    "13:20Z'},"                                                                                              \
    "'spec':{'warmPoolRef':{'name':'p'}" spec "},'status':" status "}"
#define OLD_CLAIM(spec, status)                                                                              \
    "{'metadata':{'name':'c','namespace':'n','uid':'c1','generation':1,'creationTimestamp':'2023-11-14T22:"  \
    "00:00Z'},"                                                                                              \
    "'spec':{'warmPoolRef':{'name':'p'}" spec "},'status':" status "}"
#define REF(kind, uid)                                                                                       \
    "'ownerReferences':[{'apiVersion':'extensions.agents.x-k8s.io/v1beta1','kind':'" kind                    \
    "','name':'x','uid':'" uid "','controller':true}]"
#define BOX(name, owner, status)                                                                             \
    "{'metadata':{'name':'" name "','namespace':'n','uid':'uid-" name                                        \
    "','resourceVersion':'7','creationTimestamp':'2023-11-14T22:00:00Z'," owner "},"                         \
    "'spec':{'podTemplate':{'spec':{'containers':[{'name':'c'}]}}},'status':" status "}"
#define IS_READY                                                                                             \
    "{'podIPs':['10.0.0.1'],'conditions':[{'type':'Ready','status':'True','reason':'DependenciesReady','"    \
    "message':'Pod is Ready','lastTransitionTime':'2023-11-14T21:00:00Z'}]}"
#define IS_PAUSED                                                                                            \
    "{'podIPs':['10.0.0.1'],'conditions':[{'type':'Ready','status':'False','reason':'SandboxPaused','"       \
    "message':'x','lastTransitionTime':'2023-11-14T21:00:00Z'}]}"
#define IS_FINISHED                                                                                          \
    "{'conditions':[{'type':'Finished','status':'True','reason':'PodSucceeded','message':'x','"              \
    "lastTransitionTime':'2023-11-14T22:13:00Z'},{'type':'Ready','status':'False','reason':'PodSucceeded','" \
    "message':'x','lastTransitionTime':'2023-11-14T22:13:00Z'}]}"
#define MINE     REF("SandboxClaim", "c1")
#define OF_POOL  REF("SandboxWarmPool", "p1")
#define OF_OTHER REF("SandboxClaim", "c9")
#define TEMPLATE(spec)                                                                                       \
    "{'metadata':{'name':'t','namespace':'n','uid':'t1'},'spec':{'podTemplate':{'metadata':{'labels':{'"     \
    "sandbox.users.io/set':'1'}},"                                                                           \
    "'spec':{'containers':[{'name':'c','env':[{'name':'HAVE','value':'1'}]}]}}" spec "}}"
#define ENV(name)         ",'env':[{'name':'" name "','value':'v'}]"
#define VOLUME(name)      ",'volumeClaimTemplates':[{'metadata':{'name':'" name "'},'spec':{}}]"
#define LABEL(key, value) ",'additionalPodMetadata':{'labels':{'" key "':'" value "'}}"
#define ANNOTATION(key)   ",'additionalPodMetadata':{'annotations':{'" key "':'1'}}"

struct one {
    const char *what, *claim, *plan;
    const char *owned[2], *named, *noted, *member;
    const char *template; /* NULL: the plain one; "" none */
    const char *ready;    /* written */
    const char *bound;    /* status.sandbox.name written */
    bool no_pool, pool_missing, template_missing, soon, again;
    const char *fault;
};

static const struct one cases[] = {
    {"a ready member is taken, and the claim is Ready in the same pass", CLAIM("", "{}"),
     "sandbox~ claimstatus !SandboxAdopted", .member = BOX("p-1", OF_POOL, IS_READY),
     .ready = "True/DependenciesReady", .bound = "p-1"},
    {"a paused member is taken, and Ready is told when it runs", CLAIM("", "{}"), "sandbox~ !SandboxAdopted",
     .member = BOX("p-1", OF_POOL, IS_PAUSED), .again = true},
    {"an old claim tells its binding at once", OLD_CLAIM("", "{}"), "sandbox~ claimstatus !SandboxAdopted",
     .member = BOX("p-1", OF_POOL, IS_PAUSED), .ready = "False/SandboxPaused", .bound = "p-1"},
    {"a member is about to be ready", CLAIM("", "{}"), "", .soon = true, .again = true},
    {"it took too long", OLD_CLAIM("", "{}"), "sandbox+ !SandboxProvisioned", .soon = true},
    {"no member at all: cold at once", CLAIM("", "{}"), "sandbox+ !SandboxProvisioned", .soon = false},
    {"env starts cold although there is a member", CLAIM(ENV("NEW"), "{}"), "sandbox+ !SandboxProvisioned",
     .member = BOX("p-1", OF_POOL, IS_READY), .template = TEMPLATE(",'envVarsInjectionPolicy':'Allowed'")},
    {"env is not allowed", CLAIM(ENV("NEW"), "{}"), "claimstatus", .ready = "False/EnvVarsInjectionRejected"},
    {"env may add but not replace", CLAIM(ENV("HAVE"), "{}"), "claimstatus",
     .template = TEMPLATE(",'envVarsInjectionPolicy':'Allowed'"), .ready = "False/EnvVarsInjectionRejected"},
    {"env may replace", CLAIM(ENV("HAVE"), "{}"), "sandbox+ !SandboxProvisioned",
     .template = TEMPLATE(",'envVarsInjectionPolicy':'Overrides'")},
    {"env names a container that is not there",
     CLAIM(",'env':[{'name':'A','value':'v','containerName':'zz'}]", "{}"), "claimstatus",
     .template = TEMPLATE(",'envVarsInjectionPolicy':'Overrides'"),
     .ready = "False/EnvVarsInjectionRejected"},
    {"volumes are not allowed", CLAIM(VOLUME("v"), "{}"), "claimstatus",
     .ready = "False/VolumeClaimTemplatesError"},
    {"volumes are allowed", CLAIM(VOLUME("v"), "{}"), "sandbox+ !SandboxProvisioned",
     .template = TEMPLATE(",'volumeClaimTemplatesPolicy':'Allowed'")},
    {"a volume of the template may not be replaced", CLAIM(VOLUME("v"), "{}"), "claimstatus",
     .template = TEMPLATE(",'volumeClaimTemplatesPolicy':'Allowed'" VOLUME("v")),
     .ready = "False/VolumeClaimTemplatesError"},
    {"or it may", CLAIM(VOLUME("v"), "{}"), "sandbox+ !SandboxProvisioned",
     .template = TEMPLATE(",'volumeClaimTemplatesPolicy':'Overrides'" VOLUME("v"))},
    {"a volume without name", CLAIM(VOLUME(""), "{}"), "claimstatus",
     .template = TEMPLATE(",'volumeClaimTemplatesPolicy':'Allowed'"),
     .ready = "False/VolumeClaimTemplatesError"},
    {"a label without domain", CLAIM(LABEL("team", "a"), "{}"), "claimstatus",
     .member = BOX("p-1", OF_POOL, IS_READY), .ready = "False/InvalidMetadata"},
    {"a label of an allowed domain", CLAIM(LABEL("sandbox.users.io/team", "a"), "{}"),
     "sandbox~ claimstatus !SandboxAdopted", .member = BOX("p-1", OF_POOL, IS_READY),
     .ready = "True/DependenciesReady", .bound = "p-1"},
    {"of a sub-domain", CLAIM(LABEL("a.sandbox.users.io/team", "a"), "{}"), "sandbox+ !SandboxProvisioned",
     .soon = false},
    {"of one that only ends alike", CLAIM(LABEL("xsandbox.users.io/team", "a"), "{}"), "claimstatus",
     .ready = "False/InvalidMetadata"},
    {"a label value that is none", CLAIM(LABEL("sandbox.users.io/team", "a b"), "{}"), "claimstatus",
     .ready = "False/InvalidMetadata"},
    {"a label that the template sets otherwise", CLAIM(LABEL("sandbox.users.io/set", "2"), "{}"),
     "claimstatus", .ready = "False/InvalidMetadata"},
    {"an annotation of ours", CLAIM(ANNOTATION("glovebox.dev/pause"), "{}"), "claimstatus",
     .ready = "False/InvalidMetadata"},
    {"an annotation of Kubernetes", CLAIM(ANNOTATION("x.kubernetes.io/a"), "{}"), "claimstatus",
     .ready = "False/InvalidMetadata"},
    {"but one is allowed", CLAIM(ANNOTATION("cluster-autoscaler.kubernetes.io/safe-to-evict"), "{}"),
     "sandbox+ !SandboxProvisioned", .soon = false},
    {"the pool may only be unknown yet", CLAIM("", "{}"), "", .no_pool = true},
    {"the pool is missing", CLAIM("", "{}"), "claimstatus", .no_pool = true, .pool_missing = true,
     .ready = "False/WarmPoolNotFound", .again = true},
    {"the template is missing", CLAIM("", "{}"), "claimstatus", .template = "", .template_missing = true,
     .ready = "False/TemplateNotFound", .again = true},
    {"a stranger has the claim's name", CLAIM("", "{}"), "claimstatus", .named = BOX("c", OF_OTHER, IS_READY),
     .member = BOX("p-1", OF_POOL, IS_READY), .ready = "False/ReconcilerError"},
    {"an adoption that another controller began is ended", CLAIM("", "{}"),
     "sandbox~ claimstatus !SandboxAdopted", .noted = BOX("p-2", OF_POOL, IS_READY),
     .member = BOX("p-1", OF_POOL, IS_READY), .ready = "True/DependenciesReady", .bound = "p-2"},
    {"the sandbox that it has is told", CLAIM("", "{}"), "claimstatus", .owned = {BOX("p-1", MINE, IS_READY)},
     .ready = "True/DependenciesReady", .bound = "p-1"},
    {"after the pool and the template went, too", CLAIM("", "{}"), "claimstatus",
     .owned = {BOX("p-1", MINE, IS_READY)}, .no_pool = true, .template = "",
     .ready = "True/DependenciesReady", .bound = "p-1"},
    {"of two the one in the status stays", CLAIM("", "{'sandbox':{'name':'p-2'}}"), "sandbox- claimstatus",
     .owned = {BOX("p-1", MINE, IS_READY), BOX("p-2", MINE, IS_READY)}, .ready = "True/DependenciesReady"},
    {"the sandbox was deleted by others: another one",
     CLAIM("", "{'sandbox':{'name':'p-1','podIPs':['1']},'conditions':[{'type':'Ready','status':'True','"
               "reason':'x','message':'','lastTransitionTime':'2023-11-14T21:00:00Z'}]}"),
     "sandbox~ claimstatus !SandboxAdopted", .member = BOX("p-3", OF_POOL, IS_READY),
     .ready = "True/DependenciesReady", .bound = "p-3"},
    {"what the API server says is told", CLAIM("", "{}"), "claimstatus", .fault = "denied",
     .ready = "False/ReconcilerError"},
    /* ---- the end ---- */
    {"expired, kept", CLAIM(",'lifecycle':{'shutdownTime':'2023-11-14T22:13:00Z'}", "{}"),
     "sandbox- claimstatus !ClaimExpired", .owned = {BOX("p-1", MINE, IS_READY)},
     .ready = "False/ClaimExpired"},
    {"expired, deleted",
     CLAIM(",'lifecycle':{'shutdownTime':'2023-11-14T22:13:00Z','shutdownPolicy':'Delete'}", "{}"),
     "claim- !ClaimExpired", .owned = {BOX("p-1", MINE, IS_READY)}},
    {"expires later", CLAIM(",'lifecycle':{'shutdownTime':'2023-11-14T22:14:00Z'}", "{}"), "claimstatus",
     .owned = {BOX("p-1", MINE, IS_READY)}, .ready = "True/DependenciesReady", .bound = "p-1", .again = true},
    {"finished, time to live is over",
     CLAIM(",'lifecycle':{'ttlSecondsAfterFinished':10,'shutdownPolicy':'Delete'}", "{}"),
     "claim- !ClaimExpired", .owned = {BOX("p-1", MINE, IS_FINISHED)}},
    {"finished, and has time to live", CLAIM(",'lifecycle':{'ttlSecondsAfterFinished':100}", "{}"),
     "claimstatus", .owned = {BOX("p-1", MINE, IS_FINISHED)}, .ready = "False/PodSucceeded", .bound = "p-1",
     .again = true},
    {"the earlier of both counts",
     CLAIM(",'lifecycle':{'ttlSecondsAfterFinished':100,'shutdownTime':'2023-11-14T22:13:19Z','"
           "shutdownPolicy':'DeleteForeground'}",
           "{}"),
     "claim- !ClaimExpired", .owned = {BOX("p-1", MINE, IS_FINISHED)}},
};

static void check_one(const struct one *c)
{
    static const char *const domains[] = {"sandbox.users.io", NULL};
    json_t *keep[8] = {
        J(c->claim),
        J("{'metadata':{'name':'p','namespace':'n','uid':'p1'},'spec':{'sandboxTemplateRef':{'name':'t'}}}"),
        J(c->template && *c->template ? c->template : TEMPLATE(""))};
    struct claim claim = {.ttl_s = -1};
    struct pool pool = {.replicas = 0};
    struct template template = {.service = 0};
    struct sandbox boxes[5] = {{.service = 0}};
    struct plan plan;
    size_t n = 0, k = 3;

    claim_read(keep[0], &claim);
    pool_read(keep[1], &pool);
    template_read(keep[2], &template);
    struct claim_world w = {.now_ms = NOW_MS,
                            .pool = c->no_pool ? NULL : &pool,
                            .pool_missing = c->pool_missing,
                            .template = c->no_pool || (c->template && !*c->template) ? NULL : &template,
                            .template_missing = c->template_missing,
                            .member_soon = c->soon,
                            .label_domains = domains,
                            .events = true,
                            .fault = c->fault,
                            .hold = c->fault != NULL};
    for (size_t i = 0; i < 2 && c->owned[i]; i++) {
        keep[k] = J(c->owned[i]);
        sandbox_read(keep[k++], &boxes[n++]);
    }
    w.owned = boxes;
    w.n_owned = n;
    const struct {
        const char *text;
        const struct sandbox **to;
    } single[] = {{c->named, &w.named}, {c->noted, &w.noted}, {c->member, &w.member}};
    for (size_t i = 0; i < ARRAY_LEN(single); i++)
        if (single[i].text) {
            keep[k] = J(single[i].text);
            sandbox_read(keep[k++], &boxes[2 + i]);
            *single[i].to = &boxes[2 + i];
        }
    plan_init(&plan);
    claim_plan(&claim, &w, &plan);
    if (strcmp(plan_text(&plan), c->plan) != 0)
        fail_msg("%s: plan is \"%s\", expected \"%s\"", c->what, plan_text(&plan), c->plan);
    if (c->ready && strcmp(written(&plan, STEP_CLAIM_STATUS, COND_READY), c->ready) != 0)
        fail_msg("%s: Ready is \"%s\", expected \"%s\": %s", c->what,
                 written(&plan, STEP_CLAIM_STATUS, COND_READY), c->ready,
                 written_message(&plan, STEP_CLAIM_STATUS, COND_READY));
    const struct step *status = plan_find(&plan, STEP_CLAIM_STATUS);
    const char *bound = status ? obj_str(status->body, "status.sandbox.name") : NULL;
    if (c->bound && (!bound || strcmp(bound, c->bound) != 0))
        fail_msg("%s: bound to %s, expected %s", c->what, bound ? bound : "nothing", c->bound);
    if (c->again != (plan.again_ms > 0))
        fail_msg("%s: looks again in %lld ms", c->what, (long long)plan.again_ms);
    plan_done(&plan);
    for (size_t i = 0; i < k; i++)
        json_decref(keep[i]);
}

static void every_state_of_a_claim_has_its_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        check_one(&cases[i]);
}

/* The field's controller copied the sandbox's time, which is before the claim was made. */
static void ready_of_a_claim_is_not_older_than_the_claim(void **state)
{
    json_t *claim = J(CLAIM("", "{}")), *box = J(BOX("p-1", MINE, IS_READY));
    struct claim c = {.ttl_s = -1};
    struct sandbox s = {.service = 0};
    struct plan plan;

    (void)state;
    claim_read(claim, &c);
    sandbox_read(box, &s);
    plan_init(&plan);
    claim_plan(&c, &(struct claim_world){.now_ms = NOW_MS, .owned = &s, .n_owned = 1}, &plan);
    const json_t *status = json_object_get(plan_find(&plan, STEP_CLAIM_STATUS)->body, "status");
    assert_string_equal(condition_str(condition_find(status, COND_READY), "lastTransitionTime"),
                        "2023-11-14T22:13:20Z");
    plan_done(&plan);
    json_decref(claim);
    json_decref(box);
}

static void adoption_is_one_write_that_only_one_can_win(void **state)
{
    json_t *claim = J(CLAIM("", "{}")), *box = J(BOX("p-1", OF_POOL, IS_READY));
    struct claim c = {.ttl_s = -1};
    struct sandbox s = {.service = 0};

    (void)state;
    claim_read(claim, &c);
    sandbox_read(box, &s);
    json_t *patch = claim_adopt_patch(&c, &s);
    assert_string_equal(obj_version(patch), "7");
    assert_string_equal(obj_uid(patch), "uid-p-1");
    assert_true(obj_is_controlled_by(patch, "c1"));
    assert_true(json_is_null(json_object_get(obj_at(patch, "metadata.labels"), LABEL_POOL)));
    assert_string_equal(obj_label(patch, LABEL_CLAIM_UID), "c1");
    assert_string_equal(obj_label(patch, LABEL_LAUNCH_TYPE), "warm");
    assert_null(json_object_get(patch, "spec")); /* or the generation would move, and the status with it */
    json_decref(patch);
    json_decref(claim);
    json_decref(box);
}

static void a_cold_sandbox_is_secure_and_knows_its_claim(void **state)
{
    json_t *claim = J(CLAIM(ENV("NEW") LABEL("sandbox.users.io/team", "a"), "{}"));
    json_t *tree = J("{'metadata':{'name':'t','namespace':'n','uid':'t1'},'spec':{'service':true,'"
                     "envVarsInjectionPolicy':'Allowed','podTemplate':{'spec':{"
                     "'initContainers':[{'name':'i','securityContext':{'privileged':true}}],'containers':[{'"
                     "name':'c'},{'name':'d','securityContext':{'allowPrivilegeEscalation':true}}]}}}}");
    struct claim c = {.ttl_s = -1};
    struct template t = {.service = 0};
    struct verdict v = {NULL, ""};

    (void)state;
    claim_read(claim, &c);
    template_read(tree, &t);
    json_t *body = claim_sandbox_body(&c, &t, &v);
    assert_non_null(body);
    const json_t *spec = obj_at(body, "spec.podTemplate.spec"),
                 *first = json_array_get(json_object_get(spec, "containers"), 0);
    assert_true(json_is_false(json_object_get(spec, "automountServiceAccountToken")));
    assert_string_equal(obj_str(spec, "dnsPolicy"), "None");
    assert_true(json_is_false(obj_at(first, "securityContext.allowPrivilegeEscalation")));
    assert_true(json_is_true(obj_at(json_array_get(json_object_get(spec, "containers"), 1),
                                    "securityContext.allowPrivilegeEscalation")));
    assert_null(obj_at(json_array_get(json_object_get(spec, "initContainers"), 0),
                       "securityContext.allowPrivilegeEscalation"));
    assert_string_equal(obj_str(json_array_get(json_object_get(first, "env"), 0), "name"), "NEW");
    assert_true(json_is_true(obj_at(body, "spec.service")));
    assert_string_equal(obj_name(body), "c");
    assert_string_equal(obj_label(body, LABEL_CLAIM_UID), "c1");
    assert_string_equal(obj_annotation(body, ANN_TEMPLATE_REF), "t");
    assert_string_equal(json_string_value(json_object_get(obj_at(body, "spec.podTemplate.metadata.labels"),
                                                          "sandbox.users.io/team")),
                        "a");
    /* The template itself is not changed by that. */
    assert_null(obj_at(tree, "spec.podTemplate.spec.automountServiceAccountToken"));
    assert_null(json_object_get(json_array_get(obj_at(tree, "spec.podTemplate.spec.containers"), 0), "env"));
    json_decref(body);
    json_decref(claim);
    json_decref(tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_of_a_claim_has_its_plan),
        cmocka_unit_test(ready_of_a_claim_is_not_older_than_the_claim),
        cmocka_unit_test(adoption_is_one_write_that_only_one_can_win),
        cmocka_unit_test(a_cold_sandbox_is_secure_and_knows_its_claim),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
