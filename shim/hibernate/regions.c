/* Which memory of a process can be moved out, and which of its pages hold anything. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/scoped.h"
#include "shim/hibernate/regions.h"

#define SMAPS_MAX (256u << 20)

/* Locked, device, page-frame, huge, sealed: cannot be dropped, or must not be. */
static const char *const kept_flags[] = {" lo", " io", " pf", " ht", " sl", " ss"};

struct mapping {
    unsigned long start, end;
    char perms[8], name[64];
    unsigned long inode, anonymous_kb;
    bool kept;
};

static uint64_t arg_start(pid_t pid)
{
    uint64_t start = 0;

    (void)proc_stat_field(pid, 48, &start);
    return start;
}

static void add_region(struct space *s, const struct mapping *m)
{
    uint64_t end = m->end;

    if (m->perms[3] != 'p' || m->inode != 0 || m->kept || m->anonymous_kb == 0)
        return;
    if (strncmp(m->name, "[vvar", 5) == 0 || strcmp(m->name, "[vdso]") == 0 ||
        strcmp(m->name, "[vsyscall]") == 0)
        return;
    if (strcmp(m->name, "[stack]") == 0) { /* arguments and environment stay readable in /proc */
        uint64_t args = arg_start(s->pid) & ~(uint64_t)(PAGE_BYTES - 1);
        if (args > m->start && args < end)
            end = args;
    }
    /* A list that takes several reads can name a mapping twice (seen on 6.18, about one pause in 2000). */
    if (s->n_regions && m->start < s->regions[s->n_regions - 1].end)
        return;
    s->regions = xgrow(s->regions, s->n_regions, &s->cap_regions, sizeof *s->regions);
    s->regions[s->n_regions++] = (struct region){.start = m->start, .end = end};
}

static bool is_header(const char *line, struct mapping *m)
{
    struct mapping fresh = {0};
    int n = sscanf(line, "%lx-%lx %7s %*x %*x:%*x %lu %63s", &fresh.start, &fresh.end, fresh.perms,
                   &fresh.inode, fresh.name);

    if (n < 4 || strlen(fresh.perms) != 4)
        return false;
    *m = fresh;
    return true;
}

int regions_find(struct space *s, struct err *e)
{
    char path[64];
    scoped_free char *text = NULL;
    struct mapping m = {0};

    (void)snprintf(path, sizeof path, "/proc/%d/smaps", s->pid);
    int r = file_read(-1, path, SMAPS_MAX, &text, NULL, e);
    if (r < 0)
        return r;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        struct mapping next;
        if (is_header(line, &next)) {
            m = next;
        } else if (strncmp(line, "Anonymous:", 10) == 0) {
            (void)sscanf(line + 10, "%lu", &m.anonymous_kb);
        } else if (strncmp(line, "Swap:", 5) == 0) {
            unsigned long swapped = 0;
            (void)sscanf(line + 5, "%lu", &swapped);
            m.anonymous_kb += swapped;
        } else if (strncmp(line, "VmFlags:", 8) == 0) { /* the last line of a mapping */
            for (size_t i = 0; i < ARRAY_LEN(kept_flags); i++)
                m.kept = m.kept || strstr(line, kept_flags[i]);
            add_region(s, &m);
        }
    }
    return 0;
}

/* PAGEMAP_SCAN, Linux 6.7 (include/uapi/linux/fs.h); older headers lack it. */
struct scan_out {
    uint64_t start, end, categories;
};
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof_mask,
        return_mask;
};
#define SCAN_IOCTL   _IOWR('f', 16, struct scan_arg)
#define SCAN_PRESENT (1u << 3)
#define SCAN_SWAPPED (1u << 4)
#define SCAN_PFNZERO (1u << 5)

static int scan_new(int pagemap, const struct region *region, region_page_fn fn, void *data)
{
    struct scan_out out[256];
    struct scan_arg arg = {.size = sizeof arg,
                           .start = region->start,
                           .end = region->end,
                           .vec = (uint64_t)(uintptr_t)out,
                           .vec_len = ARRAY_LEN(out),
                           .inverted = SCAN_PFNZERO,
                           .mask = SCAN_PFNZERO,
                           .anyof_mask = SCAN_PRESENT | SCAN_SWAPPED,
                           .return_mask = SCAN_PRESENT | SCAN_SWAPPED};

    while (arg.start < region->end) {
        int n = ioctl(pagemap, SCAN_IOCTL, &arg);
        if (n < 0)
            return -errno;
        for (int i = 0; i < n; i++) {
            int r = fn(data, out[i].start, out[i].end);
            if (r < 0)
                return r;
        }
        if (arg.walk_end <= arg.start)
            break;
        arg.start = arg.walk_end;
    }
    return 0;
}

static int scan_old(int pagemap, const struct region *region, region_page_fn fn, void *data)
{
    uint64_t entries[512];
    uint64_t run = 0; /* start of the present run, 0 = none */

    for (uint64_t addr = region->start; addr < region->end;) {
        size_t want = (size_t)MIN((region->end - addr) / PAGE_BYTES, ARRAY_LEN(entries));
        ssize_t got = pread(pagemap, entries, want * 8, (off_t)(addr / PAGE_BYTES * 8));
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        for (size_t i = 0; i < (size_t)got / 8; i++, addr += PAGE_BYTES) {
            bool there = entries[i] >> 62 & 3; /* bit 63 present, bit 62 swapped */
            if (there && !run)
                run = addr;
            if (!there && run) {
                int r = fn(data, run, addr);
                if (r < 0)
                    return r;
                run = 0;
            }
        }
    }
    return run ? fn(data, run, region->end) : 0;
}

int regions_scan(const struct space *s, region_page_fn fn, void *data, struct err *e)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/pagemap", s->pid);
    scoped_fd int pagemap = open(path, O_RDONLY | O_CLOEXEC);
    if (pagemap < 0)
        return err_sys(e, "open %s", path);
    for (size_t i = 0; i < s->n_regions; i++) {
        int r = scan_new(pagemap, &s->regions[i], fn, data);
        if (r == -ENOTTY)
            r = scan_old(pagemap, &s->regions[i], fn, data);
        if (r < 0)
            return e && e->code == r
                       ? r
                       : err_set(e, r, "scan the pages of process %d: %s", s->pid, strerror(-r));
    }
    return 0;
}
