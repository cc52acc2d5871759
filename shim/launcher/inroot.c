#include "shim/launcher/inroot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "shim/launcher/sys.h"

#define LINKS_MAX 40 /* as the kernel */
#define HOW       (RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)

int inroot_open(int root, const char *path)
{
    return sys_openat2(root, path[0] ? path : ".", O_PATH, HOW);
}

/*
 * The walk keeps two texts: `done`, a path without links that exists, and `rest`, what is still to be
 * followed.  Every descriptor is opened by openat2 from the root, so a component that somebody replaces
 * by a link meanwhile (a volume shared with a running container) still cannot lead out.
 */
struct walk {
    int root;
    struct strbuf done, rest;
    int links;
};

/* Cuts the first component off `rest` into name; false at the end. */
static bool next_name(struct walk *w, char *name, int *ret_r)
{
    size_t skip = strspn(w->rest.data, "/");
    size_t n = strcspn(w->rest.data + skip, "/");

    if (n == 0)
        return false;
    if (n > NAME_MAX) {
        *ret_r = -ENAMETOOLONG;
        return false;
    }
    memcpy(name, w->rest.data + skip, n);
    name[n] = '\0';
    strbuf_drop(&w->rest, skip + n);
    return true;
}

static void go_up(struct walk *w)
{
    while (w->done.len > 0 && w->done.data[w->done.len - 1] != '/')
        w->done.len--;
    if (w->done.len > 0)
        w->done.len--;
    w->done.data[w->done.len] = '\0';
}

/* Puts the link's text in front of what is left; an absolute one starts again at the root. */
static int follow(struct walk *w, int link)
{
    char text[PATH_MAX];
    ssize_t n = readlinkat(link, "", text, sizeof text - 1);

    if (n < 0)
        return -errno;
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    text[n] = '\0';
    if (text[0] == '/')
        strbuf_reset(&w->done);
    scoped_free char *left = xstrdup(w->rest.data);
    strbuf_reset(&w->rest);
    strbuf_puts(&w->rest, text);
    strbuf_putc(&w->rest, '/');
    strbuf_puts(&w->rest, left);
    return w->rest.overflow ? -ENAMETOOLONG : 0;
}

static int make_at(int parent, const char *name, bool as_file)
{
    if (!as_file)
        return mkdirat(parent, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
    int fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EEXIST ? 0 : -errno;
    fd_close(fd);
    return 0;
}

/* One component: make it if it is missing, follow it if it is a link, otherwise append it to `done`. */
static int step(struct walk *w, const char *name, bool as_file)
{
    bool last = w->rest.data[strspn(w->rest.data, "/")] == '\0';
    scoped_fd int parent = sys_openat2(w->root, w->done.len ? w->done.data : ".", O_PATH | O_DIRECTORY, HOW);
    if (parent < 0)
        return parent;

    scoped_fd int fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        int r = make_at(parent, name, as_file && last);
        if (r < 0)
            return r;
        fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return -errno;

    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return follow(w, fd);
    if (w->done.len)
        strbuf_putc(&w->done, '/');
    strbuf_puts(&w->done, name);
    return w->done.overflow ? -ENAMETOOLONG : 0;
}

static int walk_all(struct walk *w, bool as_file)
{
    char name[NAME_MAX + 1];
    int r = 0;

    while (next_name(w, name, &r)) {
        if (strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            go_up(w);
            continue;
        }
        r = step(w, name, as_file);
        if (r < 0)
            return r;
    }
    if (r < 0)
        return r;
    int fd = sys_openat2(w->root, w->done.len ? w->done.data : ".", O_PATH | O_NOFOLLOW, HOW);
    return fd;
}

int inroot_make(int root, const char *path, bool as_file, struct err *e)
{
    int fd = inroot_open(root, path);

    if (fd >= 0)
        return fd;
    if (fd != -ENOENT)
        return err_set(e, fd, "%s: %s", path, strerror(-fd));

    struct walk w = {.root = root};
    strbuf_init(&w.done, PATH_MAX);
    strbuf_init(&w.rest, 4 * PATH_MAX);
    strbuf_puts(&w.rest, path);
    fd = walk_all(&w, as_file);
    strbuf_done(&w.done);
    strbuf_done(&w.rest);
    return fd < 0 ? err_set(e, fd, "make %s: %s", path, strerror(-fd)) : fd;
}
