#pragma once
/*
 * JSON text into plain structs by tables.  A table row says where a member goes and what form it must
 * have; unknown members are ignored, null counts as absent, and every error is one sentence that names
 * the member by its full path ("linux.resources.cpu.quota must be a whole number, not a string").
 * The same table frees what it decoded.  Nothing here knows what the members mean.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"

/*
 * Parses one object or array of at most max bytes.  Unlike plain jansson it takes whole numbers up to
 * 2^64-1 (limits such as RLIM_INFINITY are written so); json_get_u64() tells them from strings.
 * *ret is the caller's (json_decref).
 */
int json_parse(const char *text, size_t len, size_t max, json_t **ret, struct err *e);
/* v as text, the caller's. Numbers above INT64_MAX are written as the negative of the same 64 bits. */
char *json_text(const json_t *v);
/* 0, or -EINVAL: not a whole number >= 0. */
int json_get_u64(const json_t *v, uint64_t *ret);

/* Where we are in the document: a chain of stack frames, printed only when an error needs it. */
struct json_at {
    const struct json_at *up;
    const char *key; /* NULL: an array element, number `index` */
    size_t index;
};
/* "<path> <sentence>"; returns code. */
int json_fail(const struct json_at *at, struct err *e, int code, const char *fmt, ...) PRINTF_LIKE(4, 5);
const char *json_type_name(const json_t *v); /* "a string", "an object", ... */

enum json_kind {
    JSON_KIND_NONE,
    JSON_AS_STRING,  /* char *, the struct's */
    JSON_AS_BOOL,    /* bool */
    JSON_AS_INT,     /* int, within min..max */
    JSON_AS_U32,     /* uint32_t, <= max if max is set */
    JSON_AS_I64,     /* int64_t, within min..max */
    JSON_AS_U64,     /* uint64_t */
    JSON_AS_OBJECT,  /* members go to the struct at offset, by `table` */
    JSON_AS_ARRAY,   /* T * at offset and size_t at offset_n; elements are objects, by `table` */
    JSON_AS_STRINGS, /* struct json_strings */
    JSON_AS_MAP,     /* struct json_pair * at offset and size_t at offset_n; values must be strings */
    JSON_AS_CALL     /* fn decides */
};

struct json_pair {
    char *key, *value;
};
struct json_strings {
    char **item; /* n strings and a closing NULL; NULL when absent */
    size_t n;
};

struct json_field;
typedef int json_fn(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                    struct err *e);

struct json_field {
    const char *name;
    enum json_kind kind;
    bool required;
    bool empty_is_absent; /* strings: "" leaves NULL */
    size_t offset, offset_n;
    size_t offset_has;              /* 0, or where a bool becomes true when the member is present */
    size_t limit;                   /* most elements or bytes; 0 = JSON_LIMIT_* */
    int64_t min, max;               /* both 0: the whole range of the type */
    const struct json_table *table; /* OBJECT, ARRAY */
    json_fn *fn;                    /* CALL */
    void (*done)(void *out);        /* CALL: releases what fn stored; may be NULL */
};
struct json_table {
    const struct json_field *field;
    size_t n;
    size_t size;             /* of one struct: the stride in an ARRAY */
    void (*init)(void *out); /* values of absent members other than zero; may be NULL */
};
#define JSON_TABLE(fields, type) JSON_TABLE_INIT(fields, type, NULL)
#define JSON_TABLE_INIT(fields, type, fn)                                                                    \
    {                                                                                                        \
        (fields), sizeof(fields) / sizeof((fields)[0]), sizeof(type), (fn)                                   \
    }

#define JSON_LIMIT_STRING 65536 /* bytes */
#define JSON_LIMIT_ARRAY  4096  /* elements */

/*
 * Fills *out (zeroed by the caller, init is run here).  On failure *out is half filled and still has to
 * go through json_free_members().
 */
int json_decode(const struct json_at *at, const json_t *object, const struct json_table *t, void *out,
                struct err *e);
void json_free_members(const struct json_table *t, void *out);

/* For callbacks: checks the range of the row. */
int json_int_in(const struct json_at *at, const struct json_field *f, const json_t *v, int64_t *ret,
                struct err *e);
int json_strings_decode(const struct json_at *at, const json_t *v, size_t limit, struct json_strings *ret,
                        struct err *e);
void json_strings_done(struct json_strings *s);

SCOPED_DEFINE(json_t, json_decref)
