#include "controller/node/egress.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/kube/object.h"

#define LEASE_DEFAULT_S 300

/* Addresses that are not the public internet: RFC 6890 and its IPv6 counterparts, shared address space too.
 */
static const char *const not_public[] = {
    "0.0.0.0/8",    "10.0.0.0/8",   "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",  "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15",  "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/4",  "240.0.0.0/4",  "::/127",         "64:ff9b:1::/48", "100::/64",        "2001:db8::/32",
    "fc00::/7",     "fe80::/10",    "ff00::/8",
};

static void extend(json_t *list, const json_t *more)
{
    if (json_is_array(more))
        (void)json_array_extend(list, (json_t *)(uintptr_t)more);
}

static void add_floors(json_t *hard, const json_t *floors)
{
    for (size_t i = 0; i < json_array_size(floors); i++)
        extend(hard, obj_at(json_array_get(floors, i), "spec.hardDeny"));
}

char *egress_compile(const char *name, const json_t *policy, const json_t *floors)
{
    const char *preset = obj_str(policy, "spec.preset"), *mode = obj_str(policy, "spec.mode");
    json_t *hard = json_array(), *rules = json_array();
    bool internet = preset && strcmp(preset, "open-internet") == 0;

    add_floors(hard, floors);
    for (size_t i = 0; internet && i < ARRAY_LEN(not_public); i++)
        json_array_append_new(rules, json_pack("{s:s,s:s,s:[s]}", "name", "not-public", "action", "Deny",
                                               "cidrs", not_public[i]));
    extend(rules, obj_at(policy, "spec.rules"));
    json_t *root = json_pack(
        "{s:s,s:I,s:s,s:s,s:I,s:o,s:o}", "name", name, "generation",
        (json_int_t)obj_int(policy, "metadata.generation", 0), "mode", mode ? mode : "Enforce",
        "defaultAction", internet ? "Allow" : "Deny", "leaseSeconds",
        (json_int_t)obj_int(policy, "spec.leaseSeconds", LEASE_DEFAULT_S), "hardDeny", hard, "rules", rules);
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (!text)
        abort();
    return text;
}
