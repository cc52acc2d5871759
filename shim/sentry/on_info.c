/* sysinfo and sched_getaffinity: the pod's limits instead of the host's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "shim/sentry/calls.h"

#define MASK_BYTES 1024 /* 8192 CPUs, the most that Linux has */

void on_sysinfo(struct call *call)
{
    struct sysinfo info;
    int64_t limit = call->core->memory_bytes;

    if (sysinfo(&info) < 0) {
        call_fail(call, errno);
        return;
    }
    uint64_t total = (uint64_t)info.totalram * info.mem_unit,
             free_bytes = (uint64_t)info.freeram * info.mem_unit;
    if (limit > 0 && (uint64_t)limit < total) {
        total = (uint64_t)limit;
        free_bytes = MIN(free_bytes, total);
    }
    /* Only what the pod may know: no load, process count, swap or buffers of the host. */
    struct sysinfo shown = {
        .uptime = info.uptime, .totalram = total, .freeram = free_bytes, .procs = 1, .mem_unit = 1};
    if (call_write(call, call_arg(call, 0), &shown, sizeof shown) < 0)
        call_fail(call, EFAULT);
    else
        call_return(call, 0);
}

/* Leaves the first n CPUs of the mask. */
static void keep_cpus(uint8_t *mask, size_t bytes, unsigned n)
{
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        uint8_t here = (uint8_t)(1U << (bit % 8));
        if (!(mask[bit / 8] & here))
            continue;
        if (n > 0)
            n--;
        else
            mask[bit / 8] &= (uint8_t)~here;
    }
}

void on_getaffinity(struct call *call)
{
    uint8_t mask[MASK_BYTES];
    int64_t milli = call->core->cpu_milli;

    size_t room = MIN((size_t)(unsigned)call_arg(call, 1), sizeof mask);
    long n = syscall(SYS_sched_getaffinity, (pid_t)call->u.n.pid, room, mask);
    if (n < 0) {
        call_fail(call, errno);
        return;
    }
    if (milli > 0)
        keep_cpus(mask, (size_t)n, (unsigned)MIN((milli + 999) / 1000, (int64_t)MASK_BYTES * 8));
    if (call_write(call, call_arg(call, 2), mask, (size_t)n) < 0)
        call_fail(call, EFAULT);
    else
        call_return(call, n);
}
