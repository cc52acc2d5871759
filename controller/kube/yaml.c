#include "controller/kube/yaml.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/json.h"
#include "base/scoped.h"

#define DEPTH_MAX 32
#define NODES_MAX 100000

struct reader {
    yaml_parser_t yaml;
    size_t nodes;
    struct err *e;
};

static int next(struct reader *r, yaml_event_t *ev)
{
    if (yaml_parser_parse(&r->yaml, ev))
        return 0;
    return err_set(r->e, -EINVAL, "line %zu: %s", r->yaml.problem_mark.line + 1,
                   r->yaml.problem ? r->yaml.problem : "not YAML");
}

static int refuse(struct reader *r, const yaml_event_t *ev, const char *what)
{
    return err_set(r->e, -EINVAL, "line %zu: %s", ev->start_mark.line + 1, what);
}

static json_t *scalar(const yaml_event_t *ev)
{
    const char *s = (const char *)ev->data.scalar.value;
    size_t n = ev->data.scalar.length;
    bool plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (plain && (n == 0 || strcmp(s, "~") == 0 || strcmp(s, "null") == 0))
        return json_null();
    if (plain && strcmp(s, "true") == 0)
        return json_true();
    if (plain && strcmp(s, "false") == 0)
        return json_false();
    return memchr(s, 0, n) ? NULL : json_stringn(s, n); /* NULL too when it is not UTF-8 */
}

static int node(struct reader *r, const yaml_event_t *ev, int depth, json_t **ret);

static int sequence(struct reader *r, int depth, json_t **ret)
{
    scoped(json_decref) json_t *list = json_array();

    for (;;) {
        yaml_event_t ev;
        json_t *item = NULL;
        int rc = next(r, &ev);
        if (rc < 0)
            return rc;
        bool end = ev.type == YAML_SEQUENCE_END_EVENT;
        if (!end)
            rc = node(r, &ev, depth, &item);
        yaml_event_delete(&ev);
        if (rc < 0)
            return rc;
        if (end)
            break;
        json_array_append_new(list, item);
    }
    *ret = take(list);
    return 0;
}

/* One "key: value"; 1 at the end of the mapping. */
static int pair(struct reader *r, int depth, json_t *map)
{
    yaml_event_t ev;
    scoped(json_decref) json_t *key = NULL, *value = NULL;
    int rc = next(r, &ev);

    if (rc < 0)
        return rc;
    if (ev.type == YAML_MAPPING_END_EVENT)
        rc = 1;
    else if (ev.type != YAML_SCALAR_EVENT)
        rc = refuse(r, &ev, "a key must be a plain text");
    else if (!(key = json_stringn((const char *)ev.data.scalar.value, ev.data.scalar.length)) ||
             strlen(json_string_value(key)) != ev.data.scalar.length)
        rc = refuse(r, &ev, "a key must be UTF-8 text");
    else if (json_object_get(map, json_string_value(key)))
        rc = refuse(r, &ev, "a key is there twice");
    yaml_event_delete(&ev);
    if (rc != 0)
        return rc;

    rc = next(r, &ev);
    if (rc < 0)
        return rc;
    rc = node(r, &ev, depth, &value);
    yaml_event_delete(&ev);
    if (rc < 0)
        return rc;
    json_object_set_new(map, json_string_value(key), take(value));
    return 0;
}

static int mapping(struct reader *r, int depth, json_t **ret)
{
    scoped(json_decref) json_t *map = json_object();
    int rc;

    while ((rc = pair(r, depth, map)) == 0)
        ;
    if (rc < 0)
        return rc;
    *ret = take(map);
    return 0;
}

static int node(struct reader *r, const yaml_event_t *ev, int depth, json_t **ret)
{
    if (depth >= DEPTH_MAX)
        return refuse(r, ev, "nested too deeply");
    if (++r->nodes > NODES_MAX)
        return refuse(r, ev, "too many values");
    switch (ev->type) {
    case YAML_SCALAR_EVENT:
        *ret = scalar(ev);
        return *ret ? 0 : refuse(r, ev, "not UTF-8 text");
    case YAML_SEQUENCE_START_EVENT:
        return sequence(r, depth + 1, ret);
    case YAML_MAPPING_START_EVENT:
        return mapping(r, depth + 1, ret);
    case YAML_ALIAS_EVENT:
        return refuse(r, ev, "aliases (*name) are not supported");
    default:
        return refuse(r, ev, "a value is missing");
    }
}

/* Skips the start events; an empty stream or document is null. */
static int document(struct reader *r, json_t **ret)
{
    for (;;) {
        yaml_event_t ev;
        int rc = next(r, &ev);
        if (rc < 0)
            return rc;
        bool start = ev.type == YAML_STREAM_START_EVENT || ev.type == YAML_DOCUMENT_START_EVENT;
        if (ev.type == YAML_STREAM_END_EVENT || ev.type == YAML_DOCUMENT_END_EVENT)
            *ret = json_null();
        else if (!start)
            rc = node(r, &ev, 0, ret);
        yaml_event_delete(&ev);
        if (!start)
            return rc;
    }
}

int yaml_parse(const char *text, size_t len, json_t **ret, struct err *e)
{
    struct reader r = {.e = e};

    if (!yaml_parser_initialize(&r.yaml))
        return err_set(e, -ENOMEM, "yaml_parser_initialize failed");
    yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, len);
    int rc = document(&r, ret);
    yaml_parser_delete(&r.yaml);
    return rc;
}
