#include "controller/kube/kubeconfig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "controller/kube/base64.h"
#include "controller/kube/object.h"
#include "controller/kube/yaml.h"

#define FILE_MAX_BYTES (1u << 20)
#define POD_FOLDER     "/var/run/secrets/kubernetes.io/serviceaccount"

void kube_config_free(struct kube_config *c)
{
    if (!c)
        return;
    char *all[] = {c->server,    c->tls_server_name, c->ca_file,  c->ca_pem,  c->token, c->token_file,
                   c->cert_file, c->cert_pem,        c->key_file, c->key_pem, c->ns,    c->user_agent};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i] && (all[i] == c->token || all[i] == c->key_pem))
            explicit_bzero(all[i], strlen(all[i]));
        free(all[i]);
    }
    free(c);
}

/* What may stand in a "cluster" and a "user", and what we do with it. */
enum how { FIELD_TEXT = 1, FIELD_FILE, FIELD_PEM, FIELD_REFUSED };
struct field {
    const char *name;
    enum how how;
    size_t offset;
    const char *why; /* FIELD_REFUSED */
};
#define AT(member) offsetof(struct kube_config, member)
#define PROGRAM    "would run a program; use a token, tokenFile or a client certificate"
static const struct field cluster_fields[] = {
    {"server", FIELD_TEXT, AT(server), NULL},
    {"tls-server-name", FIELD_TEXT, AT(tls_server_name), NULL},
    {"certificate-authority", FIELD_FILE, AT(ca_file), NULL},
    {"certificate-authority-data", FIELD_PEM, AT(ca_pem), NULL},
    {"insecure-skip-tls-verify", FIELD_REFUSED, 0,
     "is refused: the server's certificate is always checked; give certificate-authority"},
    {"proxy-url", FIELD_REFUSED, 0, "is not supported"},
};
static const struct field user_fields[] = {
    {"token", FIELD_TEXT, AT(token), NULL},
    {"tokenFile", FIELD_FILE, AT(token_file), NULL},
    {"client-certificate", FIELD_FILE, AT(cert_file), NULL},
    {"client-certificate-data", FIELD_PEM, AT(cert_pem), NULL},
    {"client-key", FIELD_FILE, AT(key_file), NULL},
    {"client-key-data", FIELD_PEM, AT(key_pem), NULL},
    {"exec", FIELD_REFUSED, 0, "is refused: it " PROGRAM},
    {"auth-provider", FIELD_REFUSED, 0, "is refused: it " PROGRAM},
    {"username", FIELD_REFUSED, 0,
     "is refused: Kubernetes has no passwords; use a token or a client certificate"},
    {"password", FIELD_REFUSED, 0,
     "is refused: Kubernetes has no passwords; use a token or a client certificate"},
    {"as", FIELD_REFUSED, 0, "(impersonation) is not supported"},
    {"as-uid", FIELD_REFUSED, 0, "(impersonation) is not supported"},
    {"as-groups", FIELD_REFUSED, 0, "(impersonation) is not supported"},
};
static const struct field context_fields[] = {{"namespace", FIELD_TEXT, AT(ns), NULL}};

/* null, false, "" and empty lists count as absent: kubectl writes them. */
static bool is_absent(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           ((json_is_array(v) || json_is_object(v)) && json_array_size(v) + json_object_size(v) == 0);
}

static int take_field(const struct field *f, const char *what, const json_t *v, const char *folder,
                      struct kube_config *c, struct err *e)
{
    char **out = (char **)(void *)((char *)c + f->offset);

    if (f->how == FIELD_REFUSED)
        return err_set(e, -EINVAL, "%s: %s %s", what, f->name, f->why);
    if (!json_is_string(v))
        return err_set(e, -EINVAL, "%s: %s must be a text", what, f->name);
    const char *s = json_string_value(v);
    if (f->how == FIELD_PEM) {
        size_t len;
        if (base64_decode(s, strlen(s), (unsigned char **)out, &len) < 0)
            return err_set(e, -EINVAL, "%s: %s is not base64", what, f->name);
        if (!strstr(*out, "-----BEGIN ") || strlen(*out) != len)
            return err_set(e, -EINVAL, "%s: %s must be PEM text in base64", what, f->name);
    } else if (f->how == FIELD_FILE && *s != '/' && folder) {
        *out = xasprintf("%s/%s", folder, s);
    } else {
        *out = xstrdup(s);
    }
    return 0;
}

static int take_fields(const struct field *f, size_t n, const char *what, const json_t *o, const char *folder,
                       struct kube_config *c, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(o, f[i].name);
        int r = is_absent(v) ? 0 : take_field(&f[i], what, v, folder, c, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The element of list "plural" with this name: its member `field` (clusters[].cluster). */
static int pick(const json_t *doc, const char *plural, const char *field, const char *name,
                const json_t **ret, struct err *e)
{
    json_t *list = json_object_get(doc, plural), *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const char *n = json_string_value(json_object_get(item, "name"));
        if (!n || strcmp(n, name) != 0)
            continue;
        *ret = json_object_get(item, field);
        if (!json_is_object(*ret) && !is_absent(*ret))
            return err_set(e, -EINVAL, "%s \"%s\": %s must be a mapping", plural, name, field);
        return 0;
    }
    return err_set(e, -EINVAL, "%s has no entry \"%s\"", plural, name);
}

static int check_server(struct kube_config *c, const char *what, struct err *e)
{
    if (!c->server)
        return err_set(e, -EINVAL, "%s: server is missing", what);
    size_t n = strlen(c->server);
    while (n > 0 && c->server[n - 1] == '/')
        c->server[--n] = '\0';
    if (strncmp(c->server, "https://", 8) != 0 || n == 8 || c->server[8] == ':')
        return err_set(e, -EINVAL, "%s: server must be https://host:port, not \"%.200s\"", what, c->server);
    if (strpbrk(c->server, " \t\r\n@?#\\"))
        return err_set(e, -EINVAL, "%s: server must be a plain URL without user, query or blanks", what);
    return 0;
}

static int check_user(const struct kube_config *c, const char *what, struct err *e)
{
    bool cert = c->cert_file || c->cert_pem, key = c->key_file || c->key_pem;

    if (cert != key)
        return err_set(e, -EINVAL, "%s: %s is missing", what, cert ? "client-key" : "client-certificate");
    if (c->token && strpbrk(c->token, "\r\n"))
        return err_set(e, -EINVAL, "%s: token must be one line", what);
    return 0;
}

static int from_context(const json_t *doc, const char *context, const char *folder, struct kube_config *c,
                        struct err *e)
{
    const json_t *ctx, *cluster, *user = NULL;
    int r = pick(doc, "contexts", "context", context, &ctx, e);
    if (r < 0)
        return r;
    const char *cluster_name = obj_str(ctx, "cluster"), *user_name = obj_str(ctx, "user");
    if (!cluster_name)
        return err_set(e, -EINVAL, "contexts \"%s\": cluster is missing", context);

    scoped_free char *what = xasprintf("clusters \"%s\"", cluster_name);
    if ((r = pick(doc, "clusters", "cluster", cluster_name, &cluster, e)) < 0 ||
        (r = take_fields(cluster_fields, ARRAY_LEN(cluster_fields), what, cluster, folder, c, e)) < 0 ||
        (r = check_server(c, what, e)) < 0)
        return r;

    scoped_free char *who = xasprintf("users \"%s\"", user_name ? user_name : "");
    if (user_name && *user_name)
        if ((r = pick(doc, "users", "user", user_name, &user, e)) < 0 ||
            (r = take_fields(user_fields, ARRAY_LEN(user_fields), who, user, folder, c, e)) < 0 ||
            (r = check_user(c, who, e)) < 0)
            return r;
    return take_fields(context_fields, 1, "context", ctx, folder, c, e);
}

int kube_config_parse(const char *text, size_t len, const char *folder, const char *context,
                      struct kube_config **ret, struct err *e)
{
    scoped(json_decref) json_t *doc = NULL;
    int r = yaml_parse(text, len, &doc, e);
    if (r < 0)
        return r;
    if (!json_is_object(doc))
        return err_set(e, -EINVAL, "not a kubeconfig: no mapping at the top");
    if (!context)
        context = obj_str(doc, "current-context");
    if (!context || !*context)
        return err_set(e, -EINVAL, "current-context is missing");

    scoped(kube_config_free) struct kube_config *c = xcalloc(1, sizeof *c);
    r = from_context(doc, context, folder, c, e);
    if (r < 0)
        return r;
    if (!c->ns)
        c->ns = xstrdup("default");
    *ret = take(c);
    return 0;
}

int kube_config_load(const char *path, const char *context, struct kube_config **ret, struct err *e)
{
    scoped_free char *text = NULL;
    size_t len;
    int r = file_read(AT_FDCWD, path, FILE_MAX_BYTES, &text, &len, e);
    if (r < 0)
        return err_wrap(e, r, "kubeconfig %s", path);

    const char *slash = strrchr(path, '/');
    scoped_free char *folder = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
    r = kube_config_parse(text, len, folder, context, ret, e);
    explicit_bzero(text, len);
    return r < 0 ? err_wrap(e, r, "kubeconfig %s", path) : 0;
}

int kube_config_in_cluster(const char *folder, struct kube_config **ret, struct err *e)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");

    if (!host || !*host)
        return 1;
    if (!folder)
        folder = POD_FOLDER;
    scoped(kube_config_free) struct kube_config *c = xcalloc(1, sizeof *c);
    bool v6 = strchr(host, ':') != NULL;
    c->server =
        xasprintf("https://%s%s%s:%s", v6 ? "[" : "", host, v6 ? "]" : "", port && *port ? port : "443");
    c->ca_file = xasprintf("%s/ca.crt", folder);
    c->token_file = xasprintf("%s/token", folder);

    scoped_free char *path = xasprintf("%s/namespace", folder);
    int r = file_read(AT_FDCWD, path, 256, &c->ns, NULL, e);
    if (r < 0)
        return err_wrap(e, r, "service account of the pod: %s", path);
    c->ns[strcspn(c->ns, "\r\n")] = '\0';
    r = check_server(c, "KUBERNETES_SERVICE_HOST", e);
    if (r < 0)
        return r;
    *ret = take(c);
    return 0;
}

int kube_config_find(const char *path, struct kube_config **ret, struct err *e)
{
    if (path)
        return kube_config_load(path, NULL, ret, e);
    int r = kube_config_in_cluster(NULL, ret, e);
    if (r <= 0)
        return r;
    path = getenv("KUBECONFIG");
    if (path && *path)
        return kube_config_load(path, NULL, ret, e);
    return err_set(e, -EINVAL, "not in a pod: give --kubeconfig FILE or set KUBECONFIG");
}
