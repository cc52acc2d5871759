#pragma once
/* The tables by which spec.c decodes and frees; each lives in the file of its part. Internal to shim/oci. */
#include "base/json.h"
#include "shim/oci/spec.h"

extern const struct json_table spec_table, spec_process_table, spec_resources_table, spec_linux_table;

/* What a row cannot say: fields that depend on each other.  `at` is the object's place. */
int spec_process_verify(const struct json_at *at, const struct spec_process *p, struct err *e);
int spec_resources_verify(const struct json_at *at, const struct spec_resources *r, struct err *e);
int spec_linux_verify(const struct json_at *at, const struct spec *s, struct err *e);

/* Callback rows used by several tables. */
int spec_decode_num(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                    struct err *e);
int spec_decode_absolute(const struct json_at *at, const struct json_field *f, const json_t *v, void *out,
                         struct err *e);
void spec_free_string(void *out);

#define AT(type, member) .offset = offsetof(type, member)
#define ROW_STRING(n, T, m)                                                                                  \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_STRING, .empty_is_absent = true, AT(T, m)                                 \
    }
#define ROW_STRINGS(n, T, m, lim)                                                                            \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_STRINGS, AT(T, m), .limit = lim                                           \
    }
#define ROW_BOOL(n, T, m)                                                                                    \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_BOOL, AT(T, m)                                                            \
    }
#define ROW_NUM(n, T, m, lo, hi)                                                                             \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_CALL, AT(T, m), .min = lo, .max = hi, .fn = spec_decode_num               \
    }
#define ROW_OBJECT(n, T, m, tab)                                                                             \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_OBJECT, AT(T, m), .table = tab                                            \
    }
/* An object whose members go to the same struct. */
#define ROW_FLAT(n, tab)                                                                                     \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_OBJECT, .table = tab                                                      \
    }
#define ROW_ARRAY(nm, T, m, cnt, tab, lim)                                                                   \
    {                                                                                                        \
        .name = nm, .kind = JSON_AS_ARRAY, AT(T, m), .offset_n = offsetof(T, cnt), .table = tab,             \
        .limit = lim                                                                                         \
    }
#define ROW_MAP(nm, T, m, cnt, lim)                                                                          \
    {                                                                                                        \
        .name = nm, .kind = JSON_AS_MAP, AT(T, m), .offset_n = offsetof(T, cnt), .limit = lim                \
    }
#define ROW_CALL(n, T, m, f)                                                                                 \
    {                                                                                                        \
        .name = n, .kind = JSON_AS_CALL, AT(T, m), .fn = f                                                   \
    }
