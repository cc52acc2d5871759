#pragma once
/*
 * Texts kept once, however many objects have them: index values and shared parts of objects.  An atom
 * lives while somebody holds it.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct intern;
struct atom {
    struct atom *next; /* in its hash bucket */
    uint64_t hash;
    uint32_t refs;
    uint32_t len;
    struct list links; /* for the user */
    json_t *json;      /* for the user; released with the atom */
    char text[];
};

struct intern *intern_new(void);
void intern_free(struct intern *t); /* all atoms must be gone or are freed with it */
/* One reference more, making the atom if there is none. */
struct atom *intern_hold(struct intern *t, const char *text, size_t len);
void intern_drop(struct intern *t, struct atom *a);
struct atom *intern_find(const struct intern *t, const char *text, size_t len); /* no reference; NULL */
size_t intern_count(const struct intern *t);

/* Seeded per process, so that nobody can choose names that collide. */
uint64_t intern_hash(const void *data, size_t n, uint64_t more);
