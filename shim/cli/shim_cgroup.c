#include "shim/cli/shim_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define MOUNTINFO_MAX (1u << 20)

/* A new v1 cpuset takes no process before it has CPUs and memory nodes: it gets its parent's. */
static void inherit_cpuset(const char *dir)
{
    static const char *const files[] = {"cpuset.cpus", "cpuset.mems"};
    const char *slash = strrchr(dir, '/');

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        scoped_free char *from = xasprintf("%.*s/%s", (int)(slash - dir), dir, files[i]);
        scoped_free char *to = xasprintf("%s/%s", dir, files[i]);
        scoped_free char *now = NULL;
        scoped_free char *text = NULL;
        if (file_read(AT_FDCWD, to, 4096, &now, NULL, NULL) < 0 || (now[0] && now[0] != '\n'))
            continue;
        if (file_read(AT_FDCWD, from, 4096, &text, NULL, NULL) == 0)
            (void)file_write(AT_FDCWD, to, text, NULL);
    }
}

static int make_dirs(char *dir, size_t root_len, bool cpuset, struct err *e)
{
    for (char *p = dir + root_len + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        int r = mkdir(dir, 0755) < 0 && errno != EEXIST ? err_sys(e, "shim_cgroup: mkdir %s", dir) : 0;
        if (r == 0 && cpuset)
            inherit_cpuset(dir);
        *p = c;
        if (r < 0 || c == '\0')
            return r;
    }
}

static int enter(const char *root, const char *path, bool cpuset, struct err *e)
{
    scoped_free char *dir = xasprintf("%s/%s", root, path);
    int r = make_dirs(dir, strlen(root), cpuset, e);
    if (r < 0)
        return r;
    scoped_free char *procs = xasprintf("%s/cgroup.procs", dir);
    r = file_write(AT_FDCWD, procs, "0", e);
    return r < 0 ? err_wrap(e, r, "shim_cgroup") : 0;
}

/* The part of a line from field n on (0-based, one space between fields); NULL if there are fewer. */
static char *field(char *line, unsigned n)
{
    for (; line && n > 0; n--) {
        line = strchr(line, ' ');
        line = line ? line + 1 : NULL;
    }
    return line;
}

/* One line of mountinfo: "36 35 98:0 / /mnt rw,noatime shared:1 - cgroup cgroup rw,cpuset". */
static int enter_line(char *line, const char *path, struct err *e)
{
    char *separator = strstr(line, " - ");
    char *root = field(line, 3);
    char *point = field(line, 4);

    if (!separator || !root || !point || strncmp(separator + 3, "cgroup", 6) != 0)
        return 0;
    bool v1 = separator[9] == ' ';
    bool v2 = strncmp(separator + 9, "2 ", 2) == 0;
    /* Views of a part of the tree (a container's) are not the host's hierarchies. */
    if (!(v1 || v2) || strncmp(root, "/ ", 2) != 0)
        return 0;
    char *options = field(separator + 3, 2);
    bool cpuset = v1 && options && strstr(options, "cpuset");
    point[strcspn(point, " ")] = '\0';
    return enter(point, path, cpuset, e);
}

int shim_cgroup_enter_at(const char *mountinfo, const char *path, struct err *e)
{
    scoped_free char *copy = xstrdup(mountinfo);
    char *rest = copy;
    int r = 0;

    while (*path == '/')
        path++;
    if (!*path || strstr(path, ".."))
        return err_set(e, -EINVAL, "shim_cgroup: \"%s\" is not the path of a cgroup", path);
    for (char *line; r == 0 && (line = strsep(&rest, "\n"));)
        r = enter_line(line, path, e);
    return r;
}

int shim_cgroup_enter(const char *path, struct err *e)
{
    scoped_free char *mounts = NULL;
    int r = file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &mounts, NULL, e);

    return r < 0 ? err_wrap(e, r, "shim_cgroup") : shim_cgroup_enter_at(mounts, path, e);
}
