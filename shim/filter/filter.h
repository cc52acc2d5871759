#pragma once
/*
 * The disposition of every system call, one row per number, and the cBPF filter made from it.  Pure:
 * no system calls here.
 */
#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum rule_how {
    RULE_NONE,    /* no row: ENOSYS */
    RULE_NATIVE,  /* the kernel runs it, if the register masks (if any) hold; otherwise rule.error */
    RULE_BROKER,  /* the sentry performs it on its own copy of the arguments */
    RULE_EMULATE, /* the sentry answers it */
    RULE_AUDIT,   /* the sentry records it, then the kernel runs it; no verdict depends on memory */
    RULE_DENY,    /* rule.error at once (0 = pretend success) */
};
enum { RULE_ARG_MEM = 1, RULE_ARG_FD = 2, RULE_ARG_REG = 4 }; /* what the sentry's verdict looks at */

struct rule {
    const char *name;
    enum rule_how how;
    int error;
    unsigned flags;
    const struct rule_mask *masks; /* register conditions; see filter.c */
    size_t n_masks;
    const char *why;
};

/* NULL when there is no row. */
const struct rule *rule_for(long nr);
long rule_max(void); /* highest number with a row */

struct filter_options {
    bool reduced;        /* kernel without a feature the full form needs */
    bool no_new_privs;
};
#define FILTER_MAX 4096
/* Writes the program; *ret_n instructions. Foreign ABIs are killed first. */
int filter_build(const struct filter_options *o, struct sock_filter *out, size_t max, size_t *ret_n, struct err *e);
