#pragma once
/* Names that an OCI configuration uses for numbers of the kernel.  Pure tables. */
#include <stddef.h>

struct oci_name {
    const char *name;
    int value;
};
/* The row called `name`, or NULL. */
const struct oci_name *oci_name_find(const struct oci_name *table, size_t n, const char *name);

/* -1: no such capability in this version of glovebox (a newer kernel's, or a misprint). */
int oci_capability(const char *name);
const char *oci_capability_name(int number); /* NULL: unknown */
int oci_rlimit(const char *name);            /* RLIMIT_*, -1: unknown */
const char *oci_rlimit_name(int resource);   /* NULL: unknown */
