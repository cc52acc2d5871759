#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "controller/kube/object.h"
#include "controller/sandbox/build.h"
#include "controller/sandbox/hash.h"
#include "controller/sandbox/names.h"

/*
 * Pods made from templates run other people's code, so they get no token of the cluster and cannot
 * gain privileges, unless the template says otherwise.  Bare Sandboxes are left as they are written.
 */

static bool asks_for_privilege(const json_t *container)
{
    const json_t *add = obj_at(container, "securityContext.capabilities.add");

    if (obj_bool(container, "securityContext.privileged", false))
        return true;
    for (size_t i = 0; i < json_array_size(add); i++) {
        const char *cap = json_string_value(json_array_get(add, i));
        /* The API server refuses allowPrivilegeEscalation: false beside it. */
        if (cap && (strcmp(cap, "SYS_ADMIN") == 0 || strcmp(cap, "CAP_SYS_ADMIN") == 0))
            return true;
    }
    return false;
}

static void secure_containers(json_t *spec, const char *key)
{
    json_t *list = json_object_get(spec, key), *safe;

    if (!json_is_array(list))
        return;
    safe = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *c = json_deep_copy(json_array_get(list, i));

        if (!obj_at(c, "securityContext.allowPrivilegeEscalation") && !asks_for_privilege(c))
            (void)obj_set(c, "securityContext.allowPrivilegeEscalation", json_false());
        json_array_append_new(safe, c);
    }
    json_object_set_new(spec, key, safe);
}

json_t *secure_pod_spec(const struct template *t)
{
    json_t *spec = t->pod_spec ? json_copy((json_t *)(uintptr_t)t->pod_spec) : json_object();

    if (!json_object_get(spec, "automountServiceAccountToken"))
        json_object_set_new(spec, "automountServiceAccountToken", json_false());
    /* The default policy blocks the cluster's DNS on purpose, so names are asked outside. */
    if (!t->unmanaged && !t->network_policy && !json_object_get(spec, "dnsPolicy")) {
        json_object_set_new(spec, "dnsPolicy", json_string("None"));
        if (!json_object_get(spec, "dnsConfig"))
            json_object_set_new(spec, "dnsConfig", json_pack("{s[ss]}", "nameservers", "8.8.8.8", "1.1.1.1"));
    }
    secure_containers(spec, "containers");
    secure_containers(spec, "initContainers");
    return spec;
}

/* Names and specs in order; labels and annotations of a claim do not make a member stale. */
static json_t *claims_digest(const json_t *claims)
{
    json_t *out = json_array();

    for (size_t i = 0; i < json_array_size(claims); i++) {
        const json_t *c = json_array_get(claims, i);
        const char *name = obj_str(c, "metadata.name");
        json_array_append_new(out, json_pack("[sO]", name ? name : "", json_object_get(c, "spec")));
    }
    return out;
}

static json_t *blueprint(const json_t *pod_spec, const json_t *claims, int service)
{
    return json_pack("{sO so si}", "pod", pod_spec, "claims", claims_digest(claims), "service", service);
}

uint32_t blueprint_hash(const struct template *t)
{
    json_t *spec = secure_pod_spec(t), *b = blueprint(spec, t->volume_claims, t->service);
    char *text = json_dumps(b, JSON_COMPACT | JSON_SORT_KEYS);
    uint32_t h = hash_str(text);

    free(text);
    json_decref(b);
    json_decref(spec);
    return h;
}

bool blueprint_equal(const struct template *t, const struct sandbox *s)
{
    json_t *spec = secure_pod_spec(t), *want = blueprint(spec, t->volume_claims, t->service);
    json_t *have = s->pod_spec ? blueprint(s->pod_spec, s->volume_claims, s->service) : NULL;
    bool equal = json_equal(want, have) != 0;

    json_decref(have);
    json_decref(want);
    json_decref(spec);
    return equal;
}

/* ---- NetworkPolicy ---- */

/* Everything that is not the public internet.  The first four are the field's own list. */
static const char *const private_v4[] = {"10.0.0.0/8",    "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
                                         "100.64.0.0/10", "192.0.0.0/24",  "198.18.0.0/15"};
static const char *const private_v6[] = {"fc00::/7", "fe80::/10"};

static json_t *block(const char *cidr, const char *const *except, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_string(except[i]));
    return json_pack("{s{ss so}}", "ipBlock", "cidr", cidr, "except", list);
}

static json_t *default_egress(void)
{
    return json_pack("[{s[oo]}]", "to", block("0.0.0.0/0", private_v4, ARRAY_LEN(private_v4)),
                     block("::/0", private_v6, ARRAY_LEN(private_v6)));
}

static json_t *default_ingress(const char *router_ns)
{
    return json_pack("[{s[{s{s{ss}} s{s{ss}}}]}]", "from", "namespaceSelector", "matchLabels",
                     "kubernetes.io/metadata.name", router_ns, "podSelector", "matchLabels", "app",
                     "sandbox-router");
}

json_t *network_policy_body(const struct template *t, const char *router_ns)
{
    const json_t *own = t->network_policy;
    json_t *ingress = own ? json_object_get(own, "ingress") : NULL,
           *egress = own ? json_object_get(own, "egress") : NULL;
    char hash[HASH_TEXT_MAX];
    json_t *spec;

    hash_text(t->meta.name, hash);
    spec = json_pack("{s{s{ss}} s[ss]}", "podSelector", "matchLabels", LABEL_TEMPLATE_REF_HASH, hash,
                     "policyTypes", "Ingress", "Egress");
    ingress = own ? (json_array_size(ingress) ? json_incref(ingress) : NULL) : default_ingress(router_ns);
    egress = own ? (json_array_size(egress) ? json_incref(egress) : NULL) : default_egress();
    if (ingress)
        json_object_set_new(spec, "ingress", ingress);
    if (egress)
        json_object_set_new(spec, "egress", egress);
    return json_pack("{ss ss s{so ss s{ss} s[o]} so}", "apiVersion", "networking.k8s.io/v1", "kind",
                     "NetworkPolicy", "metadata", "name", json_sprintf("%s-network-policy", t->meta.name),
                     "namespace", t->meta.ns, "labels", LABEL_TEMPLATE_REF_HASH, hash, "ownerReferences",
                     owner_ref(&t->meta, API_EXT, "SandboxTemplate"), "spec", spec);
}
