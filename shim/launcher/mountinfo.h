#pragma once
/* /proc/self/mountinfo, read when a mount itself must be asked what it is. */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct mountinfo {
    char *text; /* owns what the lines point to */
    struct mountinfo_line {
        uint64_t id;
        const char *point, *type, *fs_options; /* unescaped */
    } * line;
    size_t n;
};
int mountinfo_read(int proc_self, struct mountinfo *ret, struct err *e); /* AT_FDCWD: /proc/self */
void mountinfo_done(struct mountinfo *m);
static inline void mountinfo_done_scoped(struct mountinfo *m)
{
    mountinfo_done(m);
}
#define scoped_mountinfo __attribute__((cleanup(mountinfo_done_scoped)))
