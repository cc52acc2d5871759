#pragma once
/*
 * Where the API server is and who we are: from a kubeconfig file or from the files that Kubernetes
 * puts into a pod.
 *
 * Refused, with one sentence that names the field: exec and auth-provider plugins (they would run
 * programs), insecure-skip-tls-verify, plain http, proxies, user name and password, impersonation.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/scoped.h"

struct kube_config {
    char *server;          /* https://host[:port][/prefix], no slash at the end */
    char *tls_server_name; /* NULL: the host in `server` */
    char *ca_file, *ca_pem;
    char *token, *token_file;
    char *cert_file, *cert_pem, *key_file, *key_pem;
    char *ns;         /* never NULL */
    char *user_agent; /* NULL: the program's */
    bool plain_http;  /* only tests set it; no file can */
};

/* context NULL: current-context.  Relative file names count from the file's folder. */
int kube_config_load(const char *path, const char *context, struct kube_config **ret, struct err *e);
/* The same from memory; folder NULL: relative names stay relative to the working directory. */
int kube_config_parse(const char *text, size_t len, const char *folder, const char *context,
                      struct kube_config **ret, struct err *e);
/* folder NULL: /var/run/secrets/kubernetes.io/serviceaccount.  1: not in a pod (no KUBERNETES_SERVICE_HOST).
 */
int kube_config_in_cluster(const char *folder, struct kube_config **ret, struct err *e);
/* The file if it is given, else in the pod, else $KUBECONFIG (one file), else an error. */
int kube_config_find(const char *path, struct kube_config **ret, struct err *e);
void kube_config_free(struct kube_config *c);

SCOPED_DEFINE(struct kube_config, kube_config_free)
