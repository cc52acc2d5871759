/* The table, and its plain reading in C. */
#include "shim/filter/filter.h"

#include <assert.h>

#include "shim/filter/cases.h"

#define MEM    RULE_ARG_MEM
#define FD     RULE_ARG_FD
#define REG    RULE_ARG_REG
#define REPORT RULE_REPORT
static const struct rule_case NONE_cases[0];
#define ROW(nr, sys, h, err, fl, c, text)                                                                    \
    [nr] = {.name = #sys,                                                                                    \
            .how = RULE_##h,                                                                                 \
            .error = (err),                                                                                  \
            .flags = (fl),                                                                                   \
            .cases = c##_cases,                                                                              \
            .n_cases = ARRAY_LEN(c##_cases),                                                                 \
            .why = (text)},
static const struct rule rules[] = {
#include "shim/filter/rules.tbl"
};
static_assert(ARRAY_LEN(rules) == 472,
              "a number outside 0..471 got into the table, or one is missing at its end");

const struct rule *rule_for(long nr)
{
    if (nr < 0 || (size_t)nr >= ARRAY_LEN(rules) || rules[nr].how == RULE_NONE)
        return NULL;
    return &rules[nr];
}

long rule_max(void)
{
    return (long)ARRAY_LEN(rules) - 1;
}

const char *rule_how_name(enum rule_how how)
{
    static const char *const names[] = {
        [RULE_NONE] = "none",       [RULE_NATIVE] = "native", [RULE_BROKER] = "broker",
        [RULE_EMULATE] = "emulate", [RULE_AUDIT] = "audit",   [RULE_DENY] = "deny",
    };
    return names[how];
}

static bool list_has(const struct rule_test *t, uint32_t value)
{
    for (size_t i = 0; i < t->n_list; i++)
        if (t->list[i] == value)
            return true;
    return false;
}

static bool test_holds(const struct rule_test *t, const uint64_t args[6])
{
    uint64_t value = t->wide ? args[t->arg] : (uint32_t)args[t->arg];
    switch (t->op) {
    case TEST_BITS:
        return (value & ~t->value) == 0;
    case TEST_IS:
        return value == t->value;
    case TEST_IN:
        return list_has(t, (uint32_t)value & t->mask);
    case TEST_GIVEN:
        return value != 0;
    case TEST_HAS:
        return (value & t->value) != 0;
    default:
        return true;
    }
}

static bool case_holds(const struct rule_case *c, const uint64_t args[6])
{
    for (size_t i = 0; i < RULE_TESTS_MAX; i++)
        if (!test_holds(&c->tests[i], args))
            return false;
    return true;
}

struct rule_verdict rule_judge(long nr, const uint64_t args[6])
{
    const struct rule *r = rule_for(nr);
    if (!r)
        return (struct rule_verdict){.how = RULE_DENY, .error = ENOSYS};

    bool report = r->flags & RULE_REPORT;
    if (r->n_cases == 0)
        return (struct rule_verdict){.how = r->how, .error = r->error, .report = report};
    for (size_t i = 0; i < r->n_cases; i++)
        if (case_holds(&r->cases[i], args))
            return (struct rule_verdict){
                .how = r->cases[i].how, .error = r->cases[i].error, .report = report};
    return (struct rule_verdict){.how = RULE_DENY, .error = r->error, .report = report};
}
