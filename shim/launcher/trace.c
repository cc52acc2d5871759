#include "shim/launcher/trace.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macro.h"

#define STEPS_MAX 120

struct trace {
    atomic_uint n;
    int64_t start_ns;
    struct {
        int64_t at_ns;
        const char *step;
        char who;
    } row[STEPS_MAX];
};

struct trace *trace_new(void)
{
    struct trace *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (t == MAP_FAILED)
        return NULL;
    t->start_ns = clock_mono_ns();
    return t;
}

void trace_free(struct trace *t)
{
    if (t)
        (void)munmap(t, sizeof *t);
}

void trace_step(struct trace *t, char who, const char *step)
{
    if (!t)
        return;
    unsigned i = atomic_fetch_add(&t->n, 1);
    if (i >= STEPS_MAX)
        return;
    t->row[i].at_ns = clock_mono_ns();
    t->row[i].who = who;
    t->row[i].step = step;
}

void trace_log(const struct trace *t, const char *id)
{
    if (!t)
        return;
    unsigned n = atomic_load(&t->n);
    for (unsigned i = 0; i < MIN(n, (unsigned)STEPS_MAX); i++)
        if (t->row[i].step)
            log_debug("launch step", "id=%s who=%c step=%s us=%lld", id, t->row[i].who, t->row[i].step,
                      (long long)(t->row[i].at_ns - t->start_ns) / 1000);
}
