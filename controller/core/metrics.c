#include "controller/core/metrics.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/map.h"
#include "base/strbuf.h"

#define SERIES_MAX     10000
#define LABEL_TEXT_MAX 8192

struct series {
    struct list node; /* on metric.series, in order of appearance */
    char *labels;     /* a="b",c="d" */
    double value;     /* histogram: sum */
    uint64_t count;
    uint64_t *bucket; /* not cumulative */
};

struct metric {
    struct list node;
    const struct metric_def *def;
    struct map *by_labels;
    struct list series;
};

struct collector {
    struct list node;
    void (*fn)(void *data);
    void *data;
};

struct metrics {
    struct list metrics, collectors;
};

struct metrics *metrics_new(void)
{
    struct metrics *m = xcalloc(1, sizeof *m);

    list_init(&m->metrics);
    list_init(&m->collectors);
    return m;
}

static void series_free(struct series *s)
{
    list_remove(&s->node);
    free(s->labels);
    free(s->bucket);
    free(s);
}

static void metric_free(struct metric *t)
{
    LIST_FOREACH(n, &t->series)
    series_free(LIST_ENTRY(n, struct series, node));
    map_free(t->by_labels);
    free(t);
}

void metrics_free(struct metrics *m)
{
    if (!m)
        return;
    LIST_FOREACH(n, &m->metrics)
    metric_free(LIST_ENTRY(n, struct metric, node));
    LIST_FOREACH(n, &m->collectors)
    free(LIST_ENTRY(n, struct collector, node));
    free(m);
}

struct metric *metrics_add(struct metrics *m, const struct metric_def *def)
{
    struct metric *t = xcalloc(1, sizeof *t);

    t->def = def;
    t->by_labels = map_new();
    list_init(&t->series);
    list_append(&m->metrics, &t->node);
    return t;
}

void metrics_collect(struct metrics *m, void (*fn)(void *data), void *data)
{
    struct collector *c = xcalloc(1, sizeof *c);

    c->fn = fn;
    c->data = data;
    list_append(&m->collectors, &c->node);
}

static void put_label(struct strbuf *out, const char *name, const char *value)
{
    strbuf_printf(out, "%s%s=\"", out->len ? "," : "", name);
    for (; *value; value++) {
        if (*value == '\n')
            strbuf_puts(out, "\\n");
        else if (*value == '"' || *value == '\\')
            strbuf_printf(out, "\\%c", *value);
        else
            strbuf_putc(out, *value);
    }
    strbuf_putc(out, '"');
}

static void label_text(const struct metric *t, const char *const *values, struct strbuf *out)
{
    strbuf_init(out, LABEL_TEXT_MAX);
    for (size_t i = 0; i < METRIC_LABELS_MAX && t->def->label[i]; i++)
        put_label(out, t->def->label[i], values && values[i] ? values[i] : "");
}

static struct series *series_of(struct metric *t, const char *const *values)
{
    struct strbuf labels;

    label_text(t, values, &labels);
    scoped_free char *key = strbuf_detach(&labels);
    strbuf_done(&labels);
    struct series *s = map_get(t->by_labels, key);
    if (s || map_count(t->by_labels) >= SERIES_MAX)
        return s;
    s = xcalloc(1, sizeof *s);
    if (t->def->type == METRIC_HISTOGRAM)
        s->bucket = xcalloc(t->def->n_buckets + 1, sizeof *s->bucket);
    map_put(t->by_labels, key, s);
    s->labels = take(key);
    list_append(&t->series, &s->node);
    return s;
}

static void drop_if_zero(struct metric *t, struct series *s)
{
    if (!t->def->drop_zero || s->value != 0)
        return;
    map_remove(t->by_labels, s->labels);
    series_free(s);
}

void metric_inc(struct metric *t, double by, const char *const *values)
{
    assert(t->def->type != METRIC_HISTOGRAM);
    struct series *s = series_of(t, values);

    if (!s)
        return;
    s->value += by;
    drop_if_zero(t, s);
}

void metric_set(struct metric *t, double value, const char *const *values)
{
    struct series *s = series_of(t, values);

    if (!s)
        return;
    s->value = value;
    drop_if_zero(t, s);
}

void metric_observe(struct metric *t, double value, const char *const *values)
{
    assert(t->def->type == METRIC_HISTOGRAM);
    struct series *s = series_of(t, values);
    size_t i = 0;

    if (!s)
        return;
    while (i < t->def->n_buckets && value > t->def->buckets[i])
        i++;
    s->bucket[i]++;
    s->count++;
    s->value += value;
}

double metric_value(const struct metric *t, const char *const *values)
{
    struct strbuf labels;

    label_text(t, values, &labels);
    const struct series *s = map_get(t->by_labels, labels.data);
    strbuf_done(&labels);
    if (!s)
        return 0;
    return t->def->type == METRIC_HISTOGRAM ? (double)s->count : s->value;
}

static void put_value(struct strbuf *out, double v)
{
    if (v < 1e15 && v > -1e15 && v == (double)(int64_t)v)
        strbuf_printf(out, "%.0f\n", v);
    else
        strbuf_printf(out, "%.9g\n", v);
}

static void put_line(struct strbuf *out, const char *name, const char *suffix, const struct series *s,
                     const char *more)
{
    bool braces = *s->labels || *more;

    strbuf_printf(out, "%s%s%s%s%s%s%s ", name, suffix, braces ? "{" : "", s->labels,
                  *s->labels && *more ? "," : "", more, braces ? "}" : "");
}

static void put_histogram(struct strbuf *out, const struct metric_def *d, const struct series *s)
{
    uint64_t below = 0;
    char le[48];

    for (size_t i = 0; i <= d->n_buckets; i++) {
        below += s->bucket[i];
        if (i < d->n_buckets)
            (void)snprintf(le, sizeof le, "le=\"%.9g\"", d->buckets[i]);
        else
            (void)snprintf(le, sizeof le, "le=\"+Inf\"");
        put_line(out, d->name, "_bucket", s, le);
        put_value(out, (double)below);
    }
    put_line(out, d->name, "_sum", s, "");
    put_value(out, s->value);
    put_line(out, d->name, "_count", s, "");
    put_value(out, (double)s->count);
}

static void put_metric(struct strbuf *out, const struct metric *t)
{
    static const char *const type[] = {"untyped", "counter", "gauge", "histogram"};
    const struct metric_def *d = t->def;

    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", d->name, d->help, d->name, type[d->type]);
    LIST_FOREACH(n, &t->series)
    {
        const struct series *s = LIST_ENTRY(n, struct series, node);
        if (d->type == METRIC_HISTOGRAM) {
            put_histogram(out, d, s);
        } else {
            put_line(out, d->name, "", s, "");
            put_value(out, s->value);
        }
    }
}

void metrics_render(struct metrics *m, struct strbuf *out)
{
    LIST_FOREACH(n, &m->collectors)
    {
        struct collector *c = LIST_ENTRY(n, struct collector, node);
        c->fn(c->data);
    }
    LIST_FOREACH(n, &m->metrics)
    put_metric(out, LIST_ENTRY(n, struct metric, node));
}
