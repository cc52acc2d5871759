#pragma once
/*
 * The disposition of every system call, one row per number (rules.tbl), and the cBPF filter made
 * from it.  Pure: no system calls here.
 *
 * A row without cases has one verdict.  A row with cases is a decision list over argument registers:
 * the first case whose tests all hold gives the verdict, no match means DENY with the row's errno.
 * Tests that lead to anything but DENY allow listed bits or values only, never "all but these": a
 * flag that a later kernel invents stays refused.
 */
#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum rule_how {
    RULE_NONE,    /* no row: ENOSYS */
    RULE_NATIVE,  /* the kernel runs it */
    RULE_BROKER,  /* the sentry performs it on its own copy of the arguments */
    RULE_EMULATE, /* the sentry answers it */
    RULE_AUDIT,   /* the sentry records it, then the kernel runs it; no verdict depends on memory */
    RULE_DENY,    /* error at once (0 = pretend success) */
};
enum {
    RULE_ARG_MEM = 1, /* what the sentry's verdict looks at: the caller's memory, */
    RULE_ARG_FD = 2,  /* one of its descriptors, */
    RULE_ARG_REG = 4, /* registers */
    RULE_REPORT = 8,  /* DENY by way of the sentry, which records it: no honest program does this */
};

enum rule_op {
    TEST_NONE,  /* unused slot */
    TEST_BITS,  /* no bit outside `value` is set */
    TEST_IS,    /* equals `value` */
    TEST_IN,    /* (register & mask) is one of list[] */
    TEST_GIVEN, /* is not 0; for a row whose two answers are both harmless */
    TEST_HAS,   /* a bit of `value` is set; chooses the errno of a DENY case, nothing else */
};
struct rule_test {
    uint8_t op, arg; /* enum rule_op; register 0-5 */
    bool wide;     /* the kernel looks at all 64 bits; otherwise it truncates, so the upper half is ignored */
    uint32_t mask; /* TEST_IN */
    uint64_t value;
    const uint32_t *list;
    size_t n_list;
};
#define RULE_TESTS_MAX 3
struct rule_case {
    enum rule_how how;
    int error; /* DENY */
    struct rule_test tests[RULE_TESTS_MAX];
};

struct rule {
    const char *name;
    enum rule_how how; /* without cases: the verdict; with cases: what the row is about, for the reader */
    int error;         /* DENY, or no case matched */
    unsigned flags;
    const struct rule_case *cases;
    size_t n_cases;
    const char *why;
};

/* NULL when there is no row. */
const struct rule *rule_for(long nr);
long rule_max(void); /* highest number with a row */
const char *rule_how_name(enum rule_how how);

struct rule_verdict {
    enum rule_how how;
    int error; /* DENY */
    bool report;
};
/* The same decision as the filter's, in C: for the sentry's records and as the tests' model. */
struct rule_verdict rule_judge(long nr, const uint64_t args[6]);

struct filter_options {
    bool report_denials; /* debug: every refusal goes by way of the sentry, which records it and gives the
                            same errno */
};
#define FILTER_MAX 4096
/* Writes the program; *ret_n instructions. Foreign ABIs are killed first. */
int filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n,
                 struct err *e);
/*
 * For our own processes: rows of their own, indexed by number; what has no row, or matches no case of
 * a row whose errno is 0, kills the process.
 */
int filter_build_strict(const struct rule *rows, size_t n_rows, struct sock_filter *out, size_t max,
                        size_t *ret_n, struct err *e);
