#pragma once
/*
 * A look at a Kubernetes object in its JSON text, without parsing it: whose state it is and which one,
 * and where managedFields is, a third of the text that nobody here reads.  PURE.
 *
 * It is a short cut, no validator: what it cannot make out (escapes or duplicates among the names that
 * it looks for, broken text) it leaves to the parser by saying so.
 */
#include <stdbool.h>
#include <stddef.h>

struct slice {
    const char *at; /* NULL: absent */
    size_t len;
};

struct scan {
    struct slice name, ns, uid, version; /* raw text between the quotes, free of escapes */
    struct slice managed; /* the member with the comma that goes with it; what is left is JSON again */
};

/* text is one object.  false: leave it to the parser; *ret is then empty. */
bool scan_object(const char *text, size_t len, struct scan *ret);
/* {"type": ..., "object": {...}}: both as raw text. */
bool scan_event(const char *text, size_t len, struct slice *ret_type, struct slice *ret_object);

bool slice_is(struct slice s, const char *text);
/* Decimal digits only; 0 otherwise. */
unsigned long long slice_number(struct slice s);
