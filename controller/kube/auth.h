#pragma once
/*
 * The bearer token: fixed, or in a file that the kubelet replaces before the token expires.  Client
 * certificates are libcurl's business (http.c).
 */
#include <stdbool.h>

#include "base/err.h"
#include "base/scoped.h"

struct auth;
struct kube_config;

/* config must outlive it.  Fails when a token file cannot be read at all. */
int auth_new(const struct kube_config *config, struct auth **ret, struct err *e);
void auth_free(struct auth *a);
/*
 * "Authorization: Bearer ...", or NULL without a token.  Reads the file again when it changed (looked
 * at no more than once a second) and at least once a minute; keeps the old token when that fails.
 */
const char *auth_header(struct auth *a);
/* The server said 401: read again now.  true: the token is another one, trying again makes sense. */
bool auth_refresh(struct auth *a);

SCOPED_DEFINE(struct auth, auth_free)
