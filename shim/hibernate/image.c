#include "shim/hibernate/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/hibernate/pages.h"

#define PIECE_BYTES (4u << 20)

struct image {
    int fd;
    uint64_t written;
    size_t filled;
    char *piece; /* page-aligned, PIECE_BYTES */
};

int image_new(const char *dir, struct image **ret, struct err *e)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT | O_EXCL, 0600);
    if (fd < 0 &&
        errno == EINVAL) /* tmpfs before 6.6 knows no O_DIRECT; the data stays in memory, but the pod works */
        fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd < 0)
        return err_sys(e, "create a memory image in %s", dir);

    struct image *img = xcalloc(1, sizeof *img);
    img->fd = fd;
    if (posix_memalign((void **)&img->piece, PAGE_BYTES, PIECE_BYTES) != 0) {
        img->piece = NULL;
        image_free(img);
        return err_set(e, -ENOMEM, "out of memory for the memory image");
    }
    *ret = img;
    return 0;
}

void image_free(struct image *img)
{
    if (!img)
        return;
    fd_close(img->fd);
    free(img->piece);
    free(img);
}

int image_flush(struct image *img, struct err *e)
{
    size_t done = 0;

    while (done < img->filled) {
        ssize_t n = pwrite(img->fd, img->piece + done, img->filled - done, (off_t)(img->written + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(e, "write the memory image");
        done += (size_t)n;
    }
    img->written += img->filled;
    img->filled = 0;
    return 0;
}

int image_append(struct image *img, const void *page, uint64_t *ret_offset, struct err *e)
{
    if (img->filled == PIECE_BYTES) {
        int r = image_flush(img, e);
        if (r < 0)
            return r;
    }
    *ret_offset = img->written + img->filled;
    memcpy(img->piece + img->filled, page, PAGE_BYTES);
    img->filled += PAGE_BYTES;
    return 0;
}

int image_read(const struct image *img, uint64_t offset, void *buf, size_t n, struct err *e)
{
    size_t done = 0;

    while (done < n) {
        ssize_t got = pread(img->fd, (char *)buf + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(e, "read the memory image");
        if (got == 0)
            return err_set(e, -EIO, "the memory image ends at byte %llu",
                           (unsigned long long)(offset + done));
        done += (size_t)got;
    }
    return 0;
}

uint64_t image_bytes(const struct image *img)
{
    return img->written + img->filled;
}
