#include "plan_rig.h"

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/names.h"
#include "controller/sandbox/plan_front.h"

#define FRONT(spec)                                                                                          \
    "{'metadata':{'name':'f','namespace':'n','uid':'f1','generation':4,'resourceVersion':'9'},'spec':{'"     \
    "template':{'spec':{'containers':[{'name':'c'}]}},'shutdownPolicy':'Retain'" spec "}}"
#define DRIVEN                                                                                               \
    "'ownerReferences':[{'apiVersion':'sandbox.k8s.io/"                                                      \
    "v1alpha1','kind':'Sandbox','name':'f','uid':'f1','controller':true}]"
#define CORE(spec, last)                                                                                     \
    "{'metadata':{'name':'f','namespace':'n','uid':'k1'," DRIVEN                                             \
    ",'annotations':{'glovebox.dev/front-shared':'" last                                                     \
    "'}},'spec':{'podTemplate':{'spec':{'containers':[{'name':'c'}]}},'shutdownPolicy':'Retain','"           \
    "operatingMode':'Running','service':true" spec "}}"
#define CORE_STATUS(spec, last, seen)                                                                        \
    "{'metadata':{'name':'f','namespace':'n','uid':'k1','generation':2," DRIVEN                              \
    ",'annotations':{'glovebox.dev/front-shared':'" last                                                     \
    "'}},'spec':{'podTemplate':{'spec':{'containers':[{'name':'c'}]}},'shutdownPolicy':'Retain','"           \
    "operatingMode':'Running','service':true" spec                                                           \
    "},'status':{'nodeName':'x','conditions':[{'type':'Ready','status':'True','reason':'r','message':'m','"  \
    "lastTransitionTime':'2023-11-14T22:13:20Z','observedGeneration':" seen "}]}}"
#define STRANGER "{'metadata':{'name':'f','namespace':'n','uid':'k1'},'spec':{}}"

static void a_front_and_its_core_are_kept_in_step(void **state)
{
    static const struct {
        const char *what, *front, *core, *plan;
        const char *core_paused, *front_paused; /* what is written: "true", "false" or NULL */
    } table[] = {
        {"the core object is made", FRONT(""), NULL, "sandbox+", NULL, NULL},
        {"both in step", FRONT(""), CORE("", "false"), "", NULL, NULL},
        {"patched on the front", FRONT(",'paused':true"), CORE("", "false"), "sandbox~", "true", NULL},
        {"patched on the core", FRONT(""), CORE(",'paused':true", "false"), "front~ sandbox~", NULL, "true"},
        {"and the front has followed", FRONT(",'paused':true"), CORE(",'paused':true", "true"), "", NULL,
         NULL},
        {"resumed on the front", FRONT(",'paused':false"), CORE(",'paused':true", "true"), "sandbox~",
         "false", NULL},
        {"resumed on the core", FRONT(",'paused':true"), CORE(",'paused':false", "true"), "front~ sandbox~",
         NULL, "false"},
        {"both patched alike before we looked", FRONT(",'paused':true"), CORE(",'paused':true", "false"),
         "sandbox~", NULL, NULL},
        {"both patched against each other: the front counts", FRONT(",'paused':true"),
         CORE(",'paused':false", "false"), "sandbox~", "true", NULL},
        {"somebody changed the core's template: it is set right", FRONT(""),
         CORE(",'volumeClaimTemplates':[]", "false"), "sandbox~", NULL, NULL},
        {"suspended by the core's own field: that is its user's", FRONT(""),
         CORE(",'operatingMode':'Suspended'", "false"), "", NULL, NULL},
        {"a stranger of the name is not touched", FRONT(""), STRANGER, "frontstatus", NULL, NULL},
        {"the status is shown", FRONT(""), CORE_STATUS("", "false", "2"), "frontstatus", NULL, NULL},
        {"but not one of an older spec", FRONT(""), CORE_STATUS("", "false", "1"), "", NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        json_t *front = J(table[i].front), *core = table[i].core ? J(table[i].core) : NULL;
        struct plan plan;

        plan_init(&plan);
        front_plan(FRONT_SANDBOX, front,
                   &(struct front_world){.now_ms = NOW_MS, .core = core, .pod_resources = true}, &plan);
        if (strcmp(plan_text(&plan), table[i].plan) != 0)
            fail_msg("%s: plan is \"%s\", expected \"%s\"", table[i].what, plan_text(&plan), table[i].plan);
        const struct {
            enum step_kind kind;
            const char *want;
        } wrote[] = {{STEP_SANDBOX_PATCH, table[i].core_paused}, {STEP_FRONT_PATCH, table[i].front_paused}};
        for (size_t k = 0; k < ARRAY_LEN(wrote); k++) {
            const struct step *s = plan_find(&plan, wrote[k].kind);
            const json_t *v = s ? obj_at(s->body, "spec.paused") : NULL;
            const char *got = !v ? "nothing" : json_is_true(v) ? "true" : "false";
            if (strcmp(got, wrote[k].want ? wrote[k].want : "nothing") != 0)
                fail_msg("%s: paused is written as %s", table[i].what, got);
        }
        plan_done(&plan);
        json_decref(front);
        json_decref(core);
    }
}

static void the_front_shows_its_own_generation(void **state)
{
    json_t *front = J(FRONT("")), *core = J(CORE_STATUS("", "false", "2"));
    struct plan plan;

    (void)state;
    plan_init(&plan);
    front_plan(FRONT_SANDBOX, front, &(struct front_world){.core = core, .pod_resources = true}, &plan);
    const json_t *status = json_object_get(plan_find(&plan, STEP_FRONT_STATUS)->body, "status");
    assert_int_equal(obj_int(condition_find(status, COND_READY), "observedGeneration", 0), 4);
    assert_string_equal(obj_str(status, "nodeName"), "x");
    plan_done(&plan);
    json_decref(front);
    json_decref(core);
}

static void resources_of_a_pod_are_passed_on_or_spread(void **state)
{
    json_t *front =
        J("{'metadata':{'name':'f'},'spec':{'template':{'spec':{'containers':[{'name':'c'},{'name':'d','"
          "resources':{'limits':{'cpu':'2'}}}],'resources':{'limits':{'cpu':'1'}}}}}}");

    (void)state;
    json_t *spec = front_spec(FRONT_SANDBOX, front, &(struct front_world){.pod_resources = true});
    assert_string_equal(obj_str(spec, "podTemplate.spec.resources.limits.cpu"), "1");
    json_decref(spec);
    spec = front_spec(FRONT_SANDBOX, front, &(struct front_world){.pod_resources = false});
    const json_t *containers = obj_at(spec, "podTemplate.spec.containers");
    assert_null(obj_at(spec, "podTemplate.spec.resources"));
    assert_string_equal(obj_str(json_array_get(containers, 0), "resources.limits.cpu"), "1");
    assert_string_equal(obj_str(json_array_get(containers, 1), "resources.limits.cpu"), "2");
    json_decref(spec);
    /* The front itself stays as it was written. */
    assert_string_equal(obj_str(front, "spec.template.spec.resources.limits.cpu"), "1");
    json_decref(front);
}

static void a_claim_by_template_gets_a_pool(void **state)
{
    json_t *front = J("{'metadata':{'name':'f','namespace':'n','uid':'f1'},'spec':{'sandboxTemplateRef':{'"
                      "name':'t'},'env':[]}}"),
           *tree = J("{'metadata':{'name':'t','namespace':'n','uid':'t1'}}");
    struct meta template = {.name = NULL};
    struct plan plan;

    (void)state;
    meta_read(tree, &template);
    plan_init(&plan);
    front_plan(FRONT_CLAIM, front,
               &(struct front_world){.pool = "shadow-pool-t", .make_pool = true, .template = &template},
               &plan);
    assert_string_equal(plan_text(&plan), "pool+ claim+");
    assert_int_equal(obj_int(plan.steps[0].body, "spec.replicas", -1), 0);
    assert_string_equal(obj_str(plan.steps[1].body, "spec.warmPoolRef.name"), "shadow-pool-t");
    assert_null(obj_at(plan.steps[1].body, "spec.sandboxTemplateRef"));
    plan_done(&plan);

    plan_init(&plan);
    front_plan(FRONT_CLAIM, front, &(struct front_world){.template_missing = true}, &plan);
    assert_string_equal(plan_text(&plan), "frontstatus");
    assert_string_equal(written(&plan, STEP_FRONT_STATUS, COND_READY), "False/TemplateNotFound");
    plan_done(&plan);
    json_decref(front);
    json_decref(tree);
}

static void a_pool_may_be_scaled_on_either_side(void **state)
{
    json_t *front = J("{'metadata':{'name':'f','namespace':'n','uid':'f1','resourceVersion':'1'},'spec':{'"
                      "replicas':3,'sandboxTemplateRef':{'name':'t'}}}");
    json_t *core =
        J("{'metadata':{'name':'f','namespace':'n','uid':'k1','ownerReferences':[{'apiVersion':'sandbox.k8s."
          "io/v1alpha1','kind':'SandboxWarmPool','name':'f','uid':'f1','controller':true}],"
          "'annotations':{'glovebox.dev/"
          "front-shared':'3'}},'spec':{'replicas':7,'sandboxTemplateRef':{'name':'t'}}}");
    struct plan plan;

    (void)state;
    plan_init(&plan);
    front_plan(FRONT_POOL, front, &(struct front_world){.core = core}, &plan);
    assert_string_equal(plan_text(&plan), "front~ pool~");
    assert_int_equal(obj_int(plan.steps[0].body, "spec.replicas", 0), 7);
    assert_string_equal(json_string_value(json_object_get(obj_at(plan.steps[1].body, "metadata.annotations"),
                                                          ANN_FRONT_SHARED)),
                        "7");
    plan_done(&plan);
    json_decref(front);
    json_decref(core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_front_and_its_core_are_kept_in_step),
        cmocka_unit_test(the_front_shows_its_own_generation),
        cmocka_unit_test(resources_of_a_pod_are_passed_on_or_spread),
        cmocka_unit_test(a_claim_by_template_gets_a_pool),
        cmocka_unit_test(a_pool_may_be_scaled_on_either_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
