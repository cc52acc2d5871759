#include "plan_rig.h"

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_pool.h"
#include "controller/sandbox/plan_template.h"

#define POOL(spec, status)                                                                                   \
    "{'metadata':{'name':'p','namespace':'n','uid':'p1','generation':2},'spec':{'sandboxTemplateRef':{'"     \
    "name':'t'}" spec "},'status':" status "}"
#define TEMPLATE                                                                                             \
    "{'metadata':{'name':'t','namespace':'n','uid':'t1'},'spec':{'podTemplate':{'metadata':{'labels':{'a':'" \
    "b'}},'spec':{'containers':[{'name':'c'}]}}}}"

/* One letter a member: R ready, P paused, S starting, O starting for too long, U unschedulable for long, F
 * finished, D going, E refused by the API server, X taken by a claim just now; lower case: of an older
 * template. Older members stand first. */
struct one {
    const char *what, *pool, *members, *plan;
    int64_t starts_max;
    const char *progress, *ready; /* written */
    bool deferred, template_missing;
    const char *fault;
};

static const struct one cases[] = {
    {"an empty pool is filled", POOL(",'replicas':3", "{}"), "", "sandbox+ sandbox+ sandbox+",
     .deferred = true},
    {"one by default", POOL("", "{}"), "", "sandbox+", .deferred = true},
    {"not more at a time than allowed", POOL(",'replicas':9", "{}"), "SS", "sandbox+ sandbox+",
     .starts_max = 4, .deferred = true},
    {"a full one is left alone", POOL(",'replicas':3", "{}"), "RRR", "", .deferred = true},
    {"a taken member is replaced", POOL(",'replicas':3", "{}"), "RRX", "sandbox+", .deferred = true},
    {"a going member is replaced", POOL(",'replicas':3", "{}"), "RRD", "sandbox+", .deferred = true},
    {"paused members count", POOL(",'replicas':3", "{}"), "PPP", "", .deferred = true},
    {"surplus goes", POOL(",'replicas':1", "{}"), "RRS", "sandbox- sandbox-", .deferred = true},
    {"scaled to zero", POOL(",'replicas':0", "{}"), "RR", "sandbox- sandbox-", .deferred = true},
    {"a finished member is replaced", POOL(",'replicas':2", "{}"), "RF", "sandbox- sandbox+",
     .deferred = true},
    {"one that does not get ready is replaced", POOL(",'replicas':2", "{}"), "RO", "sandbox- sandbox+",
     .deferred = true},
    {"one that finds no node is kept", POOL(",'replicas':2", "{}"), "RU",
     "poolstatus !WarmPoolNotProgressing", .progress = "False/WarmPoolNotProgressing",
     .ready = "False/MembersNotReady"},
    {"one that the API server refuses is kept, and that is said", POOL(",'replicas':2", "{}"), "RE",
     "poolstatus !WarmPoolNotProgressing", .progress = "False/WarmPoolNotProgressing"},
    {"until the template has changed", POOL(",'replicas':2", "{}"), "Re",
     "sandbox- sandbox+ poolstatus !WarmPoolNotProgressing", .starts_max = 100},
    {"older members stay until claimed", POOL(",'replicas':3", "{}"), "rrr", "", .deferred = true},
    {"or are replaced, a quarter at a time", POOL(",'replicas':4,'updateStrategy':{'type':'Recreate'}", "{}"),
     "rrrr", "sandbox- sandbox+", .deferred = true},
    {"and not one more before the new one is ready",
     POOL(",'replicas':4,'updateStrategy':{'type':'Recreate'}", "{}"), "rrrS", "", .deferred = true},
    {"then the next", POOL(",'replicas':4,'updateStrategy':{'type':'Recreate'}", "{}"), "rrrR",
     "sandbox- sandbox+", .deferred = true},
    {"older ones that are not ready go at once",
     POOL(",'replicas':4,'updateStrategy':{'type':'Recreate'}", "{}"), "ssss",
     "sandbox- sandbox- sandbox- sandbox- sandbox+ sandbox+ sandbox+ sandbox+", .deferred = true},
    {"without a template nothing is made, and that is said", POOL(",'replicas':2", "{}"), "R",
     "poolstatus !WarmPoolNotProgressing", .template_missing = true,
     .progress = "False/SandboxTemplateError"},
    {"what the API server says is told", POOL(",'replicas':2", "{}"), "",
     "poolstatus !WarmPoolNotProgressing", .fault = "no quota", .progress = "False/WarmPoolNotProgressing"},
};

static struct sandbox_digest digest_of(char letter, size_t i)
{
    char kind = (char)(letter & ~0x20);
    struct sandbox_digest d = {.created_ms = NOW_MS - 1000000 + (int64_t)i * 1000,
                               .owner = OWNER_POOL,
                               .has_ips = true,
                               .template = letter & 0x20 ? 1 : 7};

    d.ready = kind == 'R' || kind == 'P' || kind == 'X';
    d.paused = kind == 'P';
    d.deleting = kind == 'D';
    d.finished = kind == 'F';
    d.unschedulable = kind == 'U';
    d.faulty = kind == 'E';
    d.unready_ms = d.ready ? 0 : kind == 'S' ? NOW_MS - 1000 : NOW_MS - 400000;
    return d;
}

static size_t members_of(const char *text, struct member *out, struct sandbox_digest *digests,
                         char names[][8])
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++) {
        digests[i] = digest_of(text[i], i);
        snprintf(names[i], 8, "m%u", (unsigned)i & 15);
        out[i] = (struct member){.d = &digests[i],
                                 .name = names[i],
                                 .uid = names[i],
                                 .version = i,
                                 .reserved = text[i] == 'X',
                                 .stale = (text[i] & 0x20) != 0};
    }
    return n;
}

static void every_state_of_a_pool_has_its_plan(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct one *c = &cases[i];
        json_t *pool = J(c->pool), *tree = J(TEMPLATE);
        struct pool p = {.replicas = 0};
        struct template t = {.service = 0};
        struct member members[16];
        struct sandbox_digest digests[16];
        char names[16][8];
        struct plan plan;
        bool deferred;

        pool_read(pool, &p);
        template_read(tree, &t);
        struct pool_world w = {.now_ms = NOW_MS,
                               .members = members,
                               .template = c->template_missing ? NULL : &t,
                               .template_missing = c->template_missing,
                               .template_hash = 7,
                               .starts_max = c->starts_max ? c->starts_max : 100,
                               .grace_ms = 300000,
                               .fault = c->fault,
                               .hold = c->fault != NULL};
        w.n = members_of(c->members, members, digests, names);
        plan_init(&plan);
        pool_plan(&p, &w, &plan, &deferred);
        if (strcmp(plan_text(&plan), c->plan) != 0)
            fail_msg("%s: plan is \"%s\", expected \"%s\"", c->what, plan_text(&plan), c->plan);
        if (deferred != c->deferred)
            fail_msg("%s: deferred is %d", c->what, deferred);
        if (c->progress && strcmp(written(&plan, STEP_POOL_STATUS, COND_PROGRESSING), c->progress) != 0)
            fail_msg("%s: Progressing is \"%s\"", c->what,
                     written(&plan, STEP_POOL_STATUS, COND_PROGRESSING));
        if (c->ready && strcmp(written(&plan, STEP_POOL_STATUS, COND_READY), c->ready) != 0)
            fail_msg("%s: Ready is \"%s\"", c->what, written(&plan, STEP_POOL_STATUS, COND_READY));
        plan_done(&plan);
        json_decref(pool);
        json_decref(tree);
    }
}

static void counts_are_written_only_when_they_have_settled(void **state)
{
    json_t *pool = J(POOL(",'replicas':2", "{}")), *tree = J(TEMPLATE);
    struct pool p = {.replicas = 0};
    struct template t = {.service = 0};
    struct member members[16];
    struct sandbox_digest digests[16];
    char names[16][8];
    struct plan plan;
    bool deferred;

    (void)state;
    pool_read(pool, &p);
    template_read(tree, &t);
    struct pool_world w = {.now_ms = NOW_MS,
                           .members = members,
                           .template = &t,
                           .template_hash = 7,
                           .starts_max = 9,
                           .grace_ms = 300000};
    w.n = members_of("RP", members, digests, names);
    plan_init(&plan);
    pool_plan(&p, &w, &plan, &deferred);
    assert_true(deferred);
    assert_int_equal(plan.again_ms, POOL_SETTLE_MS);
    plan_done(&plan);

    w.deferred_ms = NOW_MS - POOL_SETTLE_MS;
    w.n = members_of("RP", members, digests, names);
    plan_init(&plan);
    pool_plan(&p, &w, &plan, &deferred);
    assert_false(deferred);
    const json_t *status = json_object_get(plan_find(&plan, STEP_POOL_STATUS)->body, "status");
    assert_int_equal(obj_int(status, "replicas", -1), 2);
    assert_int_equal(obj_int(status, "readyReplicas", -1), 2);
    assert_int_equal(obj_int(status, "pausedReplicas", -1), 1);
    assert_int_equal(obj_int(status, "observedGeneration", -1), 2);
    assert_string_equal(written(&plan, STEP_POOL_STATUS, COND_READY), "True/AllMembersReady");
    plan_done(&plan);
    json_decref(pool);
    json_decref(tree);
}

static void a_member_is_only_deleted_as_it_was_seen(void **state)
{
    json_t *pool = J(POOL(",'replicas':1", "{}"));
    struct pool p = {.replicas = 0};
    struct member members[16];
    struct sandbox_digest digests[16];
    char names[16][8];
    struct plan plan;
    bool deferred;

    (void)state;
    pool_read(pool, &p);
    struct pool_world w = {
        .now_ms = NOW_MS, .members = members, .template_hash = 7, .starts_max = 9, .grace_ms = 300000};
    w.n = members_of("RSR", members, digests, names);
    plan_init(&plan);
    pool_plan(&p, &w, &plan, &deferred);
    assert_int_equal(plan.n, 2);
    /* The one that is not ready first, then the newest; each by uid and version, so that a claim that was
     * faster keeps it. */
    assert_string_equal(plan.steps[0].name, "m1");
    assert_string_equal(plan.steps[0].uid, "m1");
    assert_string_equal(plan.steps[0].version, "1");
    assert_string_equal(plan.steps[1].name, "m2");
    plan_done(&plan);
    json_decref(pool);
}

static void the_best_member_is_picked(void **state)
{
    static const struct {
        const char *members;
        uint32_t nodes[8];
        bool recreate;
        int want;
        size_t soon;
    } picks[] = {
        {"", {0}, false, -1, 0},         {"SS", {0}, false, -1, 2},
        {"SR", {0}, false, 1, 1},        {"RR", {0}, false, 0, 0}, /* the oldest */
        {"rR", {0}, false, 1, 0},                                  /* of the present template */
        {"r", {0}, false, 0, 0},                                   /* better an older one than none */
        {"r", {0}, true, -1, 0},                                   /* unless they are being replaced */
        {"PR", {0}, false, 1, 0},                                  /* running before paused */
        {"RRR", {1, 2, 2}, false, 1, 0},                           /* from the node that has more */
        {"XRD", {0}, false, 1, 0},                                 /* not one that another claim takes */
        {"XFDU", {0}, false, -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(picks); i++) {
        struct member members[16];
        struct sandbox_digest digests[16];
        char names[16][8];
        size_t n = members_of(picks[i].members, members, digests, names), soon;

        for (size_t k = 0; k < n; k++)
            digests[k].node = picks[i].nodes[k];
        int got = pool_pick(members, n, 7, picks[i].recreate, &soon);
        if (got != picks[i].want || soon != picks[i].soon)
            fail_msg("\"%s\": picked %d, %zu soon", picks[i].members, got, soon);
    }
}

static void a_member_on_a_node_that_is_out_is_not_picked(void **state)
{
    struct member members[16];
    struct sandbox_digest digests[16];
    char names[16][8];
    size_t n = members_of("RR", members, digests, names), soon;

    (void)state;
    members[0].node_out = true;
    assert_int_equal(pool_pick(members, n, 7, false, &soon), 1);
}

static void new_members_have_names_of_their_own(void **state)
{
    json_t *pool = J(POOL(",'replicas':300", "{}")), *tree = J(TEMPLATE);
    struct pool p = {.replicas = 0};
    struct template t = {.service = 0};
    struct member members[1];
    struct plan plan;
    bool deferred;

    (void)state;
    pool_read(pool, &p);
    template_read(tree, &t);
    struct pool_world w = {.now_ms = NOW_MS,
                           .members = members,
                           .template = &t,
                           .template_hash = 7,
                           .starts_max = 300,
                           .grace_ms = 1,
                           .seed = 12345};
    plan_init(&plan);
    pool_plan(&p, &w, &plan, &deferred);
    assert_int_equal(plan.n, 300);
    size_t same = 0;
    for (size_t i = 0; i < plan.n; i++)
        for (size_t k = 0; k < i; k++)
            same += strcmp(plan.steps[i].name, plan.steps[k].name) == 0;
    assert_int_equal(same, 0);
    const json_t *body = plan.steps[0].body;
    assert_string_equal(obj_annotation(body, ANN_POD_NAME), obj_name(body));
    assert_string_equal(obj_label(body, LABEL_TEMPLATE_HASH), "00000007");
    assert_true(obj_is_controlled_by(body, "p1"));
    assert_true(json_is_false(obj_at(body, "spec.podTemplate.spec.automountServiceAccountToken")));
    plan_done(&plan);
    json_decref(pool);
    json_decref(tree);
}

/* ---- templates ---- */

#define TPL(spec)                                                                                            \
    "{'metadata':{'name':'t','namespace':'n','uid':'t1','labels':{'agents.x-k8s.io/"                         \
    "sandbox-template-ref-hash':'f17c2f9a'}},'spec':{'podTemplate':{'spec':{'containers':[]}}" spec "}}"
#define OF_TEMPLATE                                                                                          \
    "'ownerReferences':[{'apiVersion':'extensions.agents.x-k8s.io/"                                          \
    "v1beta1','kind':'SandboxTemplate','name':'t','uid':'t1','controller':true}]"

static void a_template_keeps_its_network_policy(void **state)
{
    static const struct {
        const char *template, *policy, *plan;
    } table[] = {
        {TPL(""), NULL, "template~ policy+"},
        {TPL(",'networkPolicyManagement':'Unmanaged'"), NULL, "template~"},
        {TPL(",'networkPolicyManagement':'Unmanaged'"), "{'metadata':{'uid':'x'," OF_TEMPLATE "},'spec':{}}",
         "template~ policy-"},
        {TPL(",'networkPolicyManagement':'Unmanaged'"), "{'metadata':{'uid':'x'},'spec':{}}", "template~"},
        {TPL(""), "{'metadata':{'uid':'x'},'spec':{}}", "template~ !ReconcilerError"},
        {TPL(""), "{'metadata':{'uid':'x','resourceVersion':'5'," OF_TEMPLATE "},'spec':{}}",
         "template~ policy~"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        json_t *tree = J(table[i].template), *policy = table[i].policy ? J(table[i].policy) : NULL;
        struct template t = {.service = 0};
        struct plan plan;

        template_read(tree, &t);
        plan_init(&plan);
        template_plan(&t, &(struct template_world){.policy = policy, .router_ns = "r"}, &plan);
        if (strcmp(plan_text(&plan), table[i].plan) != 0)
            fail_msg("case %zu: plan is \"%s\", expected \"%s\"", i, plan_text(&plan), table[i].plan);
        plan_done(&plan);
        json_decref(tree);
        json_decref(policy);
    }
}

static void a_policy_that_the_server_has_completed_is_not_written_again(void **state)
{
    json_t *tree = J(TPL(",'networkPolicy':{'ingress':[],'egress':[{'ports':[{'port':53}]}]}"));
    struct template t = {.service = 0};
    struct plan plan;

    (void)state;
    template_read(tree, &t);
    json_t *policy = network_policy_body(&t, "r");
    (void)obj_set(policy, "metadata.uid", json_string("x"));
    assert_null(
        obj_at(policy, "spec.ingress")); /* an empty list: the direction is denied by its type alone */
    json_object_set_new(json_array_get(obj_at(json_array_get(obj_at(policy, "spec.egress"), 0), "ports"), 0),
                        "protocol", json_string("TCP"));
    plan_init(&plan);
    template_plan(&t, &(struct template_world){.policy = policy, .router_ns = "r"}, &plan);
    assert_null(plan_find(&plan, STEP_NETPOL_UPDATE));
    plan_done(&plan);
    json_decref(policy);
    json_decref(tree);
}

static void labels_of_pods_do_not_make_members_stale(void **state)
{
    json_t *a = J(TEMPLATE), *b = J(TEMPLATE), *c = J(TEMPLATE);
    struct template ta = {.service = 0}, tb = {.service = 0}, tc = {.service = 0};

    (void)state;
    (void)obj_set(b, "spec.podTemplate.metadata.labels.a", json_string("other"));
    (void)obj_set(c, "spec.podTemplate.spec.hostname", json_string("other"));
    template_read(a, &ta);
    template_read(b, &tb);
    template_read(c, &tc);
    assert_int_equal(blueprint_hash(&ta), blueprint_hash(&tb));
    assert_int_not_equal(blueprint_hash(&ta), blueprint_hash(&tc));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_of_a_pool_has_its_plan),
        cmocka_unit_test(counts_are_written_only_when_they_have_settled),
        cmocka_unit_test(a_member_is_only_deleted_as_it_was_seen),
        cmocka_unit_test(the_best_member_is_picked),
        cmocka_unit_test(a_member_on_a_node_that_is_out_is_not_picked),
        cmocka_unit_test(new_members_have_names_of_their_own),
        cmocka_unit_test(a_template_keeps_its_network_policy),
        cmocka_unit_test(a_policy_that_the_server_has_completed_is_not_written_again),
        cmocka_unit_test(labels_of_pods_do_not_make_members_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
