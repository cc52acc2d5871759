#include "shim/egress/name.h"

#include <errno.h>
#include <string.h>

static bool allowed(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

int name_canonical(const char *text, size_t len, char out[NAME_MAX_BYTES])
{
    size_t label = 0;

    if (len > 0 && text[len - 1] == '.')
        len--;
    if (len == 0 || len >= NAME_MAX_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
        if (c == '.' ? label == 0 : !allowed(c) || ++label > 63)
            return -EINVAL;
        if (c == '.')
            label = 0;
        out[i] = c;
    }
    out[len] = '\0';
    return label == 0 ? -EINVAL : 0;
}

int name_pattern_parse(const char *text, enum name_pattern *ret, char out[NAME_MAX_BYTES])
{
    enum name_pattern kind = strncmp(text, "**.", 3) == 0  ? NAME_ANY_DEPTH
                             : strncmp(text, "*.", 2) == 0 ? NAME_ONE_LABEL
                                                           : NAME_EXACT;
    const char *rest = text + (kind == NAME_ANY_DEPTH ? 3 : kind == NAME_ONE_LABEL ? 2 : 0);
    int r = name_canonical(rest, strlen(rest), out);

    if (r == 0)
        *ret = kind;
    return r;
}

const char *name_parent(const char *name)
{
    const char *dot = strchr(name, '.');

    return dot ? dot + 1 : NULL;
}
