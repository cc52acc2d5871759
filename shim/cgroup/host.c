/* Which hierarchies this host has, from mountinfo; and small reads and writes of their files. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

#define CGROUP2_MAGIC 0x63677270
#define MOUNT_POINT   "/sys/fs/cgroup"

static const struct {
    const char *v1, *v2;
    enum cg_ctrl bit;
} names[] = {
    {"cpu", "cpu", CG_CPU},          {"cpuacct", NULL, CG_CPUACCT},   {"cpuset", "cpuset", CG_CPUSET},
    {"memory", "memory", CG_MEMORY}, {"devices", NULL, CG_DEVICES},   {"freezer", NULL, CG_FREEZER},
    {"blkio", "io", CG_IO},          {"pids", "pids", CG_PIDS},       {"hugetlb", "hugetlb", CG_HUGETLB},
    {"net_cls", NULL, CG_NET_CLS},   {"net_prio", NULL, CG_NET_PRIO}, {"perf_event", NULL, CG_PERF_EVENT},
    {"rdma", "rdma", CG_RDMA},       {"misc", "misc", CG_MISC},       {"name=systemd", NULL, CG_SYSTEMD},
};

const char *cg_ctrl_name(enum cg_ctrl c, enum cgroup_mode mode)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].bit == c)
            return mode == CGROUP_V2 && names[i].v2 ? names[i].v2 : names[i].v1;
    return "cgroup";
}

unsigned cg_ctrl_bit(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i].v1) == 0 || (names[i].v2 && strcmp(name, names[i].v2) == 0))
            return names[i].bit;
    return 0;
}

/* The controllers in a list of words. */
static unsigned controllers_in(const char *list, const char *separators)
{
    unsigned bits = 0;

    for (const char *p = list + strspn(list, separators); *p; p += strspn(p, separators)) {
        char word[32];
        size_t n = strcspn(p, separators);
        if (n < sizeof word) {
            memcpy(word, p, n);
            word[n] = '\0';
            bits |= cg_ctrl_bit(word);
        }
        p += n;
    }
    return bits;
}

/* ---- files --------------------------------------------------------------------------------------- */

ssize_t cg_read(int dir, const char *file, char *buf, size_t size)
{
    scoped_fd int fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;

    size_t n = 0;
    while (n < size - 1) {
        ssize_t r = read(fd, buf + n, size - 1 - n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        n += (size_t)r;
        /* kernfs shows a file in one piece: a short read was its end. */
        if (r == 0 || n < size - 1)
            break;
    }
    buf[n] = '\0';
    return (ssize_t)n;
}

int cg_read_u64(int dir, const char *file, uint64_t *ret)
{
    char text[64];
    ssize_t r = cg_read(dir, file, text, sizeof text);
    if (r < 0)
        return (int)r;
    text[strcspn(text, " \n")] = '\0';
    if (strcmp(text, "max") == 0) {
        *ret = UINT64_MAX;
        return 0;
    }
    return parse_u64(text, UINT64_MAX, ret);
}

int cg_read_i64(int dir, const char *file, int64_t *ret)
{
    char text[64];
    ssize_t r = cg_read(dir, file, text, sizeof text);
    if (r < 0)
        return (int)r;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || errno)
        return -EINVAL;
    *ret = value;
    return 0;
}

int cg_write(int dir, const char *file, const char *text)
{
    scoped_fd int fd = openat(dir, file, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    ssize_t r = 0;
    do
        r = write(fd, text, strlen(text));
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

bool cg_keyed(const char *text, const char *key, uint64_t *ret)
{
    size_t n = strlen(key);

    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n');
        if ((size_t)(end - line) > n && line[n] == ' ' && memcmp(line, key, n) == 0) {
            *ret = strtoull(line + n + 1, NULL, 10);
            return true;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

/* ---- mountinfo ----------------------------------------------------------------------------------- */

/* Word number i of a line, counted from 0; NULL: the line is shorter. */
static const char *word_at(const char *line, size_t i, size_t *ret_n)
{
    const char *p = line;

    for (; i > 0; i--) {
        p += strcspn(p, " \n");
        if (*p != ' ')
            return NULL;
        p++;
    }
    *ret_n = strcspn(p, " \n");
    return p;
}

static bool copy_word(char *out, size_t size, const char *word, size_t n)
{
    if (!word || n >= size)
        return false;
    memcpy(out, word, n);
    out[n] = '\0';
    return true;
}

/* One line: "36 25 0:31 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory". */
static void parse_mount(const char *line, size_t len, struct cg_host *out)
{
    char text[1024], type[16], options[256];

    if (len >= sizeof text || out->n == CG_HIER_MAX)
        return;
    memcpy(text, line, len);
    text[len] = '\0';

    struct cg_hier h = {.dir = -1};
    size_t n = 0;
    const char *w = word_at(text, 3, &n), *tail = strstr(text, " - ");
    if (!tail || !copy_word(h.root, sizeof h.root, w, n))
        return;
    w = word_at(text, 4, &n);
    if (!copy_word(h.mount, sizeof h.mount, w, n) || strncmp(h.mount, MOUNT_POINT, strlen(MOUNT_POINT)) != 0)
        return;
    w = word_at(tail + 3, 0, &n);
    if (!copy_word(type, sizeof type, w, n))
        return;
    w = word_at(tail + 3, 2, &n);
    if (!copy_word(options, sizeof options, w, n))
        return;

    h.v2 = strcmp(type, "cgroup2") == 0;
    h.ctrl = h.v2 ? CG_CORE : strcmp(type, "cgroup") == 0 ? controllers_in(options, ",") : 0;
    for (size_t i = 0; i < out->n; i++)
        if (out->hier[i].ctrl & h.ctrl)
            return; /* mounted twice: the first is as good as the second */
    if (h.ctrl)
        out->hier[out->n++] = h;
}

void cg_host_parse(const char *mountinfo, struct cg_host *out)
{
    *out = (struct cg_host){0};
    for (const char *line = mountinfo; *line;) {
        const char *end = strchrnul(line, '\n');
        parse_mount(line, (size_t)(end - line), out);
        line = *end ? end + 1 : end;
    }
    for (size_t i = 0; i < out->n; i++)
        if (!out->hier[i].v2)
            out->mode = CGROUP_V1;
    if (out->n > 0 && out->mode == CGROUP_NONE)
        out->mode = CGROUP_V2;
}

bool cg_own_path(const char *proc_cgroup, const struct cg_hier *h, char *ret, size_t size)
{
    for (const char *line = proc_cgroup; *line;) {
        const char *end = strchrnul(line, '\n'), *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path) {
            char controllers[128];
            bool fits = copy_word(controllers, sizeof controllers, list + 1, (size_t)(path - list - 1));
            unsigned ctrl = fits && controllers[0] ? controllers_in(controllers, ",") : fits ? CG_CORE : 0;
            if (h->v2 ? ctrl == CG_CORE : (ctrl & h->ctrl) != 0)
                return copy_word(ret, size, path + 1, (size_t)(end - path - 1));
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

/* ---- the host, once ------------------------------------------------------------------------------ */

static void open_hierarchies(struct cg_host *host)
{
    for (size_t i = 0; i < host->n; i++) {
        struct cg_hier *h = &host->hier[i];
        h->dir = open(h->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char list[256];
        if (h->v2 && h->dir >= 0 && cg_read(h->dir, "cgroup.controllers", list, sizeof list) >= 0 &&
            host->mode == CGROUP_V2)
            h->ctrl |= controllers_in(list, " \n");
    }
}

/*
 * The layout of a running host does not change: systemd decides at boot.  Kept for the whole process,
 * so that making a group costs no look at mountinfo.
 */
const struct cg_host *cg_host(void)
{
    static struct cg_host host;
    static bool known;

    if (!known) {
        scoped_free char *text = NULL;
        size_t len = 0;
        if (file_read(AT_FDCWD, "/proc/self/mountinfo", 16u << 20, &text, &len, NULL) == 0)
            cg_host_parse(text, &host);
        struct statfs fs;
        if (statfs(MOUNT_POINT, &fs) == 0 && (unsigned long)fs.f_type == CGROUP2_MAGIC)
            host.mode = CGROUP_V2;
        open_hierarchies(&host);
        known = true;
    }
    return &host;
}

enum cgroup_mode cgroup_host_mode(void)
{
    return cg_host()->mode;
}
