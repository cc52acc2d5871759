#include "shim/launcher/ids.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define POD_ID_MAX 512
#define RANGES     ((IDS_END - IDS_FIRST) / IDS_SIZE)

static void closedir_fn(DIR *d)
{
    if (d)
        (void)closedir(d);
}
SCOPED_DEFINE(DIR, closedir_fn)

/* 1: somebody tidied the directory away meanwhile, try again. */
static int try_open_ids(const char *state_dir, int *ret_dir, int *ret_lock, struct err *e)
{
    struct stat st;

    if (mkdir(state_dir, 0711) < 0 && errno != EEXIST)
        return err_sys(e, "make %s", state_dir);
    scoped_fd int state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (state < 0)
        return errno == ENOENT ? 1 : err_sys(e, "open %s", state_dir);
    if (mkdirat(state, "ids", 0700) < 0 && errno != EEXIST)
        return errno == ENOENT ? 1 : err_sys(e, "make %s/ids", state_dir);
    scoped_fd int dir = openat(state, "ids", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return errno == ENOENT ? 1 : err_sys(e, "open %s/ids", state_dir);
    scoped_fd int lock = openat(dir, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        return errno == ENOENT ? 1 : err_sys(e, "open %s/ids/.lock", state_dir);
    if (flock(lock, LOCK_EX) < 0 || fstat(lock, &st) < 0)
        return err_sys(e, "lock %s/ids", state_dir);
    if (st.st_nlink == 0)
        return 1;
    *ret_dir = take_fd(dir);
    *ret_lock = take_fd(lock);
    return 0;
}

/* The directory, and the lock that serialises everything done in it (released by closing). */
static int open_ids(const char *state_dir, int *ret_dir, int *ret_lock, struct err *e)
{
    for (int i = 0; i < 100; i++) {
        int r = try_open_ids(state_dir, ret_dir, ret_lock, e);
        if (r <= 0)
            return r;
    }
    return err_set(e, -EBUSY, "%s/ids comes and goes", state_dir);
}

/* After the last range the directory goes too. Under the lock: who opened the lock file meanwhile sees that
 * it has no link. */
static void tidy(const char *state_dir, int dir)
{
    scoped_free char *path = xasprintf("%s/ids", state_dir);
    int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(closedir_fn) DIR *d = copy < 0 ? NULL : fdopendir(copy);

    for (struct dirent *entry; d && (entry = readdir(d));)
        if (isdigit((unsigned char)entry->d_name[0]))
            return;
    if (d && unlinkat(dir, ".lock", 0) == 0)
        (void)rmdir(path);
}

static void range_name(uint32_t base, char name[16])
{
    (void)snprintf(name, 16, "%" PRIu32, base);
}

/* Does a live process have a real, effective, saved or file system id of the range? */
static bool process_in_range(int proc, const char *pid, uint32_t base)
{
    char path[NAME_MAX + 16], text[4096];
    static const char *const keys[] = {"\nUid:", "\nGid:"};

    (void)snprintf(path, sizeof path, "%s/status", pid);
    scoped_fd int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return false; /* it has ended meanwhile */
    text[n] = '\0';
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        char *p = strstr(text, keys[k]);
        for (int i = 0; p && i < 4; i++) {
            char *end;
            unsigned long id = strtoul(i ? p : p + strlen(keys[k]), &end, 10);
            if (id - base < IDS_SIZE)
                return true;
            p = end;
        }
    }
    return false;
}

/* 1: a process lives in the range, 0: none, -errno: cannot tell. */
static int range_is_alive(uint32_t base)
{
    scoped(closedir_fn) DIR *d = opendir("/proc");
    if (!d)
        return -errno;
    for (struct dirent *entry; (entry = readdir(d));)
        if (isdigit((unsigned char)entry->d_name[0]) && process_in_range(dirfd(d), entry->d_name, base))
            return 1;
    return 0;
}

/* Creates the file of a range and locks it. 1: the range is taken. */
static int claim(int dir, uint32_t base, const char *pod_id, int *ret_lock, struct err *e)
{
    char name[16];

    range_name(base, name);
    scoped_fd int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno == EEXIST ? 1 : err_sys(e, "create ids/%s", name);
    int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : fd_write_all(fd, pod_id, strlen(pod_id));
    if (r < 0) {
        (void)unlinkat(dir, name, 0);
        return err_set(e, r, "ids/%s: %s", name, strerror(-r));
    }
    *ret_lock = take_fd(fd);
    return 0;
}

/* Removes the file of a range whose shim was killed. 1: it has a living holder. -EBUSY: processes are left.
 */
static int reclaim(int dir, uint32_t base)
{
    char name[16];

    range_name(base, name);
    scoped_fd int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 1;
    if (range_is_alive(base) != 0)
        return -EBUSY;
    return unlinkat(dir, name, 0) < 0 ? -errno : 0;
}

int ids_take(const char *state_dir, const char *pod_id, uint32_t *ret_base, int *ret_lock, struct err *e)
{
    scoped_fd int dir = -1, lock = -1;
    int r = open_ids(state_dir, &dir, &lock, e);
    if (r < 0)
        return r;

    /* Start at a place that depends on the pod, so that a range is not used again at once. */
    uint32_t hash = 2166136261u;
    for (const char *p = pod_id; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < RANGES; i++) {
            uint32_t base = IDS_FIRST + (hash + i) % RANGES * IDS_SIZE;
            if (round == 1 && reclaim(dir, base) != 0)
                continue;
            r = claim(dir, base, pod_id, ret_lock, e);
            if (r < 0)
                return r;
            if (r == 0) {
                *ret_base = base;
                return 0;
            }
        }
    }
    return err_set(e, -EAGAIN, "all %u id ranges in %s/ids are in use", RANGES, state_dir);
}

void ids_give_back(int lock)
{
    char link[64], path[4096];

    if (lock < 0)
        return;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", lock);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[MAX(n, 0)] = '\0';
    char *ids = strstr(path, "/ids/");
    for (char *next = ids; next; next = strstr(next + 1, "/ids/"))
        ids = next;
    if (ids) {
        scoped_fd int dir = -1, all = -1;
        *ids = '\0';
        if (open_ids(path, &dir, &all, NULL) == 0) {
            (void)unlinkat(dir, ids + sizeof "/ids/" - 1, 0);
            tidy(path, dir);
        }
    }
    fd_close(lock);
}

int ids_release(const char *state_dir, const char *pod_id, struct err *e)
{
    scoped_fd int dir = -1, lock = -1;
    int r = open_ids(state_dir, &dir, &lock, e);
    if (r < 0)
        return r;

    int copy = dup(dir);
    scoped(closedir_fn) DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (!d)
        return err_sys(e, "list %s/ids", state_dir);
    r = 0;
    for (struct dirent *entry; r >= 0 && (entry = readdir(d));) {
        uint64_t base;
        scoped_free char *owner = NULL;
        if (parse_u64(entry->d_name, UINT32_MAX, &base) < 0 ||
            file_read(dir, entry->d_name, POD_ID_MAX, &owner, NULL, NULL) < 0)
            continue;
        if (!owner[0]) { /* its shim was killed before it wrote the name: nobody will ever ask for it */
            (void)reclaim(dir, (uint32_t)base);
            continue;
        }
        if (strcmp(owner, pod_id) != 0)
            continue;
        r = reclaim(dir, (uint32_t)base);
        if (r > 0)
            r = -EBUSY; /* a child of the killed shim still holds the lock: not yet */
        if (r < 0)
            (void)err_set(e, r, "id range %s of pod %s: %s", entry->d_name, pod_id, strerror(-r));
    }
    if (r >= 0)
        tidy(state_dir, dir);
    return MIN(r, 0);
}
