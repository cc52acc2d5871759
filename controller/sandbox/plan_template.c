#include "controller/sandbox/plan_template.h"

#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "controller/kube/object.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

static void plan_label(const struct template *t, struct plan *plan)
{
    const char *have = meta_label(&t->meta, LABEL_TEMPLATE_REF_HASH);
    char want[HASH_TEXT_MAX];

    hash_text(t->meta.name, want);
    if (!have || strcmp(have, want) != 0)
        plan_add(plan, STEP_TEMPLATE_PATCH, NULL,
                 json_pack("{s{ss s{ss}}}", "metadata", "uid", t->meta.uid, "labels", LABEL_TEMPLATE_REF_HASH,
                           want));
}

/* Lists that are empty leave no trace in the object that the API server keeps, and a port without a
 * protocol comes back as TCP. */
static void add_defaults(json_t *rules)
{
    for (size_t i = 0; i < json_array_size(rules); i++) {
        json_t *ports = json_object_get(json_array_get(rules, i), "ports");
        for (size_t j = 0; j < json_array_size(ports); j++)
            if (!json_object_get(json_array_get(ports, j), "protocol"))
                json_object_set_new(json_array_get(ports, j), "protocol", json_string("TCP"));
    }
}

static bool policy_is_equal(const json_t *have, const json_t *want)
{
    json_t *a = json_deep_copy(json_object_get(want, "spec"));

    add_defaults(json_object_get(a, "ingress"));
    add_defaults(json_object_get(a, "egress"));
    bool equal = json_equal(a, json_object_get(have, "spec")) &&
                 json_equal(obj_at(want, "metadata.labels"), obj_at(have, "metadata.labels"));
    json_decref(a);
    return equal;
}

void template_plan(const struct template *t, const struct template_world *w, struct plan *plan)
{
    scoped_free char *name = xasprintf("%s-network-policy", t->meta.name);
    struct meta m = {.name = NULL};

    if (meta_is_deleting(&t->meta))
        return;
    plan_label(t, plan);
    if (w->policy)
        meta_read(w->policy, &m);
    if (w->policy && !meta_is_owned_by(&m, "SandboxTemplate", t->meta.uid)) {
        if (t->unmanaged)
            return;
        plan_note(plan, "Warning", R_RECONCILER_ERROR,
                  "NetworkPolicy \"%s\" exists and is not this template's, so it is left as it is; delete it",
                  name);
    } else if (t->unmanaged) {
        if (w->policy)
            plan_delete(plan, STEP_NETPOL_DELETE, name, m.uid);
    } else {
        json_t *want = network_policy_body(t, w->router_ns);

        if (!w->policy)
            plan_add(plan, STEP_NETPOL_CREATE, name, json_incref(want));
        else if (!policy_is_equal(w->policy, want)) {
            (void)obj_set(want, "metadata.uid", json_string(m.uid));
            (void)obj_set(want, "metadata.resourceVersion", json_string(m.version));
            plan_add(plan, STEP_NETPOL_UPDATE, name, json_incref(want));
        }
        json_decref(want);
    }
}
