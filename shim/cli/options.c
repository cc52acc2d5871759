#include "shim/cli/options.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "bootstrap.pb-c.h"
#include "runc.pb-c.h"

#define LOG_LEVEL_DEBUG (-4) /* and below: trace */

typedef Containerd__Runtime__Bootstrap__V1__BootstrapParams Params;

static char *dup_nonempty(const char *text)
{
    return text && text[0] ? xstrdup(text) : NULL;
}

/* "type.googleapis.com/x.y.Z" and "x.y.Z" name the same message. */
static bool is_type(const char *url, const char *name)
{
    const char *slash = strrchr(url, '/');

    return strcmp(slash ? slash + 1 : url, name) == 0;
}

static int take_options(const Google__Protobuf__Any *any, struct start_options *o, struct err *e)
{
    if (!is_type(any->type_url, containerd__runc__v1__options__descriptor.name))
        return 0;
    Containerd__Runc__V1__Options *m =
        containerd__runc__v1__options__unpack(NULL, any->value.len, any->value.data);
    if (!m)
        return err_set(e, -EBADMSG, "runtime options: not a valid %s", any->type_url);
    if (m->shim_cgroup[0]) {
        free(o->shim_cgroup);
        o->shim_cgroup = xstrdup(m->shim_cgroup);
    }
    containerd__runc__v1__options__free_unpacked(m, NULL);
    return 0;
}

static int take_params(const Params *p, struct start_options *o, struct err *e)
{
    int r = 0;

    o->debug = p->log_level <= LOG_LEVEL_DEBUG;
    o->socket_dir = dup_nonempty(p->socket_dir);
    o->ttrpc_address = dup_nonempty(p->containerd_ttrpc_address);
    for (size_t i = 0; i < p->n_extensions; i++)
        if (p->extensions[i]->value && r == 0)
            r = take_options(p->extensions[i]->value, o, e);
    return r;
}

int start_options_parse(const void *data, size_t len, const char *id, const char *ns,
                        struct start_options *ret, struct err *e)
{
    if (len == 0)
        return 0;
    Params *p = containerd__runtime__bootstrap__v1__bootstrap_params__unpack(NULL, len, data);
    bool mine = p && strcmp(p->instance_id, id) == 0 && strcmp(p->namespace_, ns) == 0;
    int r = mine ? take_params(p, ret, e) : 0;
    if (p)
        containerd__runtime__bootstrap__v1__bootstrap_params__free_unpacked(p, NULL);
    if (mine)
        return r;

    Google__Protobuf__Any *any = google__protobuf__any__unpack(NULL, len, data);
    if (!any)
        return err_set(e, -EBADMSG, "standard input: neither runtime options nor bootstrap parameters");
    r = take_options(any, ret, e);
    google__protobuf__any__free_unpacked(any, NULL);
    return r;
}

void start_options_done(struct start_options *o)
{
    free(o->shim_cgroup);
    free(o->socket_dir);
    free(o->ttrpc_address);
    *o = (struct start_options){0};
}
