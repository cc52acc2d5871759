#include "shim/hibernate/space.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/scoped.h"
#include "shim/hibernate/regions.h"

#define PIECE_PAGES     256u
#define NEW_USERFAULTFD 0xaa00u /* USERFAULTFD_IOC_NEW of /dev/userfaultfd, Linux 6.1 */

void space_done(struct space *s)
{
    fd_close(s->uffd);
    free(s->regions);
    pages_done(&s->pages);
    *s = (struct space){.uffd = -1};
}

/* ---- reading and writing a stopped process's memory ---- */

static int mem_open(const struct space *s, int flags, struct err *e)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/%d/mem", s->pid);
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? err_sys(e, "open %s", path) : fd;
}

struct saver {
    struct space *s;
    struct image *img;
    int mem;
    char *buf; /* PIECE_PAGES pages */
    uint64_t run_addr, run_offset;
    unsigned run_pages; /* being collected; 0 = none */
    struct err *e;
};

static void end_run(struct saver *v)
{
    if (v->run_pages)
        pages_add(&v->s->pages, v->run_addr, v->run_offset, v->run_pages);
    v->run_pages = 0;
}

static bool is_zero(const char *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE_BYTES - 1) == 0;
}

static int save_page(struct saver *v, uint64_t addr, const char *page)
{
    uint64_t offset;

    if (is_zero(page)) { /* comes back as the zero page */
        end_run(v);
        return 0;
    }
    int r = image_append(v->img, page, &offset, v->e);
    if (r < 0)
        return r;
    if (v->run_pages &&
        (v->run_addr + (uint64_t)v->run_pages * PAGE_BYTES != addr || v->run_pages == RUN_PAGES))
        end_run(v);
    if (v->run_pages == 0) {
        v->run_addr = addr;
        v->run_offset = offset;
    }
    v->run_pages++;
    return 0;
}

/* The fast way first; a mapping without read permission can be read through /proc/PID/mem. */
static int read_memory(const struct saver *v, uint64_t addr, size_t n)
{
    struct iovec local = {v->buf, n}, remote = {(void *)(uintptr_t)addr, n};

    if (process_vm_readv(v->s->pid, &local, 1, &remote, 1, 0) == (ssize_t)n)
        return 0;
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(v->mem, v->buf + done, n - done, (off_t)(addr + done));
        if (got <= 0)
            return got < 0 ? -errno : -EIO;
        done += (size_t)got;
    }
    return 0;
}

static int save_range(void *data, uint64_t start, uint64_t end)
{
    struct saver *v = data;

    for (uint64_t addr = start; addr < end;) {
        size_t n = (size_t)MIN(end - addr, (uint64_t)PIECE_PAGES * PAGE_BYTES);
        int r = read_memory(v, addr, n);
        if (r < 0)
            return err_set(v->e, r, "read %zu bytes at %llx of process %d: %s", n, (unsigned long long)addr,
                           v->s->pid, strerror(-r));
        for (size_t at = 0; at < n; at += PAGE_BYTES) {
            r = save_page(v, addr + at, v->buf + at);
            if (r < 0)
                return r;
        }
        addr += n;
    }
    return 0;
}

int space_save(struct space *s, struct image *img, struct err *e)
{
    struct err local = {0};
    struct err *use = e ? e : &local;
    int r = regions_find(s, use);
    if (r < 0)
        return r;
    scoped_fd int mem = mem_open(s, O_RDONLY, use);
    if (mem < 0)
        return mem;
    scoped_free char *buf = xcalloc(PIECE_PAGES, PAGE_BYTES);
    struct saver v = {.s = s, .img = img, .mem = mem, .buf = buf, .e = use};
    use->code = 0;
    r = regions_scan(s, save_range, &v, use);
    end_run(&v);
    return r;
}

/* ---- dropping ---- */

/* Runs a call and turns its error into ours. */
static int call(struct stopped *p, long nr, const char *what, const uint64_t args[6], long *ret,
                struct err *e)
{
    int r = inject_call(p, nr, args, ret, e);

    if (r < 0)
        return r;
    return *ret < 0 ? err_set(e, (int)*ret, "%s in process %d: %s", what, p->pid, strerror((int)-*ret)) : 0;
}
#define CALL(p, nr, ret, e, ...) call(p, SYS_##nr, #nr, (const uint64_t[6]){__VA_ARGS__}, ret, e)

static int poke(const struct stopped *p, uint64_t addr, const void *data, size_t n)
{
    struct iovec local = {(void *)(uintptr_t)data, n}, remote = {(void *)(uintptr_t)addr, n};

    return process_vm_writev(p->pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}

static int peek(const struct stopped *p, uint64_t addr, void *data, size_t n)
{
    struct iovec local = {data, n}, remote = {(void *)(uintptr_t)addr, n};

    return process_vm_readv(p->pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -EFAULT;
}

/*
 * A descriptor of ours inside the process: over a socket pair that the process makes and whose one end
 * we borrow.  No path inside the sandbox is needed for it.
 */
static int give_fd(struct stopped *p, int fd, long *ret_fd, struct err *e)
{
    struct {
        struct msghdr msg;
        struct iovec iov;
        char control[CMSG_SPACE(sizeof(int))];
        char byte;
    } m = {0};
    uint64_t at = p->scratch + 64;
    int32_t pair[2];
    long r_call;

    int r = CALL(p, socketpair, &r_call, e, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->scratch);
    if (r < 0)
        return r;
    if (peek(p, p->scratch, pair, sizeof pair) < 0)
        return err_set(e, -EFAULT, "scratch memory of process %d is gone", p->pid);
    scoped_fd int ours = (int)syscall(SYS_pidfd_getfd, p->pidfd, pair[0], 0);
    m.iov = (struct iovec){(void *)(uintptr_t)(at + offsetof(__typeof__(m), byte)), 1};
    m.msg = (struct msghdr){.msg_iov = (void *)(uintptr_t)(at + offsetof(__typeof__(m), iov)),
                            .msg_iovlen = 1,
                            .msg_control = (void *)(uintptr_t)(at + offsetof(__typeof__(m), control)),
                            .msg_controllen = sizeof m.control};
    r = ours < 0 ? err_sys(e, "borrow a descriptor of process %d", p->pid)
                 : fd_send_msg(ours, "x", 1, &fd, 1);
    if (r == 0)
        r = poke(p, at, &m, sizeof m);
    if (r == 0)
        r = CALL(p, recvmsg, &r_call, e, (uint64_t)pair[1], at, MSG_CMSG_CLOEXEC);
    if (r == 0)
        r = peek(p, at, &m, sizeof m);
    int32_t number = -1;
    memcpy(&number, m.control + CMSG_LEN(0), sizeof number);
    long ignored;
    (void)CALL(p, close, &ignored, NULL, (uint64_t)pair[0]);
    (void)CALL(p, close, &ignored, NULL, (uint64_t)pair[1]);
    if (r < 0)
        return r;
    *ret_fd = number;
    return 0;
}

/* The userfaultfd belongs to the address space of the process that makes it, so the process must make it. */
static int make_uffd(struct space *s, struct stopped *p, int device, struct err *e)
{
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                         UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP};
    long device_there = -1, made = -1, ignored;

    if (device < 0)
        return err_set(e, -ENOSYS, "no /dev/userfaultfd on this node");
    int r = give_fd(p, device, &device_there, e);
    if (r < 0)
        return r;
    r = CALL(p, ioctl, &made, e, (uint64_t)device_there, NEW_USERFAULTFD, O_CLOEXEC | O_NONBLOCK);
    (void)CALL(p, close, &ignored, NULL, (uint64_t)device_there);
    if (r < 0)
        return r;
    scoped_fd int uffd = (int)syscall(SYS_pidfd_getfd, p->pidfd, (int)made, 0);
    if (uffd < 0)
        r = err_sys(e, "borrow the userfaultfd of process %d", p->pid);
    (void)CALL(p, close, &ignored, NULL, (uint64_t)made);
    if (r < 0)
        return r;
    if (ioctl(uffd, UFFDIO_API, &api) < 0)
        return err_sys(e, "userfaultfd features");
    s->uffd = take_fd(uffd);
    return 0;
}

static int drop_regions(struct space *s, struct stopped *p, struct err *e)
{
    long ignored;

    for (size_t i = 0; i < s->n_regions; i++) {
        const struct region *g = &s->regions[i];
        int r = CALL(p, madvise, &ignored, e, g->start, g->end - g->start, MADV_DONTNEED);
        if (r < 0)
            return r;
        s->dropped = true;
    }
    return 0;
}

int space_drop(struct space *s, struct stopped *p, int device, struct err *e)
{
    struct err why = {0};
    long scratch, ignored;
    int r = inject_begin(p, e);

    if (r < 0)
        return r;
    r = CALL(p, mmap, &scratch, e, 0, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
             (uint64_t)-1, 0);
    if (r == 0) {
        p->scratch = (uint64_t)scratch;
        int made = make_uffd(s, p, device, &why);
        (void)CALL(p, munmap, &ignored, NULL, p->scratch, PAGE_BYTES);
        r = drop_regions(s, p, e);
        if (r == 0 && made < 0)
            r = 1;
    }
    int end = inject_end(p, e);
    if (end < 0)
        return end;
    if (r == 1 && e)
        *e = why;
    return r;
}

/* ---- giving back ---- */

struct writer {
    struct space *s;
    const struct image *img;
    int mem;
    char *buf;
    struct err *e;
};

static int write_run(const struct writer *w, struct page_run *run, unsigned first, unsigned n)
{
    uint64_t addr = run->addr + (uint64_t)first * PAGE_BYTES;
    size_t bytes = (size_t)n * PAGE_BYTES;
    int r = image_read(w->img, run->offset + (uint64_t)first * PAGE_BYTES, w->buf, bytes, w->e);

    if (r < 0)
        return r;
    if (pwrite(w->mem, w->buf, bytes, (off_t)addr) != (ssize_t)bytes)
        return err_sys(w->e, "write %zu bytes at %llx of process %d", bytes, (unsigned long long)addr,
                       w->s->pid);
    pages_take(&w->s->pages, run, first, n);
    return 0;
}

/* Pages that are present although they were dropped: the kernel touched them on its way out (rseq). */
static int rewrite_range(void *data, uint64_t start, uint64_t end)
{
    struct writer *w = data;

    for (uint64_t addr = start; addr < end; addr += PAGE_BYTES) {
        struct page_run *run = pages_find(&w->s->pages, addr);
        int r = run ? write_run(w, run, (unsigned)((addr - run->addr) / PAGE_BYTES), 1) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int writer_init(struct writer *w, struct space *s, const struct image *img, struct err *e)
{
    *w = (struct writer){.s = s, .img = img, .mem = mem_open(s, O_RDWR, e), .e = e};
    if (w->mem < 0)
        return w->mem;
    if (posix_memalign((void **)&w->buf, PAGE_BYTES, (size_t)RUN_PAGES * PAGE_BYTES) != 0)
        abort();
    return 0;
}

static void writer_done(struct writer *w)
{
    fd_close(w->mem);
    free(w->buf);
}

int space_arm(struct space *s, const struct image *img, struct err *e)
{
    struct writer w;
    int r = writer_init(&w, s, img, e);

    if (r < 0)
        return r;
    r = regions_scan(s, rewrite_range, &w, e);
    writer_done(&w);
    for (size_t i = 0; r == 0 && s->uffd >= 0 && i < s->n_regions; i++) {
        struct uffdio_register reg = {.range = {s->regions[i].start, s->regions[i].end - s->regions[i].start},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};
        if (ioctl(s->uffd, UFFDIO_REGISTER, &reg) < 0)
            r = err_sys(e, "watch %llx-%llx of process %d", (unsigned long long)s->regions[i].start,
                        (unsigned long long)s->regions[i].end, s->pid);
    }
    return r;
}

int space_restore(struct space *s, const struct image *img, struct err *e)
{
    struct writer w;
    int r = writer_init(&w, s, img, e);

    for (size_t i = 0; r == 0 && i < s->pages.n; i++)
        for (unsigned bit = 0; r == 0 && bit < RUN_PAGES;) {
            unsigned n = run_length(&s->pages.runs[i], bit);
            if (n)
                r = write_run(&w, &s->pages.runs[i], bit, n);
            bit += n ? n : 1;
        }
    writer_done(&w);
    return r;
}
