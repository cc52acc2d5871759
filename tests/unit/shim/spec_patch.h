#pragma once
/* A configuration with one member changed, for tables of cases. */
#include "tests/unit/shim/unit.h"

#include <jansson.h>
#include <stdlib.h>

static const char spec_base[] =
    "{\"ociVersion\":\"1.0.2\","
    "\"process\":{\"cwd\":\"/\",\"args\":[\"sh\"],\"env\":[\"PATH=/bin\"],\"user\":{\"uid\":1,\"gid\":2}},"
    "\"root\":{\"path\":\"rootfs\"},\"hostname\":\"box\","
    "\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"}],"
    "\"linux\":{\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":"
    "\"uts\"},{\"type\":\"mount\"}],"
    "\"resources\":{\"devices\":[{\"allow\":false,\"access\":\"rwm\"}]},\"cgroupsPath\":\"/a/b\"}}";

/*
 * "linux.resources.cpu.quota" or "mounts.0.type"; missing objects are made. value NULL: take the member out;
 * else it becomes a place holder, because jansson cannot hold every number that a configuration may have.
 */
static UNUSED void spec_set(json_t *root, const char *path, const char *value)
{
    char buf[256];
    (void)snprintf(buf, sizeof buf, "%s", path);
    char *rest = buf, *word = strsep(&rest, ".");
    json_t *at = root;
    for (; rest; word = strsep(&rest, ".")) {
        json_t *next =
            json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10)) : json_object_get(at, word);
        if (!next) {
            next = json_object();
            assert_int_equal(json_object_set_new(at, word, next), 0);
        }
        at = next;
    }
    json_t *v = value ? json_string("@value@") : NULL;
    if (!value)
        (void)json_object_del(at, word);
    else if (json_is_array(at))
        assert_int_equal(json_array_set_new(at, strtoul(word, NULL, 10), v), 0);
    else
        assert_int_equal(json_object_set_new(at, word, v), 0);
}

static UNUSED char *spec_with(const char *path, const char *value)
{
    json_t *root = json_loads(spec_base, 0, NULL);
    assert_non_null(root);
    if (path)
        spec_set(root, path, value);
    char *text = json_dumps(root, 0), *place = strstr(text, "\"@value@\"");
    json_decref(root);
    if (!place)
        return text;
    size_t size = strlen(text) + strlen(value) + 1;
    char *out = malloc(size);
    assert_non_null(out);
    (void)snprintf(out, size, "%.*s%s%s", (int)(place - text), text, value, place + strlen("\"@value@\""));
    free(text);
    return out;
}
