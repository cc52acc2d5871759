#pragma once
/*
 * List and watch of one resource, for ever: the source of a cache.
 *
 *                 list done                 stream ends, cut, idle
 *      LISTING ------------> WATCHING ------------------------> WAITING
 *         ^                     |  410, version from the future    |
 *         +---------------------+----------------------------------+ (watch again, or list again)
 *
 * After a cut the watch goes on from the last version seen (bookmarks keep it fresh), so nothing is
 * listed again unless the server has forgotten that version.  Back-off grows to 30 s and has jitter.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "controller/kube/api.h"

struct watch;

struct watch_spec {
    const struct kube_resource *resource;
    const char *ns, *label_selector, *field_selector; /* NULL: all */
    bool optional; /* 404 counts as an empty list; asked again every 30 s */
    int page;      /* objects in a page of the list; 0: 500 */
    /* Objects are borrowed and may be changed in place.  No callback may free the watch. */
    void (*list_begin)(void *data);
    void (*object)(void *data, json_t *o);  /* from the list, ADDED, MODIFIED */
    void (*deleted)(void *data, json_t *o); /* the last state */
    /* Optional.  true: `object` would ignore this state, as it does the echo of our own write. */
    bool (*known)(void *data, const char *ns, const char *name, const char *uid, uint64_t version);
    /*
     * The list is complete as of `version`: what was not in it is gone, unless it is newer.  rewound:
     * the server's versions went backwards (etcd restored), so no known version means anything; another
     * list follows at once.
     */
    void (*list_end)(void *data, uint64_t version, bool rewound);
    /* An attempt failed, for the n-th time in a row; optional. */
    void (*trouble)(void *data, uint32_t n, const char *why);
    void *data;
};

/* spec and its strings are kept by reference. */
int watch_new(struct kube *k, const struct watch_spec *spec, struct watch **ret, struct err *e);
void watch_free(struct watch *w);
/* List again at once (tests, and when a cache is in doubt). */
void watch_relist(struct watch *w);

bool watch_is_synced(const struct watch *w);    /* one list was complete */
int64_t watch_silent_ms(const struct watch *w); /* since the server said anything */

struct watch_stats {
    uint64_t lists, pages, streams, events, bookmarks, expired, errors, dropped;
};
const struct watch_stats *watch_stats(const struct watch *w);
const char *watch_last_error(const struct watch *w); /* "" when the last attempt went well */

SCOPED_DEFINE(struct watch, watch_free)
