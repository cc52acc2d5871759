#pragma once
/*
 * Work queue of keys (namespace and name, nothing else).
 *
 * A key is at most once in it; a key that is being worked on is not handed out again, but remembered
 * and handed out when the work is done.  Failures delay a key by an exponential back-off with jitter
 * of its own; queue_after delays it once.  The earliest of several wishes wins.  Keys longer than any
 * object's name are ignored.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct loop;
struct queue;

/* Strings belong to whoever gave the key. */
struct key {
    const char *ns; /* "" for cluster-scoped */
    const char *name;
};

struct queue_options {
    int64_t backoff_min_ms; /* 0: 20 ms */
    int64_t backoff_max_ms; /* 0: 60 s */
    /* Runs from the loop when a key may be taken. */
    void (*ready)(void *data);
    void *data;
};

int queue_new(struct loop *loop, const struct queue_options *o, struct queue **ret, struct err *e);
void queue_free(struct queue *q);

void queue_add(struct queue *q, struct key k);
void queue_after(struct queue *q, struct key k, int64_t ms);
/* The key failed: again after its back-off, or later. */
void queue_retry(struct queue *q, struct key k, int64_t at_least_ms);
/* The key went well: its back-off starts from the beginning next time. */
void queue_forget(struct queue *q, struct key k);

/* Why a key failed last; kept until queue_forget.  NULL: it did not fail. */
struct failure {
    int code;
    char *text;
};
void queue_set_failure(struct queue *q, struct key k, int code, const char *text);
const struct failure *queue_failure(const struct queue *q, struct key k);
uint32_t queue_failures(const struct queue *q, struct key k); /* in a row */

/* true: *ret is the caller's to work on until queue_done (its strings live as long). */
bool queue_take(struct queue *q, struct key *ret);
void queue_done(struct queue *q, struct key k);

size_t queue_length(const struct queue *q);     /* ready to be taken */
size_t queue_working(const struct queue *q);    /* taken and not done */
size_t queue_waiting(const struct queue *q);    /* delayed */
int64_t queue_oldest_ms(const struct queue *q); /* how long the oldest ready key has waited */
