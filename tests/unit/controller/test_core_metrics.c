#include "unit.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "controller/core/metrics.h"

static const double bounds[] = {1, 2.5, 10};
static const struct metric_def counter = {
    .name = "c_total", .help = "Things", .type = METRIC_COUNTER, .label = {"a", "b"}};
static const struct metric_def gauge = {
    .name = "g", .help = "Now", .type = METRIC_GAUGE, .label = {"x"}, .drop_zero = true};
static const struct metric_def histogram = {.name = "h_ms",
                                            .help = "How long",
                                            .type = METRIC_HISTOGRAM,
                                            .label = {"k"},
                                            .buckets = bounds,
                                            .n_buckets = 3};

static void the_text_is_what_prometheus_reads(void **state)
{
    scoped(metrics_free) struct metrics *m = metrics_new();
    struct metric *c = metrics_add(m, &counter), *g = metrics_add(m, &gauge), *h = metrics_add(m, &histogram);
    scoped_strbuf struct strbuf out;

    (void)state;
    strbuf_init(&out, 100000);
    metric_inc(c, 2, (const char *const[]){"1", "q\"\\\n"});
    metric_inc(c, 1, (const char *const[]){"1", NULL});
    metric_inc(g, 1, (const char *const[]){"gone"});
    metric_inc(g, -1, (const char *const[]){"gone"});
    metric_set(g, 0.25, (const char *const[]){"here"});
    static const double observed[] = {0.5, 1, 2, 3, 100};
    for (size_t i = 0; i < ARRAY_LEN(observed); i++)
        metric_observe(h, observed[i], (const char *const[]){"v"});
    metrics_render(m, &out);
    assert_string_equal(out.data, "# HELP c_total Things\n# TYPE c_total counter\n"
                                  "c_total{a=\"1\",b=\"q\\\"\\\\\\n\"} 2\nc_total{a=\"1\",b=\"\"} 1\n"
                                  "# HELP g Now\n# TYPE g gauge\ng{x=\"here\"} 0.25\n"
                                  "# HELP h_ms How long\n# TYPE h_ms histogram\n"
                                  "h_ms_bucket{k=\"v\",le=\"1\"} 2\nh_ms_bucket{k=\"v\",le=\"2.5\"} 3\n"
                                  "h_ms_bucket{k=\"v\",le=\"10\"} 4\nh_ms_bucket{k=\"v\",le=\"+Inf\"} 5\n"
                                  "h_ms_sum{k=\"v\"} 106.5\nh_ms_count{k=\"v\"} 5\n");
    assert_true(metric_value(h, (const char *const[]){"v"}) == 5);
    assert_true(metric_value(c, (const char *const[]){"no", "no"}) == 0);
}

static void too_many_series_are_not_kept(void **state)
{
    scoped(metrics_free) struct metrics *m = metrics_new();
    struct metric *g = metrics_add(m, &gauge);
    size_t there = 0;

    (void)state;
    for (int i = 0; i < 10100; i++) {
        scoped_free char *name = xasprintf("%d", i);
        metric_set(g, 1, (const char *const[]){name});
        there += metric_value(g, (const char *const[]){name}) == 1;
    }
    assert_int_equal(there, 10000);
}

static void on_collect(void *data)
{
    metric_set(data, 7, (const char *const[]){"x"});
}

static void collectors_run_before_every_render(void **state)
{
    scoped(metrics_free) struct metrics *m = metrics_new();
    struct metric *g = metrics_add(m, &gauge);
    scoped_strbuf struct strbuf out;

    (void)state;
    strbuf_init(&out, 1000);
    metrics_collect(m, on_collect, g);
    metrics_render(m, &out);
    assert_non_null(strstr(out.data, "g{x=\"x\"} 7\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_what_prometheus_reads),
        cmocka_unit_test(too_many_series_are_not_kept),
        cmocka_unit_test(collectors_run_before_every_render),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
