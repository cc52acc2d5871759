#pragma once
/* Counters, gauges and histograms, and their text for Prometheus (exposition format 0.0.4). */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scoped.h"

struct metrics;
struct metric;
struct strbuf;

enum metric_type { METRIC_NONE, METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };
#define METRIC_LABELS_MAX 8

struct metric_def { /* static const */
    const char *name, *help;
    enum metric_type type;
    const char *label[METRIC_LABELS_MAX];
    const double *buckets; /* upper bounds, ascending, without +Inf */
    size_t n_buckets;
    bool drop_zero; /* a gauge that returns to zero disappears: labels name things that come and go */
};

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);
struct metric *metrics_add(struct metrics *m, const struct metric_def *def);
/* Runs before every render, to set gauges from what they describe. */
void metrics_collect(struct metrics *m, void (*fn)(void *data), void *data);

/* values: one text per label, NULL counts as "".  At most 10000 series a metric; more are not kept. */
void metric_inc(struct metric *t, double by, const char *const *values);
void metric_set(struct metric *t, double value, const char *const *values);
void metric_observe(struct metric *t, double value, const char *const *values);
double metric_value(const struct metric *t,
                    const char *const *values); /* a histogram's count; 0 if unknown */

void metrics_render(struct metrics *m, struct strbuf *out);

SCOPED_DEFINE(struct metrics, metrics_free)
