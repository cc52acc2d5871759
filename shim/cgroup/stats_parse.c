/* The texts of the kernel's counters.  Pure. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"
#include "shim/cgroup/stats.h"

#define DEVICES_MAX 4096

void cg_parse_keyed(const char *text, const struct cg_key *keys, size_t n, void *out)
{
    size_t at = 0; /* the kernel's order is nearly the table's: the search begins where the last one ended */

    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        size_t len = strcspn(line, " \n");
        for (size_t i = 0; i < n && line[len] == ' '; i++) {
            const struct cg_key *k = &keys[(at + i) % n];
            if (strncmp(k->key, line, len) != 0 || k->key[len])
                continue;
            *(uint64_t *)(void *)((char *)out + k->offset) = strtoull(line + len + 1, NULL, 10);
            at = (at + i + 1) % n;
            break;
        }
        line = *end ? end + 1 : end;
    }
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=0" */
void cg_parse_psi(const char *text, struct cgroup_psi *out)
{
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        struct cgroup_psi_data d = {0};
        char which[8];
        if (sscanf(line, "%7s avg10=%lf avg60=%lf avg300=%lf total=%" SCNu64, which, &d.avg10, &d.avg60,
                   &d.avg300, &d.total) == 5) {
            if (strcmp(which, "some") == 0)
                out->some = d;
            else if (strcmp(which, "full") == 0)
                out->full = d;
            out->has = true;
        }
        line = *end ? end + 1 : end;
    }
}

#define M1(k, m)                                                                                             \
    {                                                                                                        \
        k, offsetof(struct cgroup_v1_memory, m)                                                              \
    }
static const struct cg_key memory_v1[] = {
    M1("cache", cache),
    M1("rss", rss),
    M1("rss_huge", rss_huge),
    M1("mapped_file", mapped_file),
    M1("dirty", dirty),
    M1("writeback", writeback),
    M1("pgpgin", pg_pg_in),
    M1("pgpgout", pg_pg_out),
    M1("pgfault", pg_fault),
    M1("pgmajfault", pg_maj_fault),
    M1("inactive_anon", inactive_anon),
    M1("active_anon", active_anon),
    M1("inactive_file", inactive_file),
    M1("active_file", active_file),
    M1("unevictable", unevictable),
    M1("hierarchical_memory_limit", hierarchical_memory_limit),
    M1("hierarchical_memsw_limit", hierarchical_swap_limit),
    M1("total_cache", total_cache),
    M1("total_rss", total_rss),
    M1("total_rss_huge", total_rss_huge),
    M1("total_mapped_file", total_mapped_file),
    M1("total_dirty", total_dirty),
    M1("total_writeback", total_writeback),
    M1("total_pgpgin", total_pg_pg_in),
    M1("total_pgpgout", total_pg_pg_out),
    M1("total_pgfault", total_pg_fault),
    M1("total_pgmajfault", total_pg_maj_fault),
    M1("total_inactive_anon", total_inactive_anon),
    M1("total_active_anon", total_active_anon),
    M1("total_inactive_file", total_inactive_file),
    M1("total_active_file", total_active_file),
    M1("total_unevictable", total_unevictable),
};
_Static_assert(ARRAY_LEN(memory_v1) * sizeof(uint64_t) == sizeof(struct cgroup_v1_memory),
               "a counter of memory.stat has no row");

void cg_parse_memory_v1(const char *text, struct cgroup_stats *out)
{
    cg_parse_keyed(text, memory_v1, ARRAY_LEN(memory_v1), &out->v1.memory);
    out->v1.has_memory = true;
}

#define M2(m)                                                                                                \
    {                                                                                                        \
#m, offsetof(struct cgroup_v2_memory, m)                                                             \
    }
static const struct cg_key memory_v2[] = {
    M2(anon),
    M2(file),
    M2(kernel_stack),
    M2(slab),
    M2(sock),
    M2(shmem),
    M2(file_mapped),
    M2(file_dirty),
    M2(file_writeback),
    M2(anon_thp),
    M2(inactive_anon),
    M2(active_anon),
    M2(inactive_file),
    M2(active_file),
    M2(unevictable),
    M2(slab_reclaimable),
    M2(slab_unreclaimable),
    M2(pgfault),
    M2(pgmajfault),
    M2(workingset_refault),
    M2(workingset_activate),
    M2(workingset_nodereclaim),
    M2(pgrefill),
    M2(pgscan),
    M2(pgsteal),
    M2(pgactivate),
    M2(pgdeactivate),
    M2(pglazyfree),
    M2(pglazyfreed),
    M2(thp_fault_alloc),
    M2(thp_collapse_alloc),
    M2(workingset_refault_anon),
    M2(workingset_refault_file),
    M2(workingset_activate_anon),
    M2(workingset_activate_file),
};

void cg_parse_memory_v2(const char *text, struct cgroup_stats *out)
{
    cg_parse_keyed(text, memory_v2, ARRAY_LEN(memory_v2), &out->v2.memory);
    out->v2.has_memory = true;
}

/* "8:0 Read 4096"; without an operation "8:0 12"; a last line "Total 4096" belongs to no device. */
void cg_parse_blkio_v1(const char *text, int kind, struct cgroup_stats *out)
{
    size_t cap = 0;

    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        struct cgroup_v1_blkio_entry entry = {0};
        int n = sscanf(line, "%" SCNu64 ":%" SCNu64 " %11[A-Za-z] %" SCNu64, &entry.major, &entry.minor,
                       entry.op, &entry.value);
        if (n == 2)
            n = sscanf(line, "%*u:%*u %" SCNu64, &entry.value) == 1 ? 4 : n;
        if (n == 4 && out->v1.n_blkio[kind] < DEVICES_MAX) {
            out->v1.blkio[kind] = xgrow(out->v1.blkio[kind], out->v1.n_blkio[kind], &cap, sizeof entry);
            out->v1.blkio[kind][out->v1.n_blkio[kind]++] = entry;
        }
        line = *end ? end + 1 : end;
    }
    out->v1.has_blkio = true;
}

/* "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6"; a device without traffic has only its number. */
void cg_parse_io_v2(const char *text, struct cgroup_stats *out)
{
    size_t cap = 0;

    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        struct cgroup_v2_io_entry entry = {0};
        int n = sscanf(line,
                       "%" SCNu64 ":%" SCNu64 " rbytes=%" SCNu64 " wbytes=%" SCNu64 " rios=%" SCNu64
                       " wios=%" SCNu64,
                       &entry.major, &entry.minor, &entry.rbytes, &entry.wbytes, &entry.rios, &entry.wios);
        if (n == 6 && out->v2.n_io < DEVICES_MAX) {
            out->v2.io = xgrow(out->v2.io, out->v2.n_io, &cap, sizeof entry);
            out->v2.io[out->v2.n_io++] = entry;
        }
        line = *end ? end + 1 : end;
    }
    out->v2.has_io = true;
}

static uint32_t rdma_value(const char *word)
{
    unsigned long long v = strcmp(word, "max") == 0 ? UINT32_MAX : strtoull(word, NULL, 10);
    return v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

/* "mlx4_0 hca_handle=2 hca_object=2000" */
void cg_parse_rdma(const char *text, struct cgroup_stats *out, bool limit)
{
    struct cgroup_rdma_stat *list = limit ? out->rdma_limit : out->rdma_current;
    size_t *n = limit ? &out->n_rdma_limit : &out->n_rdma_current;

    for (const char *line = text; *line && *n < CGROUP_RDMA_MAX;) {
        const char *end = strchrnul(line, '\n');
        char handles[24], objects[24];
        struct cgroup_rdma_stat *r = &list[*n];
        if (sscanf(line, "%31s hca_handle=%23s hca_object=%23s", r->device, handles, objects) == 3) {
            r->hca_handles = rdma_value(handles);
            r->hca_objects = rdma_value(objects);
            ++*n;
        }
        line = *end ? end + 1 : end;
    }
}
