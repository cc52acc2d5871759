#include "controller/cli/flags.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "base/scoped.h"

int duration_parse(const char *text, long *ret_ms)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"ms", 1}, {"us", 0.001}, {"h", 3600000}, {"m", 60000}, {"s", 1000}};
    double total = 0;

    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return 0;
    }
    if (!*text)
        return -EINVAL;
    while (*text) {
        char *end;
        double n = *text == '-' ? -1 : strtod(text, &end);
        size_t i = 0;

        if (n < 0 || end == text)
            return -EINVAL;
        while (i < ARRAY_LEN(units) && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        if (i == ARRAY_LEN(units))
            return -EINVAL;
        total += n * units[i].ms;
        text = end + strlen(units[i].unit);
    }
    if (!(total < 1e12))
        return -EINVAL;
    *ret_ms = (long)total;
    return 0;
}

static int parse_bool(const char *text, bool *ret)
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0)
        *ret = true;
    else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0)
        *ret = false;
    else
        return -EINVAL;
    return 0;
}

static int flag_set(const struct flag *f, const char *value, void *out, struct err *e)
{
    void *at = (char *)out + f->offset;
    uint64_t n;
    bool dummy;

    switch (f->type) {
    case FLAG_STRING:
        *(const char **)at = value;
        return 0;
    case FLAG_BOOL:
        if (parse_bool(value, at) < 0)
            return err_set(e, -EINVAL, "--%s must be true or false, not \"%s\"", f->name, value);
        return 0;
    case FLAG_INT:
        if (parse_u64(value, INT32_MAX, &n) < 0)
            return err_set(e, -EINVAL, "--%s must be a whole number from 0 to %d, not \"%s\"", f->name,
                           INT32_MAX, value);
        *(long *)at = (long)n;
        return 0;
    case FLAG_DURATION_MS:
        if (duration_parse(value, at) < 0)
            return err_set(e, -EINVAL, "--%s must be a duration like 90s or 1m30s, not \"%s\"", f->name,
                           value);
        return 0;
    case FLAG_IGNORED_BOOL:
        if (parse_bool(value, &dummy) < 0)
            return err_set(e, -EINVAL, "--%s must be true or false, not \"%s\"", f->name, value);
        return 0;
    case FLAG_IGNORED:
        return 0;
    }
    return 0;
}

static const struct flag *flag_find(const struct flag *flags, const char *name, size_t n)
{
    for (; flags->name; flags++)
        if (strlen(flags->name) == n && strncmp(flags->name, name, n) == 0)
            return flags;
    return NULL;
}

int flags_parse(const struct flag *flags, int argc, char **argv, void *out, struct err *e)
{
    for (int i = 0; i < argc; i++) {
        const char *name = argv[i];

        if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0)
            return 1;
        if (name[0] != '-')
            return err_set(e, -EINVAL, "\"%s\" is not a flag; see --help", name);
        name += name[1] == '-' ? 2 : 1;
        size_t n = strcspn(name, "=");
        const struct flag *f = flag_find(flags, name, n);
        if (!f)
            return err_set(e, -EINVAL, "unknown flag --%.*s; see --help", (int)n, name);
        const char *value = name[n] == '=' ? name + n + 1 : NULL;
        bool boolean = f->type == FLAG_BOOL || f->type == FLAG_IGNORED_BOOL;
        if (!value && boolean)
            value = "true";
        else if (!value && i + 1 < argc)
            value = argv[++i];
        else if (!value)
            return err_set(e, -EINVAL, "--%s needs a value", f->name);
        int r = flag_set(f, value, out, e);
        if (r < 0)
            return r;
    }
    return 0;
}

void flags_print(const struct flag *flags, const char *usage)
{
    (void)printf("%s\n\nflags:\n", usage);
    for (; flags->name; flags++)
        if (flags->help)
            (void)printf("  --%-40s %s\n", flags->name, flags->help);
}
