#include "controller/install/containerd.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define BEGIN      "# glovebox: begin. Made by glovebox and removed when it is uninstalled.\n"
#define END        "# glovebox: end\n"
#define CONFIG_MAX (1u << 20)

void containerd_plan_done(struct containerd_plan *p)
{
    free(p->config);
    free(p->drop_in);
    *p = (struct containerd_plan){NULL, NULL};
}

/* The value of a key of the root table: text after "key =", or NULL.  The root table ends at the first "[".
 */
static const char *root_value(const char *text, const char *key)
{
    size_t n = strlen(key);

    while (text && *text) {
        const char *line = text + strspn(text, " \t");
        if (*line == '[')
            return NULL;
        if (strncmp(line, key, n) == 0) {
            const char *rest = line + n + strspn(line + n, " \t");
            if (*rest == '=')
                return rest + 1 + strspn(rest + 1, " \t");
        }
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return NULL;
}

static int config_version(const char *text)
{
    const char *value = root_value(text, "version");

    return value && isdigit((unsigned char)*value) ? (int)strtol(value, NULL, 10) : 0;
}

static bool is_blank(const char *text)
{
    while (text && *text) {
        text += strspn(text, " \t\r\n");
        if (*text == '#')
            text += strcspn(text, "\n");
        else if (*text)
            return false;
    }
    return true;
}

/* Does the root table import the folder of our drop-in? */
static bool imports_drop_ins(const char *text)
{
    const char *value = root_value(text, "imports"), *end;

    if (!value || *value != '[')
        return false;
    end = strchr(value, ']');
    const char *folder = strstr(value, "/etc/containerd/conf.d/*.toml");
    return end && folder && folder < end;
}

/* The text without our lines; the caller frees. */
static char *without_ours(const char *text)
{
    const char *begin = strstr(text, "# glovebox: begin"), *end = begin ? strstr(begin, END) : NULL;

    if (!begin || !end)
        return xstrdup(text);
    /* The empty line before the block is ours, too. */
    size_t head = (size_t)(begin - text);
    if (head >= 2 && text[head - 1] == '\n' && text[head - 2] == '\n')
        head--;
    return xasprintf("%.*s%s", (int)head, text, end + strlen(END));
}

static char *block(int version, const char *handler, const char *shim_path)
{
    const char *plugin = version >= 3 ? "io.containerd.cri.v1.runtime" : "io.containerd.grpc.v1.cri";

    return xasprintf(BEGIN "[plugins.\"%s\".containerd.runtimes.%s]\n"
                           "  runtime_type = \"io.containerd.glovebox.v1\"\n"
                           "%s%s%s"
                           "  pod_annotations = [\"glovebox.dev/*\"]\n" END,
                     plugin, handler, shim_path ? "  runtime_path = \"" : "", shim_path ? shim_path : "",
                     shim_path ? "\"\n" : "");
}

/* An entry of the same name that somebody else wrote stays theirs. */
static bool has_foreign_entry(const char *text, const char *handler)
{
    scoped_free char *entry = xasprintf("containerd.runtimes.%s", handler);
    scoped_free char *quoted = xasprintf("containerd.runtimes.\"%s\"", handler);

    for (const char *at = strstr(text, entry); at; at = strstr(at + 1, entry))
        if (strchr("]. \t=", at[strlen(entry)]))
            return true;
    return strstr(text, quoted) != NULL;
}

static char *changed(const char *old, char *text)
{
    if (old && strcmp(old, text) == 0) {
        free(text);
        return NULL;
    }
    return text;
}

int containerd_add(const char *text, const char *drop_in, const char *handler, const char *shim_path,
                   struct containerd_plan *ret, struct err *e)
{
    scoped_free char *rest = without_ours(text ? text : "");
    bool blank = is_blank(rest);
    int version = blank ? 2 : config_version(rest);

    *ret = (struct containerd_plan){NULL, NULL};
    if (strlen(rest) > CONFIG_MAX)
        return err_set(e, -EFBIG, "containerd's configuration is larger than 1 MiB");
    if (version < 2)
        return err_set(
            e, -EINVAL,
            "containerd's configuration has version %d; convert it to version 2 or later (containerd config "
            "migrate)",
            version);
    if (has_foreign_entry(rest, handler))
        return 0;
    scoped_free char *entry = block(version, handler, shim_path);
    if (version >= 3 && imports_drop_ins(rest)) {
        scoped_free char *own = xasprintf("version = %d\n%s", version, entry);
        ret->drop_in = changed(drop_in, take(own));
        ret->config = changed(text, take(rest));
        return 0;
    }
    bool ends = blank || rest[strlen(rest) - 1] == '\n';
    const char *head = blank && !config_version(rest) ? CONTAINERD_EMPTY : "";
    ret->config = changed(text, xasprintf("%s%s%s\n%s", head, rest, ends ? "" : "\n", entry));
    if (drop_in)
        ret->drop_in = xstrdup("");
    return 0;
}

int containerd_remove(const char *text, const char *drop_in, struct containerd_plan *ret, struct err *e)
{
    (void)e;
    *ret = (struct containerd_plan){NULL, NULL};
    if (text)
        ret->config = changed(text, without_ours(text));
    if (drop_in)
        ret->drop_in = xstrdup("");
    return 0;
}
