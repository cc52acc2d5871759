#include "shim/cli/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "shim/cli/sha256.h"
#include "shim/ttrpc/client.h"

#define PATH_BYTES_MAX 106 /* what the reference implementation accepts; sun_path has room for 107 */
#define LOCK_WAIT_MS   3000

/* ---- the name ---- */

static void pop(struct strbuf *out)
{
    while (out->len > 0 && out->data[--out->len] != '/')
        ;
    out->data[out->len] = '\0';
}

/* Go's path.Clean for what path.Join makes: "." and empty parts go, ".." takes the part before with it. */
static char *clean(const char *path)
{
    scoped_strbuf struct strbuf out;
    bool rooted = path[0] == '/';
    unsigned depth = 0; /* parts that ".." may take away */

    strbuf_init(&out, strlen(path) + 2);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        bool up = n == 2 && p[0] == '.' && p[1] == '.';
        if (up && depth > 0) {
            pop(&out);
            depth--;
        } else if (n > 0 && !(n == 1 && p[0] == '.') && !(up && rooted)) {
            if (rooted || out.len > 0)
                strbuf_putc(&out, '/');
            strbuf_add(&out, p, n);
            depth += !up;
        }
        p += n + (p[n] == '/');
    }
    if (out.len == 0)
        strbuf_putc(&out, rooted ? '/' : '.');
    return strbuf_detach(&out);
}

char *socket_path(const char *dir, const char *address, const char *ns, const char *group)
{
    char hex[SHA256_HEX];
    /* path.Join leaves empty elements out, so that an empty address does not make the path absolute. */
    scoped_free char *joined = xasprintf("%s%s%s/%s", address, address[0] ? "/" : "", ns, group);
    scoped_free char *name = clean(joined);

    sha256_hex(name, strlen(name), hex);
    return xasprintf("%s/%s", dir && dir[0] ? dir : SOCKET_DIR, hex);
}

/* ---- the directory ---- */

static int make_dirs(char *path, struct err *e)
{
    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        int r = mkdir(path, 0711) < 0 && errno != EEXIST ? err_sys(e, "mkdir %s", path) : 0;
        *p = c;
        if (r < 0 || c == '\0')
            return r;
    }
}

/*
 * The lock is on the directory itself: nothing to leave behind, and it goes when its holder dies.  Held
 * for the few calls between "is somebody there" and listen(), never across a fork.
 */
static int lock_dir(const char *socket, int *ret, struct err *e)
{
    const char *slash = strrchr(socket, '/');
    if (!slash || slash == socket)
        return err_set(e, -EINVAL, "socket path \"%s\" has no directory", socket);

    scoped_free char *dir = xstrndup(socket, (size_t)(slash - socket));
    scoped_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        int r = make_dirs(dir, e);
        if (r < 0)
            return r;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0)
        return err_sys(e, "open %s", dir);
    for (int64_t end = clock_mono_ms() + LOCK_WAIT_MS; flock(fd, LOCK_EX | LOCK_NB) < 0;) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(e, "lock %s", dir);
        if (clock_mono_ms() > end)
            return err_set(e, -ETIMEDOUT, "%s stays locked by another start", dir);
        (void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
    *ret = take_fd(fd);
    return 0;
}

/* ---- claiming ---- */

static bool is_served(const char *path)
{
    int fd = ttrpc_dial(path, NULL);

    fd_close(fd);
    /* A full backlog has an owner too, though a slow one. */
    return fd >= 0 || fd == -EAGAIN;
}

static int listen_at(int fd, const char *path, struct err *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    memcpy(at.sun_path, path, strlen(path) + 1);
    mode_t old = umask(0177);
    int r = bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ? -errno : 0;
    (void)umask(old);
    if (r == -EADDRINUSE)
        return r;
    if (r < 0)
        return err_set(e, r, "bind %s: %s", path, strerror(-r));
    if (listen(fd, SOMAXCONN) < 0) {
        r = err_sys(e, "listen at %s", path);
        (void)unlink(path);
    }
    return r;
}

int socket_claim(const char *path, int *ret_fd, struct err *e)
{
    if (strlen(path) > PATH_BYTES_MAX)
        return err_set(e, -ENAMETOOLONG, "socket path \"%s\" is longer than %d bytes", path, PATH_BYTES_MAX);
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, "socket");

    scoped_fd int lock = -1;
    int r = lock_dir(path, &lock, e);
    if (r < 0)
        return r;
    r = listen_at(fd, path, e);
    if (r == -EADDRINUSE) {
        if (is_served(path))
            return 1;
        if (unlink(path) < 0 && errno != ENOENT)
            return err_sys(e, "remove the dead socket %s", path);
        r = listen_at(fd, path, e);
        if (r == -EADDRINUSE)
            return err_set(e, r, "bind %s: %s", path, strerror(-r));
    }
    if (r < 0)
        return r;
    *ret_fd = take_fd(fd);
    return 0;
}

void socket_remove_stale(const char *address)
{
    static const char scheme[] = "unix://";
    struct stat st;
    scoped_fd int lock = -1;

    if (strncmp(address, scheme, sizeof scheme - 1) != 0)
        return;
    const char *path = address + sizeof scheme - 1;
    /* The text comes from a file: nothing but a socket is ever removed for it. */
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return;
    if (lock_dir(path, &lock, NULL) == 0 && ttrpc_dial(path, NULL) == -ECONNREFUSED)
        (void)unlink(path);
}
