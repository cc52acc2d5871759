/*
 * The pod's egress policy: from the sandbox's annotation at the start, later from the node agent.
 *
 *   glovebox.dev/egress: open          whatever the pod network lets through (also without the annotation)
 *                        none          nothing but the pod's own loopback
 *                        {...}         the policy itself, as shim/egress/policy.h describes it
 *                        NAME          nothing, until the node agent has sent the policy of that name
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/scoped.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"
#include "shim/sentry/sentry.h"

#define ANNOTATION      "glovebox.dev/egress"
#define NOTHING         "{\"name\":\"none\"}"
#define RESOLV_CONF     "/etc/resolv.conf"
#define RESOLV_CONF_MAX 65536

/* The file that the pod's resolv.conf is a bind mount of. */
static const char *resolv_conf_source(const struct spec *s)
{
    for (size_t i = s->n_mounts; i-- > 0;)
        if (s->mounts[i].destination && strcmp(s->mounts[i].destination, RESOLV_CONF) == 0)
            return s->mounts[i].source;
    return NULL;
}

/* Names can only be allowed where we answer for them, so this comes with the first policy. */
static int serve_dns(struct runtime *rt, struct err *e)
{
    scoped_free char *text = NULL;
    int r = file_read(-1, rt->resolv_conf, RESOLV_CONF_MAX, &text, NULL, e);

    if (r == 0)
        r = sentry_serve_dns(rt->sentry, rt->pod, text, e);
    return r;
}

int runtime_set_egress(struct runtime *rt, const char *json, size_t len, struct err *e)
{
    struct err dns = {0};

    if (!rt->sentry)
        return err_set(e, -EBUSY, "the pod has no sentry: failed precondition");
    int r = sentry_set_policy(rt->sentry, json, len, e);
    if (r < 0)
        return r;
    if (json && !rt->serves_dns && rt->resolv_conf) {
        rt->serves_dns = true;
        if (serve_dns(rt, &dns) < 0) /* addresses still work; names stay closed, and the log says why */
            log_warn("the pod has no resolver of its own", "pod=%s error=%s", rt->pod_id, err_text(&dns));
    }
    log_info("egress policy set", "pod=%s bytes=%zu", rt->pod_id, json ? len : 0);
    return 0;
}

int runtime_confirm_egress(struct runtime *rt, struct err *e)
{
    return rt->sentry ? sentry_confirm_policy(rt->sentry, e)
                      : err_set(e, -EBUSY, "the pod has no sentry: failed precondition");
}

int egress_begin(struct runtime *rt, const struct spec *spec, struct err *e)
{
    const char *want = spec_annotation(spec, ANNOTATION);
    const char *source = resolv_conf_source(spec);

    free(rt->resolv_conf);
    rt->resolv_conf = xstrdup(source);
    rt->serves_dns = false;
    if (!want || strcmp(want, "open") == 0)
        return 0;
    const char *json = want[0] == '{' ? want : NOTHING;
    int r = runtime_set_egress(rt, json, strlen(json), e);
    return r < 0 ? err_wrap(e, r, "annotation " ANNOTATION) : 0;
}
