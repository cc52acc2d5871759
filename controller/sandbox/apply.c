#include "controller/sandbox/apply.h"

#include <stddef.h>

#include "base/macro.h"
#include "base/scoped.h"
#include "controller/sandbox/kinds.h"

static const struct row {
    enum kube_verb verb;
    const struct kube_resource *resource; /* NULL: the planned object's */
    const char *subresource;
} rows[STEP_KINDS] = {
    [STEP_POD_CREATE] = {KUBE_CREATE, &kind_pod, NULL},
    [STEP_POD_PATCH] = {KUBE_MERGE_PATCH, &kind_pod, NULL},
    [STEP_POD_DELETE] = {KUBE_DELETE, &kind_pod, NULL},
    [STEP_SERVICE_CREATE] = {KUBE_CREATE, &kind_service, NULL},
    [STEP_SERVICE_PATCH] = {KUBE_MERGE_PATCH, &kind_service, NULL},
    [STEP_SERVICE_DELETE] = {KUBE_DELETE, &kind_service, NULL},
    [STEP_PVC_CREATE] = {KUBE_CREATE, &kind_pvc, NULL},
    [STEP_PVC_PATCH] = {KUBE_MERGE_PATCH, &kind_pvc, NULL},
    [STEP_SANDBOX_CREATE] = {KUBE_CREATE, &kind_sandbox, NULL},
    [STEP_SANDBOX_PATCH] = {KUBE_MERGE_PATCH, &kind_sandbox, NULL},
    [STEP_SANDBOX_STATUS] = {KUBE_MERGE_PATCH, &kind_sandbox, "status"},
    [STEP_SANDBOX_DELETE] = {KUBE_DELETE, &kind_sandbox, NULL},
    [STEP_CLAIM_CREATE] = {KUBE_CREATE, &kind_claim, NULL},
    [STEP_CLAIM_PATCH] = {KUBE_MERGE_PATCH, &kind_claim, NULL},
    [STEP_CLAIM_STATUS] = {KUBE_MERGE_PATCH, &kind_claim, "status"},
    [STEP_CLAIM_DELETE] = {KUBE_DELETE, &kind_claim, NULL},
    [STEP_TEMPLATE_CREATE] = {KUBE_CREATE, &kind_template, NULL},
    [STEP_TEMPLATE_PATCH] = {KUBE_MERGE_PATCH, &kind_template, NULL},
    [STEP_TEMPLATE_DELETE] = {KUBE_DELETE, &kind_template, NULL},
    [STEP_POOL_CREATE] = {KUBE_CREATE, &kind_pool, NULL},
    [STEP_POOL_PATCH] = {KUBE_MERGE_PATCH, &kind_pool, NULL},
    [STEP_POOL_STATUS] = {KUBE_MERGE_PATCH, &kind_pool, "status"},
    [STEP_POOL_DELETE] = {KUBE_DELETE, &kind_pool, NULL},
    [STEP_NETPOL_CREATE] = {KUBE_CREATE, &kind_policy, NULL},
    [STEP_NETPOL_UPDATE] = {KUBE_UPDATE, &kind_policy, NULL},
    [STEP_NETPOL_DELETE] = {KUBE_DELETE, &kind_policy, NULL},
    [STEP_FRONT_PATCH] = {KUBE_MERGE_PATCH, NULL, NULL},
    [STEP_FRONT_STATUS] = {KUBE_MERGE_PATCH, NULL, "status"},
};

static void step_apply(struct pass *p, struct step *s, const struct apply_about *about)
{
    const struct row *r = &rows[s->kind];

    pass_add(p, (struct action){
                    .verb = r->verb,
                    .resource = r->resource ? r->resource : about->resource,
                    .ns = about->ns,
                    .name = r->verb == KUBE_CREATE ? NULL
                            : s->name              ? s->name
                                                   : about->name,
                    .subresource = r->subresource,
                    .body = take(s->body),
                    .uid = s->uid,
                    .version = s->version,
                    .propagation = s->propagation,
                    .with_previous = s->parallel,
                    .background = s->background,
                    /* What went meanwhile is reported by its watch; nothing is left to do on it. */
                    .absent_ok = r->verb == KUBE_DELETE || r->subresource != NULL || r->verb == KUBE_GET,
                });
}

void plan_apply(struct pass *p, struct plan *plan, const struct apply_about *about)
{
    for (size_t i = 0; i < plan->n; i++)
        step_apply(p, &plan->steps[i], about);
    for (size_t i = 0; i < plan->n_notes; i++)
        pass_event(p, about->resource, about->json, plan->notes[i].type, plan->notes[i].reason,
                   plan->notes[i].text);
    if (plan->again_ms > 0)
        pass_after(p, plan->again_ms);
}
