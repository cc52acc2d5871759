#pragma once
/* For the tests of plan functions: objects as JSON with ' for ", plans as one line of text. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller/sandbox/model.h"
#include "controller/sandbox/plan.h"

#define NOW_MS 1700000000000LL /* 2023-11-14T22:13:20Z */

/* The tree; printf arguments are put in first.  The caller frees. */
static inline json_t *J(const char *text)
{
    char copy[8192];
    json_error_t e;

    assert_true(strlen(text) < sizeof copy);
    for (size_t i = 0; i <= strlen(text); i++)
        copy[i] = text[i] == '\'' ? '"' : text[i];
    json_t *o = json_loads(copy, JSON_DECODE_ANY, &e);
    if (!o)
        fail_msg("%s at %d in %s", e.text, e.position, copy);
    return o;
}

static const char *const step_names[STEP_KINDS] = {
    [STEP_POD_CREATE] = "pod+",           [STEP_POD_PATCH] = "pod~",
    [STEP_POD_DELETE] = "pod-",           [STEP_SERVICE_CREATE] = "svc+",
    [STEP_SERVICE_PATCH] = "svc~",        [STEP_SERVICE_DELETE] = "svc-",
    [STEP_PVC_CREATE] = "pvc+",           [STEP_PVC_PATCH] = "pvc~",
    [STEP_SANDBOX_CREATE] = "sandbox+",   [STEP_SANDBOX_PATCH] = "sandbox~",
    [STEP_SANDBOX_STATUS] = "status",     [STEP_SANDBOX_DELETE] = "sandbox-",
    [STEP_CLAIM_CREATE] = "claim+",       [STEP_CLAIM_PATCH] = "claim~",
    [STEP_CLAIM_STATUS] = "claimstatus",  [STEP_CLAIM_DELETE] = "claim-",
    [STEP_TEMPLATE_CREATE] = "template+", [STEP_TEMPLATE_PATCH] = "template~",
    [STEP_POOL_CREATE] = "pool+",         [STEP_POOL_PATCH] = "pool~",
    [STEP_POOL_STATUS] = "poolstatus",    [STEP_NETPOL_CREATE] = "policy+",
    [STEP_NETPOL_UPDATE] = "policy~",     [STEP_NETPOL_DELETE] = "policy-",
    [STEP_FRONT_PATCH] = "front~",        [STEP_FRONT_STATUS] = "frontstatus",
};

/* "pod+ status !SandboxReady" */
static inline const char *plan_text(const struct plan *p)
{
    static char out[2048];

    out[0] = '\0';
    for (size_t i = 0; i < p->n; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%s", *out ? " " : "",
                 step_names[p->steps[i].kind]);
    for (size_t i = 0; i < p->n_notes; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s!%s", *out ? " " : "", p->notes[i].reason);
    return out;
}

/* "True/Reason" of a condition that a status step writes; "" when it does not. */
static inline const char *written(const struct plan *p, enum step_kind kind, const char *type)
{
    static char out[256];
    const struct step *s = plan_find(p, kind);
    const json_t *c = s ? condition_find(json_object_get(s->body, "status"), type) : NULL;

    snprintf(out, sizeof out, "%s%s%s", condition_str(c, "status"), c ? "/" : "", condition_str(c, "reason"));
    return out;
}

static inline const char *written_message(const struct plan *p, enum step_kind kind, const char *type)
{
    const struct step *s = plan_find(p, kind);

    return condition_str(s ? condition_find(json_object_get(s->body, "status"), type) : NULL, "message");
}
