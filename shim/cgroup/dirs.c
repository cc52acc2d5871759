/* Making and removing the directories of one hierarchy. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

/*
 * Marks a parent directory that we made, for whoever removes the last group below it, in another
 * process too.  kernfs keeps trusted attributes on both versions; only host root can set them.
 */
#define MARK      "trusted.glovebox"
#define DEPTH_MAX 32

int cg_opendir(const struct cg_hier *h, const char *path)
{
    int fd = openat(h->dir, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static void mark(const struct cg_hier *h, const char *path)
{
    scoped_fd int fd = cg_opendir(h, path);
    if (fd >= 0) /* without the mark the directory stays behind empty, no more */
        (void)fsetxattr(fd, MARK, "1", 1, 0);
}

/* All components but the last. */
static int make_parents(const struct cg_hier *h, const char *path, struct err *e)
{
    scoped_free char *prefix = xstrdup(path);

    for (char *slash = strchr(prefix, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdirat(h->dir, prefix, 0755) == 0)
            mark(h, prefix);
        else if (errno != EEXIST)
            return err_sys(e, "linux.cgroupsPath: make %s/%s", h->mount, prefix);
        *slash = '/';
    }
    return 0;
}

int cg_mkdir(const struct cg_hier *h, const char *path, cg_prepare *prepare, struct err *e)
{
    /* A neighbour that goes away may remove a common parent between our steps: try again. */
    for (int attempt = 0; attempt < 8; attempt++) {
        int r = prepare || attempt > 0 ? make_parents(h, path, e) : 0;
        if (r < 0 && r != -ENOENT)
            return r;
        if (prepare)
            prepare(h, path);
        if (mkdirat(h->dir, path, 0755) == 0)
            return 1;
        if (errno == EEXIST)
            return 0;
        if (errno != ENOENT)
            break;
    }
    return err_sys(e, "linux.cgroupsPath: make %s/%s", h->mount, path);
}

/* Children of an open group, depth first; a group has no other directories in it. */
static int rmdir_children(int dir, int depth)
{
    if (depth > DEPTH_MAX)
        return -ELOOP;
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (copy < 0)
        return -errno;
    DIR *list = fdopendir(copy);
    if (!list) {
        fd_close(copy);
        return -ENOMEM;
    }

    int result = 0;
    for (struct dirent *d = readdir(list); d; d = readdir(list)) {
        if (d->d_type != DT_DIR || strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        scoped_fd int child = openat(dir, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (child < 0)
            continue;
        int r = rmdir_children(child, depth + 1);
        if (r == 0 && unlinkat(dir, d->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = -errno;
        if (r < 0)
            result = r;
    }
    (void)closedir(list);
    return result;
}

int cg_rmdir(int dir, const char *name)
{
    /* The usual group has no children: one call. */
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != EBUSY && errno != ENOTEMPTY)
        return -errno;
    scoped_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    int r = rmdir_children(fd, 0);
    if (r < 0)
        return r;
    return unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

void cg_rmdir_parents(const struct cg_hier *h, const char *path)
{
    scoped_free char *prefix = xstrdup(path);

    for (char *slash = strrchr(prefix, '/'); slash; slash = strrchr(prefix, '/')) {
        *slash = '\0';
        scoped_fd int fd = cg_opendir(h, prefix);
        char value[4];
        if (fd < 0 || fgetxattr(fd, MARK, value, sizeof value) < 0)
            return;
        if (unlinkat(h->dir, prefix, AT_REMOVEDIR) < 0)
            return; /* another group lives there */
    }
}
