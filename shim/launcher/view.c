#include "shim/launcher/view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scoped.h"
#include "base/strbuf.h"

#define TEXT_MAX (1u << 20)
#define CPUS_MAX 1024

/* ---- facts of the host -------------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    char *text = NULL;

    return file_read(AT_FDCWD, path, TEXT_MAX, &text, NULL, NULL) < 0 ? NULL : text;
}

/* Cuts cpuinfo after the n-th stanza (each ends with an empty line). */
static void keep_stanzas(char *text, int n)
{
    char *p = text;

    while (p && n-- > 0) {
        p = strstr(p, "\n\n");
        if (p)
            p += 2;
    }
    if (p)
        *p = '\0';
}

static int64_t boot_time(void)
{
    struct timespec wall = clock_wall(), up;

    (void)clock_gettime(CLOCK_BOOTTIME, &up);
    return wall.tv_sec - up.tv_sec - (wall.tv_nsec < up.tv_nsec);
}

void view_facts_read(int64_t cpu_milli, int64_t memory_bytes, struct view_facts *ret)
{
    struct view_facts f = {.host_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), .boot_time = boot_time()};
    struct sysinfo info = {0};
    struct utsname u = {0};

    (void)sysinfo(&info);
    f.host_memory_bytes = (int64_t)info.totalram * info.mem_unit;
    if (memory_bytes > 0 && memory_bytes < f.host_memory_bytes)
        f.memory_bytes = memory_bytes;
    int64_t cpus = (cpu_milli + 999) / 1000;
    if (cpu_milli > 0 && cpus < f.host_cpus && cpus <= CPUS_MAX) {
        f.cpus = (int)cpus;
        f.cpuinfo = read_text("/proc/cpuinfo");
        if (f.cpuinfo)
            keep_stanzas(f.cpuinfo, f.cpus);
    }
    f.thp_enabled = read_text("/sys/kernel/mm/transparent_hugepage/enabled");
    f.thp_size = read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    f.huge_page_bytes = f.thp_size ? strtoll(f.thp_size, NULL, 10) : 2 << 20;
    (void)uname(&u);
    if (asprintf(&f.version, "Linux version %s (glovebox@sandbox) %s\n", u.release, u.version) < 0)
        f.version = NULL;
    *ret = f;
}

void view_facts_done(struct view_facts *f)
{
    free(f->cpuinfo);
    free(f->thp_enabled);
    free(f->thp_size);
    free(f->version);
    *f = (struct view_facts){0};
}

/* ---- /proc -------------------------------------------------------------------------------------- */

static void put_meminfo(struct strbuf *s, const struct view_facts *f)
{
    int64_t total = f->memory_bytes / 1024;
    const struct {
        const char *key;
        int64_t kib;
    } rows[] = {
        {"MemTotal", total},    {"MemFree", total},  {"MemAvailable", total},
        {"Buffers", 0},         {"Cached", 0},       {"SwapCached", 0},
        {"Active", 0},          {"Inactive", 0},     {"Active(anon)", 0},
        {"Inactive(anon)", 0},  {"Active(file)", 0}, {"Inactive(file)", 0},
        {"Unevictable", 0},     {"Mlocked", 0},      {"SwapTotal", 0},
        {"SwapFree", 0},        {"Dirty", 0},        {"Writeback", 0},
        {"AnonPages", 0},       {"Mapped", 0},       {"Shmem", 0},
        {"KReclaimable", 0},    {"Slab", 0},         {"SReclaimable", 0},
        {"SUnreclaim", 0},      {"KernelStack", 0},  {"PageTables", 0},
        {"NFS_Unstable", 0},    {"Bounce", 0},       {"WritebackTmp", 0},
        {"CommitLimit", total}, {"Committed_AS", 0}, {"VmallocTotal", 34359738367},
        {"VmallocUsed", 0},     {"VmallocChunk", 0}, {"AnonHugePages", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        strbuf_printf(s, "%s:%*" PRId64 " kB\n", rows[i].key, 23 - (int)strlen(rows[i].key), rows[i].kib);
    strbuf_printf(s,
                  "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        "
                  "0\nHugePages_Surp:        0\n"
                  "Hugepagesize:   %8" PRId64 " kB\n",
                  f->huge_page_bytes / 1024);
}

static void put_cpuinfo(struct strbuf *s, const struct view_facts *f)
{
    strbuf_puts(s, f->cpuinfo);
}

/* No times of the host: other pods could be watched by them. Idle since boot. */
static void put_stat(struct strbuf *s, const struct view_facts *f)
{
    int n = f->cpus ? f->cpus : f->host_cpus;
    int64_t idle = (clock_wall().tv_sec - f->boot_time) * sysconf(_SC_CLK_TCK);

    strbuf_printf(s, "cpu  0 0 0 %" PRId64 " 0 0 0 0 0 0\n", idle * n);
    for (int i = 0; i < n; i++)
        strbuf_printf(s, "cpu%d 0 0 0 %" PRId64 " 0 0 0 0 0 0\n", i, idle);
    strbuf_printf(s,
                  "intr 0\nctxt 0\nbtime %" PRId64 "\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
                  "softirq 0 0 0 0 0 0 0 0 0 0 0\n",
                  f->boot_time);
}

static void put_loadavg(struct strbuf *s, const struct view_facts *f UNUSED)
{
    strbuf_puts(s, "0.00 0.00 0.00 1/1 1\n");
}

static void put_version(struct strbuf *s, const struct view_facts *f)
{
    strbuf_puts(s, f->version);
}

static void put_swaps(struct strbuf *s, const struct view_facts *f UNUSED)
{
    strbuf_puts(s, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
}

static void put_vmstat(struct strbuf *s, const struct view_facts *f UNUSED)
{
    strbuf_puts(
        s,
        "nr_free_pages 0\npgpgin 0\npgpgout 0\npswpin 0\npswpout 0\npgfault 0\npgmajfault 0\noom_kill 0\n");
}

static void put_partitions(struct strbuf *s, const struct view_facts *f UNUSED)
{
    strbuf_puts(s, "major minor  #blocks  name\n\n");
}

static bool always(const struct view_facts *f UNUSED)
{
    return true;
}
static bool limits_memory(const struct view_facts *f)
{
    return f->memory_bytes > 0;
}
static bool limits_cpu(const struct view_facts *f)
{
    return f->cpuinfo != NULL;
}
static bool has_version(const struct view_facts *f)
{
    return f->version != NULL;
}

static const struct {
    const char *name;
    bool (*shown)(const struct view_facts *f);
    void (*put)(struct strbuf *s, const struct view_facts *f);
} proc_files[] = {
    {"meminfo", limits_memory, put_meminfo},
    {"cpuinfo", limits_cpu, put_cpuinfo},
    {"stat", always, put_stat},
    {"loadavg", always, put_loadavg},
    {"version", has_version, put_version},
    {"swaps", always, put_swaps},
    {"vmstat", always, put_vmstat},
    {"partitions", always, put_partitions},
};
_Static_assert(ARRAY_LEN(proc_files) <= VIEW_FILES_MAX, "more synthetic files than a caller has room for");

size_t view_proc_names(const struct view_facts *f, const char *out[VIEW_FILES_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(proc_files); i++)
        if (proc_files[i].shown(f))
            out[n++] = proc_files[i].name;
    return n;
}

static int write_file(int dir, const char *path, const char *text, size_t n, struct err *e)
{
    scoped_fd int fd = openat(dir, path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return err_sys(e, "synthetic %s", path);
    /* In place and cut last, so that a reader never finds an empty file. */
    ssize_t done = pwrite(fd, text, n, 0);
    if (done != (ssize_t)n || ftruncate(fd, (off_t)n) < 0)
        return err_sys(e, "write synthetic %s", path);
    return 0;
}

int view_write_proc(int dir, const struct view_facts *f, struct err *e)
{
    scoped_strbuf struct strbuf s;

    strbuf_init(&s, TEXT_MAX);
    for (size_t i = 0; i < ARRAY_LEN(proc_files); i++) {
        if (!proc_files[i].shown(f))
            continue;
        strbuf_reset(&s);
        proc_files[i].put(&s, f);
        int r = write_file(dir, proc_files[i].name, s.data, s.len, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int launch_view_update(int proc_view_fd, int64_t cpu_milli, int64_t memory_bytes, struct err *e)
{
    struct view_facts f;

    view_facts_read(cpu_milli, memory_bytes, &f);
    /* A file that was not covered at the start cannot be covered now; writing it is harmless. */
    int r = view_write_proc(proc_view_fd, &f, e);
    view_facts_done(&f);
    return r;
}

/* ---- /sys --------------------------------------------------------------------------------------- */

/* "%R" 0-(n-1), "%M" mask of n bits, "%K" kernel_max, "%T" transparent huge pages, "%P" their size, "%I"
 * memory of node 0. */
static const struct {
    const char *path;
    const char *text; /* NULL = directory */
} sys_tree[] = {
    {"block", NULL},
    {"bus", NULL},
    {"class", NULL},
    {"class/net", NULL},
    {"class/block", NULL},
    {"dev", NULL},
    {"dev/block", NULL},
    {"dev/char", NULL},
    {"devices", NULL},
    {"devices/system", NULL},
    {"devices/virtual", NULL},
    {"firmware", NULL},
    {"fs", NULL},
    {"fs/cgroup", NULL},
    {"kernel", NULL},
    {"kernel/mm", NULL},
    {"module", NULL},
    {"power", NULL},
    {"kernel/mm/hugepages", NULL},
    {"kernel/mm/transparent_hugepage", NULL},
    {"kernel/mm/transparent_hugepage/enabled", "%T"},
    {"kernel/mm/transparent_hugepage/hpage_pmd_size", "%P"},
    {"devices/system/cpu", NULL},
    {"devices/system/cpu/online", "%R"},
    {"devices/system/cpu/possible", "%R"},
    {"devices/system/cpu/present", "%R"},
    {"devices/system/cpu/offline", "\n"},
    {"devices/system/cpu/kernel_max", "%K"},
    {"devices/system/node", NULL},
    {"devices/system/node/online", "0\n"},
    {"devices/system/node/possible", "0\n"},
    {"devices/system/node/has_cpu", "0\n"},
    {"devices/system/node/has_memory", "0\n"},
    {"devices/system/node/node0", NULL},
    {"devices/system/node/node0/cpulist", "%R"},
    {"devices/system/node/node0/cpumap", "%M"},
    {"devices/system/node/node0/distance", "10\n"},
    {"devices/system/node/node0/meminfo", "%I"},
};

static void put_range(struct strbuf *s, int n)
{
    if (n == 1)
        strbuf_puts(s, "0\n");
    else
        strbuf_printf(s, "0-%d\n", n - 1);
}

/* As the kernel writes cpu masks: 32-bit words in hex, the highest first, with commas. */
static void put_mask(struct strbuf *s, int n)
{
    for (int word = (n - 1) / 32; word >= 0; word--) {
        int bits = MIN(n - word * 32, 32);
        uint32_t mask = bits == 32 ? UINT32_MAX : (1u << bits) - 1;
        if (n > 32)
            strbuf_printf(s, "%08x%s", mask, word ? "," : "\n");
        else
            strbuf_printf(s, "%x\n", mask);
    }
}

static void put_node_meminfo(struct strbuf *s, const struct view_facts *f)
{
    int64_t kib = (f->memory_bytes ? f->memory_bytes : f->host_memory_bytes) / 1024;

    strbuf_printf(
        s, "Node 0 MemTotal: %14" PRId64 " kB\nNode 0 MemFree:  %14" PRId64 " kB\nNode 0 MemUsed:  %14d kB\n",
        kib, kib, 0);
}

static void put_sys(struct strbuf *s, const char *text, const struct view_facts *f)
{
    int n = f->cpus ? f->cpus : f->host_cpus;

    if (text[0] != '%')
        strbuf_puts(s, text);
    else if (text[1] == 'R')
        put_range(s, n);
    else if (text[1] == 'M')
        put_mask(s, n);
    else if (text[1] == 'K')
        strbuf_printf(s, "%d\n", n - 1);
    else if (text[1] == 'I')
        put_node_meminfo(s, f);
    else if (text[1] == 'T')
        strbuf_puts(s, f->thp_enabled ? f->thp_enabled : "always madvise [never]\n");
    else
        strbuf_printf(s, "%" PRId64 "\n", f->huge_page_bytes);
}

static int make_dir(int dir, const char *path, struct err *e)
{
    return mkdirat(dir, path, 0555) < 0 && errno != EEXIST ? err_sys(e, "synthetic /sys/%s", path) : 0;
}

/* One core for each processor, in one package. */
static int write_cpu(int dir, int cpu, struct err *e)
{
    char base[64], path[96], text[32];
    const struct {
        const char *name;
        int value;
    } files[] = {
        {"core_id", cpu}, {"physical_package_id", 0}, {"thread_siblings_list", cpu}, {"core_cpus_list", cpu}};

    (void)snprintf(base, sizeof base, "devices/system/cpu/cpu%d", cpu);
    int r = make_dir(dir, base, e);
    (void)snprintf(path, sizeof path, "%s/topology", base);
    if (r == 0)
        r = make_dir(dir, path, e);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(files); i++) {
        (void)snprintf(path, sizeof path, "%s/topology/%s", base, files[i].name);
        int n = snprintf(text, sizeof text, "%d\n", files[i].value);
        r = write_file(dir, path, text, (size_t)n, e);
    }
    return r;
}

int view_write_sys(int dir, const struct view_facts *f, const char *const *cgroups, size_t n_cgroups,
                   struct err *e)
{
    scoped_strbuf struct strbuf s;
    int r = 0;

    strbuf_init(&s, TEXT_MAX);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(sys_tree); i++) {
        if (!sys_tree[i].text) {
            r = make_dir(dir, sys_tree[i].path, e);
            continue;
        }
        strbuf_reset(&s);
        put_sys(&s, sys_tree[i].text, f);
        r = write_file(dir, sys_tree[i].path, s.data, s.len, e);
    }
    int n = f->cpus ? f->cpus : f->host_cpus;
    for (int i = 0; r == 0 && i < MIN(n, 64); i++)
        r = write_cpu(dir, i, e);
    for (size_t i = 0; r == 0 && i < n_cgroups; i++) {
        strbuf_reset(&s);
        strbuf_printf(&s, "fs/cgroup/%s", cgroups[i]);
        r = cgroups[i][0] ? make_dir(dir, s.data, e) : 0;
    }
    return r;
}
