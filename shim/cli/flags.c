#include "shim/cli/flags.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/macro.h"

#define NAME_LEN_MAX 76

#define TEXT(flag, field)                                                                                    \
    {                                                                                                        \
        flag, false, offsetof(struct cli_flags, field)                                                       \
    }
#define BOOL(flag, field)                                                                                    \
    {                                                                                                        \
        flag, true, offsetof(struct cli_flags, field)                                                        \
    }
static const struct flag {
    const char *name;
    bool is_bool;
    size_t offset;
} table[] = {
    TEXT("namespace", ns),
    TEXT("id", id),
    TEXT("address", address),
    TEXT("publish-binary", publish_binary),
    TEXT("bundle", bundle),
    TEXT("socket", socket),
    TEXT("debug-socket", debug_socket),
    BOOL("debug", debug),
    BOOL("v", version),
    BOOL("version", version),
    BOOL("info", info),
    BOOL("h", help),
    BOOL("help", help),
};

static const struct flag *find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

static int parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};

    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *ret = strcmp(text, yes[i]) == 0;
            return 0;
        }
    }
    return -EINVAL;
}

/* Parses argv[*i] and what belongs to it. 1: it is no flag. */
static int parse_one(int argc, char **argv, int *i, struct cli_flags *f, struct err *e)
{
    const char *arg = argv[*i];

    if (arg[0] != '-' || arg[1] == '\0')
        return 1;
    const char *name = arg + (arg[1] == '-' ? 2 : 1);
    if (*name == '\0') { /* "--" */
        ++*i;
        return 1;
    }
    if (*name == '-' || *name == '=')
        return err_set(e, -EINVAL, "bad flag syntax: %s", arg);
    const char *value = strchr(name, '=');
    size_t len = value ? (size_t)(value - name) : strlen(name);
    const struct flag *flag = find(name, len);
    if (!flag)
        return err_set(e, -EINVAL, "flag provided but not defined: -%.*s", (int)MIN(len, (size_t)100), name);

    value = value ? value + 1 : NULL;
    char *field = (char *)f + flag->offset;
    if (flag->is_bool) {
        bool on = true;
        if (value && parse_bool(value, &on) < 0)
            return err_set(e, -EINVAL, "flag -%s: \"%.100s\" is neither true nor false", flag->name, value);
        memcpy(field, &on, sizeof on);
    } else {
        if (!value && ++*i >= argc)
            return err_set(e, -EINVAL, "flag needs an argument: -%s", flag->name);
        if (!value)
            value = argv[*i];
        memcpy(field, &value, sizeof value);
    }
    ++*i;
    return 0;
}

int cli_flags_parse(int argc, char **argv, struct cli_flags *ret, struct err *e)
{
    struct cli_flags f = {.ns = "",
                          .id = "",
                          .address = "",
                          .publish_binary = "",
                          .bundle = "",
                          .socket = "",
                          .debug_socket = ""};
    int r = 0;
    int i = 1;

    while (i < argc && (r = parse_one(argc, argv, &i, &f, e)) == 0)
        ;
    if (r < 0)
        return r;
    f.action = i < argc ? argv[i] : NULL;
    *ret = f;
    return 0;
}

int cli_check_name(const char *flag, const char *value, struct err *e)
{
    size_t n = strlen(value);
    bool separator = true; /* there must be a letter or digit on both sides of one */

    if (n == 0)
        return err_set(e, -EINVAL, "-%s is missing", flag);
    if (n > NAME_LEN_MAX)
        return err_set(e, -EINVAL, "-%s is longer than %d characters", flag, NAME_LEN_MAX);
    for (size_t i = 0; i < n; i++) {
        bool word = isascii((unsigned char)value[i]) && isalnum((unsigned char)value[i]);
        if (!word && (separator || !strchr("._-", value[i])))
            return err_set(e, -EINVAL, "-%s \"%s\" is not a name of letters, digits and single . _ -", flag,
                           value);
        separator = !word;
    }
    if (separator)
        return err_set(e, -EINVAL, "-%s \"%s\" is not a name of letters, digits and single . _ -", flag,
                       value);
    return 0;
}
