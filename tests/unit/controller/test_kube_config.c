#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "controller/kube/auth.h"
#include "controller/kube/base64.h"
#include "controller/kube/kubeconfig.h"
#include "controller/kube/yaml.h"

#define TWO_PEM "LS0tLS1CRUdJTiBYLS0tLS0=" /* -----BEGIN X----- */

static void a_complete_file_is_read(void **state)
{
    static const char text[] =
        "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
        "clusters:\n- name: c\n  cluster:\n    server: https://h:6443/\n    tls-server-name: other\n"
        "    certificate-authority-data: " TWO_PEM "\n    insecure-skip-tls-verify: false\n"
        "users:\n- name: u\n  user: {client-certificate: a/b.crt, client-key: /k, username: \"\"}\n"
        "contexts:\n- name: one\n  context: {cluster: c, user: u, namespace: ns}\n"
        "- name: two\n  context: {cluster: c, user: t}\npreferences: {}\n";
    scoped(kube_config_free) struct kube_config *c = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(kube_config_parse(text, strlen(text), "/etc/k", NULL, &c, &e), 0);
    assert_string_equal(c->server, "https://h:6443");
    assert_string_equal(c->tls_server_name, "other");
    assert_string_equal(c->ca_pem, "-----BEGIN X-----");
    assert_string_equal(c->cert_file, "/etc/k/a/b.crt");
    assert_string_equal(c->key_file, "/k");
    assert_string_equal(c->ns, "ns");
    assert_null(c->token);
    assert_false(c->plain_http);
}

/* The parts around what a case is about. */
static char *file_with(const char *cluster, const char *user)
{
    return xasprintf(
        "{current-context: x, clusters: [{name: c, cluster: {%s}}], users: [{name: u, user: {%s}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}]}",
        cluster, user);
}

static void bad_files_get_one_sentence_that_names_the_field(void **state)
{
    static const char good[] = "server: \"https://h\"";
    static const struct {
        const char *cluster, *user, *says;
    } cases[] = {
        {"", "", "server is missing"},
        {"server: \"http://h\"", "", "must be https://"},
        {"server: \"https://\"", "", "must be https://"},
        {"server: \"https://u:p@h\"", "", "without user"},
        {"server: [1]", "", "server must be a text"},
        {"server: \"https://h\", insecure-skip-tls-verify: true", "", "insecure-skip-tls-verify"},
        {"server: \"https://h\", proxy-url: \"http://p\"", "", "proxy-url"},
        {"server: \"https://h\", certificate-authority-data: \"!\"", "", "not base64"},
        {"server: \"https://h\", certificate-authority-data: \"YWJj\"", "", "must be PEM"},
        {good, "exec: {command: aws}", "exec is refused"},
        {good, "auth-provider: {name: gcp}", "auth-provider is refused"},
        {good, "username: a, password: b", "has no passwords"},
        {good, "as: root", "impersonation"},
        {good, "client-certificate: /c", "client-key is missing"},
        {good, "client-key: /c", "client-certificate is missing"},
        {good, "token: \"a\\nb\"", "one line"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_free char *text = file_with(cases[i].cluster, cases[i].user);
        scoped(kube_config_free) struct kube_config *c = NULL;
        struct err e = {0};
        assert_int_equal(kube_config_parse(text, strlen(text), NULL, NULL, &c, &e), -EINVAL);
        if (!strstr(err_text(&e), cases[i].says) || strchr(err_text(&e), '\n'))
            fail_msg("case %zu says \"%s\"", i, err_text(&e));
        assert_null(c);
    }
}

static void what_is_no_kubeconfig_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no mapping"},
        {"- a", "no mapping"},
        {"a: b", "current-context is missing"},
        {"current-context: x", "contexts has no entry"},
        {"a: &x 1\nb: *x", "aliases"},
        {"a: 1\na: 2", "twice"},
        {"a: [1", "line"},
        {"{a: {b: {c: {d: {e: {f: {g: {h: {i: {j: {k: {l: {m: {n: {o: {p: {q: {r: {s: {t: {u: {v: {w: {x: "
         "{y: {z: "
         "{a: {b: {c: {d: {e: {f: {g: 1}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}",
         "nested"},
        {"? [a]\n: b", "a key must be"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped(kube_config_free) struct kube_config *c = NULL;
        struct err e = {0};
        assert_int_equal(kube_config_parse(cases[i].text, strlen(cases[i].text), NULL, NULL, &c, &e),
                         -EINVAL);
        if (!strstr(err_text(&e), cases[i].says))
            fail_msg("case %zu says \"%s\"", i, err_text(&e));
    }
}

static void write_file(const char *folder, const char *name, const char *text)
{
    scoped_free char *path = xasprintf("%s/%s", folder, name);

    assert_int_equal(file_replace(AT_FDCWD, path, text, 0600, NULL), 0);
}

static void a_pod_finds_its_files_and_the_server_in_the_environment(void **state)
{
    char folder[] = "/tmp/gbkcXXXXXX";
    scoped(kube_config_free) struct kube_config *c = NULL, *d = NULL;
    struct err e = {0};

    (void)state;
    assert_non_null(mkdtemp(folder));
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(kube_config_in_cluster(folder, &c, &e), 1);
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_int_equal(kube_config_in_cluster(folder, &c, &e), -ENOENT);
    write_file(folder, "namespace", "here\n");
    assert_int_equal(kube_config_in_cluster(folder, &d, &e), 0);
    assert_string_equal(d->server, "https://[fd00::1]:443");
    assert_string_equal(d->ns, "here");
    assert_non_null(strstr(d->token_file, "/token"));
    assert_non_null(strstr(d->ca_file, "/ca.crt"));
    unsetenv("KUBERNETES_SERVICE_HOST");
}

static void a_new_token_is_used_when_the_file_changes(void **state)
{
    char folder[] = "/tmp/gbkcXXXXXX";
    scoped(auth_free) struct auth *a = NULL;
    struct err e = {0};

    (void)state;
    assert_non_null(mkdtemp(folder));
    scoped_free char *path = xasprintf("%s/token", folder);
    struct kube_config c = {.token_file = path};
    assert_int_equal(auth_new(&c, &a, &e), -ENOENT);
    write_file(folder, "token", "\n");
    assert_int_equal(auth_new(&c, &a, &e), -EINVAL);
    write_file(folder, "token", "one\n");
    assert_int_equal(auth_new(&c, &a, &e), 0);
    assert_string_equal(auth_header(a), "Authorization: Bearer one");
    assert_false(auth_refresh(a));
    write_file(folder, "token", "two");
    assert_true(auth_refresh(a));
    assert_string_equal(auth_header(a), "Authorization: Bearer two");
    write_file(folder, "token", "three");
    usleep(1100000); /* looked at no more than once a second */
    assert_string_equal(auth_header(a), "Authorization: Bearer three");
    assert_int_equal(unlink(path), 0);
    assert_false(auth_refresh(a)); /* the old one is kept */
    assert_string_equal(auth_header(a), "Authorization: Bearer three");
}

static void base64_takes_what_encoders_write(void **state)
{
    static const struct {
        const char *text;
        int r;
        const char *out;
    } cases[] = {
        {"", 0, ""},
        {"YQ==", 0, "a"},
        {"YWI=", 0, "ab"},
        {"YWJj", 0, "abc"},
        {"YW\nJj\r\n ", 0, "abc"},
        {"YQ=", -EINVAL, NULL},
        {"Y", -EINVAL, NULL},
        {"YQ==YQ==", -EINVAL, NULL},
        {"Y===", -EINVAL, NULL},
        {"YW-j", -EINVAL, NULL},
        {"=", -EINVAL, NULL},
        {"====", -EINVAL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_free unsigned char *out = NULL;
        size_t n = 0;
        assert_int_equal(base64_decode(cases[i].text, strlen(cases[i].text), &out, &n), cases[i].r);
        if (cases[i].r == 0) {
            assert_int_equal(n, strlen(cases[i].out));
            assert_string_equal((char *)out, cases[i].out);
        }
    }
}

static void yaml_scalars_have_the_types_that_they_look_like(void **state)
{
    static const char text[] = "{a: true, b: 'true', c: ~, d: , e: 12, f: \"x\\n\", g: [], h: {}}";
    scoped(json_decref) json_t *v = NULL;

    (void)state;
    assert_int_equal(yaml_parse(text, strlen(text), &v, NULL), 0);
    scoped_free char *json = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(
        json,
        "{\"a\":true,\"b\":\"true\",\"c\":null,\"d\":null,\"e\":\"12\",\"f\":\"x\\n\",\"g\":[],\"h\":{}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_complete_file_is_read),
        cmocka_unit_test(bad_files_get_one_sentence_that_names_the_field),
        cmocka_unit_test(what_is_no_kubeconfig_is_refused),
        cmocka_unit_test(a_pod_finds_its_files_and_the_server_in_the_environment),
        cmocka_unit_test(a_new_token_is_used_when_the_file_changes),
        cmocka_unit_test(base64_takes_what_encoders_write),
        cmocka_unit_test(yaml_scalars_have_the_types_that_they_look_like),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
