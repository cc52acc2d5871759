#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/scoped.h"

int proc_stat_field(pid_t pid, unsigned place, uint64_t *ret)
{
    char path[64], *end;
    scoped_free char *text = NULL;

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int r = file_read(AT_FDCWD, path, 4096, &text, NULL, NULL);
    if (r < 0)
        return r;
    char *p = strrchr(text, ')'); /* field 2 is the name, which may hold anything */
    for (unsigned field = 2; p && field < place; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    if (!p)
        return -EBADMSG;
    uint64_t value = strtoull(p, &end, 10);
    if (end == p)
        return -EBADMSG;
    *ret = value;
    return 0;
}
