#include "controller/kube/selector.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "controller/kube/object.h"

static char *trim(char *s)
{
    s += strspn(s, " ");
    for (size_t n = strlen(s); n > 0 && s[n - 1] == ' ';)
        s[--n] = '\0';
    return s;
}

/* Splits "key op value" in place; op is '=', '!' (not equal), 'e' (exists) or 'n' (does not). */
static int split_term(char *term, char **key, char **value, char *op)
{
    if (strpbrk(term, "()<>"))
        return -EINVAL;
    char *eq = strchr(term, '=');
    *value = NULL;
    if (!eq) {
        *op = *term == '!' ? 'n' : 'e';
        *key = trim(term + (*term == '!'));
        return strpbrk(*key, " !") || !**key ? -EINVAL : 0;
    }
    *op = eq > term && eq[-1] == '!' ? '!' : '=';
    if (*op == '!')
        eq[-1] = '\0';
    *eq = '\0';
    *value = trim(eq + 1 + (eq[1] == '='));
    *key = trim(term);
    return 0;
}

static bool term_matches(const char *have, const char *value, char op)
{
    switch (op) {
    case 'e':
        return have != NULL;
    case 'n':
        return have == NULL;
    case '!':
        return !have || strcmp(have, value) != 0;
    default:
        return have && strcmp(have, value) == 0;
    }
}

static int match(const char *selector, const json_t *o, const char *(*get)(const json_t *o, const char *key),
                 bool fields)
{
    if (!selector || !*selector)
        return 1;
    scoped_free char *copy = xstrdup(selector);
    char *rest = copy;
    int all = 1;

    for (char *term; (term = strsep(&rest, ","));) {
        char *key, *value, op;
        if (split_term(trim(term), &key, &value, &op) < 0)
            return -EINVAL;
        const char *have = get(o, key);
        if (fields && !have)
            have = ""; /* an absent field counts as empty (spec.nodeName= selects unscheduled pods) */
        if (!term_matches(have, value, op))
            all = 0;
    }
    return all;
}

int selector_match_labels(const char *selector, const json_t *o)
{
    return match(selector, o, obj_label, false);
}

int selector_match_fields(const char *selector, const json_t *o)
{
    return match(selector, o, obj_str, true);
}
