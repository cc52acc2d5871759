#pragma once
/* Inside of controller/kube/: what api.c shares with watch.c. */
#include "controller/kube/api.h"
#include "controller/kube/http.h"

struct strbuf;

/* https://server/apis/group/version/namespaces/ns/plural[/name[/sub]]; each part is escaped. */
void kube_url(const struct kube *k, struct strbuf *out, const struct kube_resource *r, const char *ns,
              const char *name, const char *sub);
void kube_url_query(struct strbuf *out, const char *key,
                    const char *value); /* &key=escaped; ? the first time */
struct curl_slist *kube_headers(struct kube *k, const char *content_type);
/* 401 was answered: true when another token is there and the request may be sent again. */
bool kube_new_token(struct kube *k);
struct http *kube_streams(struct kube *k); /* for lists and watches */
struct loop *kube_loop(struct kube *k);
struct kube_stats *kube_stats_rw(struct kube *k);

/* HTTP status (and Status.reason, may be NULL) to the result classes of api.h. */
int kube_classify(int http, const char *reason);
