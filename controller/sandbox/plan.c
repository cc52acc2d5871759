#include "controller/sandbox/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "controller/kube/object.h"
#include "controller/sandbox/model.h"

void plan_init(struct plan *p)
{
    *p = (struct plan){.n = 0};
}

static void step_clear(struct step *s)
{
    free(s->name);
    free(s->uid);
    free(s->version);
    json_decref(s->body);
    *s = (struct step){.kind = STEP_NONE};
}

void plan_drop_steps(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        step_clear(&p->steps[i]);
    p->n = 0;
    for (size_t i = 0; i < p->n_notes; i++)
        free(p->notes[i].text);
    p->n_notes = 0;
}

void plan_done(struct plan *p)
{
    plan_drop_steps(p);
    free(p->steps);
    plan_init(p);
}

struct step *plan_add(struct plan *p, enum step_kind kind, const char *name, json_t *body)
{
    static struct step scratch;
    struct step *s = &scratch;

    if (p->n < PLAN_STEPS_MAX) {
        p->steps = xgrow(p->steps, p->n, &p->cap, sizeof *p->steps);
        s = &p->steps[p->n++];
    } else {
        step_clear(&scratch);
    }
    *s = (struct step){.kind = kind, .name = xstrdup(name), .body = body};
    return s;
}

struct step *plan_delete(struct plan *p, enum step_kind kind, const char *name, const char *uid)
{
    struct step *s = plan_add(p, kind, name, NULL);

    s->uid = xstrdup(uid);
    return s;
}

void plan_again(struct plan *p, int64_t ms)
{
    ms = MAX(ms, 1);
    if (p->again_ms == 0 || ms < p->again_ms)
        p->again_ms = ms;
}

void plan_note(struct plan *p, const char *type, const char *reason, const char *fmt, ...)
{
    if (p->n_notes == PLAN_NOTES_MAX)
        return;

    char text[1000];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    p->notes[p->n_notes++] = (struct note){type, reason, xstrdup(text)};
}

void plan_in_background(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        p->steps[i].background = true;
}

const struct step *plan_find(const struct plan *p, enum step_kind kind)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->steps[i].kind == kind)
            return &p->steps[i];
    return NULL;
}

/* ---- conditions ---- */

void conds_init(struct conds *c, const json_t *status, int64_t generation, int64_t now_ms)
{
    *c = (struct conds){.list = json_array(), .before = status, .generation = generation, .now_ms = now_ms};
}

void conds_set(struct conds *c, const char *type, const char *status, const char *reason, const char *fmt,
               ...)
{
    const json_t *old = condition_find(c->before, type);
    char message[2048], time[OBJ_TIME_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    /* vsnprintf may cut a character in two, and jansson refuses text that is not UTF-8. */
    json_t *text = json_string(message);
    for (size_t n = strlen(message); !text && n > 0; text = json_string(message))
        message[--n] = '\0';
    if (condition_is(old, status))
        (void)snprintf(time, sizeof time, "%s", condition_str(old, "lastTransitionTime"));
    else
        obj_format_time(c->now_ms, time);
    json_t *made = json_pack("{ss ss ss so ss}", "type", type, "status", status, "reason", reason, "message",
                             text ? text : json_string(""), "lastTransitionTime", time);
    if (c->generation > 0)
        json_object_set_new(made, "observedGeneration", json_integer(c->generation));
    json_array_append_new(c->list, made);
}

void conds_keep(struct conds *c, const char *type)
{
    const json_t *old = condition_find(c->before, type);

    if (old)
        json_array_append_new(c->list, json_deep_copy(old));
}

json_t *conds_take(struct conds *c)
{
    /* Insertion sort: there are at most eight. */
    json_t *sorted = json_array();

    for (size_t i = 0; i < json_array_size(c->list); i++) {
        json_t *one = json_array_get(c->list, i);
        size_t at = 0;

        while (at < json_array_size(sorted) &&
               strcmp(condition_str(json_array_get(sorted, at), "type"), condition_str(one, "type")) < 0)
            at++;
        json_array_insert(sorted, at, one);
    }
    json_decref(c->list);
    c->list = NULL;
    return sorted;
}

json_t *status_patch(const json_t *before, json_t *wanted)
{
    json_t *changed = json_object();
    const char *key;
    json_t *value;

    json_object_foreach(wanted, key, value) if (!json_equal(json_object_get(before, key), value))
        json_object_set(changed, key, value);
    json_object_foreach((json_t *)(uintptr_t)before, key, value) if (!json_object_get(wanted, key))
        json_object_set_new(changed, key, json_null());
    json_decref(wanted);
    if (json_object_size(changed) == 0) {
        json_decref(changed);
        return NULL;
    }
    return json_pack("{so}", "status", changed);
}
