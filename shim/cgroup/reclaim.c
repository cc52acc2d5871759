/* Giving page cache back. */
#include <errno.h>

#include "shim/cgroup/internal.h"

int cgroup_reclaim(const struct cgroup *cg, struct err *e)
{
    const struct cg_dir *d = cg->mode == CGROUP_V2 ? cg_core(cg) : cg_part(cg, CG_MEMORY);
    char amount[32];
    uint64_t usage;

    if (!d)
        return 0;
    if (cg->mode != CGROUP_V2)
        return cg_write(d->dir, "memory.force_empty", "0") < 0 ? err_sys(e, "memory.force_empty") : 0;
    if (cg_read_u64(d->dir, "memory.current", &usage) < 0 || usage == 0)
        return 0;
    (void)snprintf(amount, sizeof amount, "%llu", (unsigned long long)usage);
    /* EAGAIN: less than that could be reclaimed, which is the normal end.  ENOENT: before Linux 5.19. */
    int r = cg_write(d->dir, "memory.reclaim", amount);
    return r < 0 && r != -EAGAIN && r != -ENOENT ? err_set(e, r, "memory.reclaim: %s", strerror(-r)) : 0;
}
