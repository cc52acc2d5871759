#include "shim/hibernate/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"

#define CLUSTER_PAGES 16u /* brought in around a fault: 64 KiB */

struct fault {
    size_t space;
    uint64_t addr;
};

struct server {
    struct space_list *spaces;
    struct fault *faults; /* read, and their threads still asleep */
    size_t n_faults, cap_faults;
    const struct image *img;
    int control;
    char *buf; /* RUN_PAGES pages, page-aligned */
    bool resuming, finished, closed;
    size_t turn; /* whose pages the next prefetch takes */
    struct err *e;
};

int pager_send(int sock, enum pager_msg type, const struct pager_message *more, int fd)
{
    struct pager_message m = more ? *more : (struct pager_message){0};

    m.type = type;
    return fd_send_msg(sock, &m, sizeof m, &fd, fd >= 0 ? 1 : 0);
}

static void forget(struct space *s)
{
    fd_close(s->uffd);
    s->uffd = -1;
    pages_done(&s->pages);
}

static void wake(const struct space *s, uint64_t addr, uint64_t len)
{
    struct uffdio_range range = {addr, len};

    (void)ioctl(s->uffd, UFFDIO_WAKE, &range);
}

/* One page at a time: a mapping may have been split, or part of the range be gone. */
static int copy_singly(struct server *v, struct space *s, uint64_t addr, unsigned n)
{
    (void)v;
    for (unsigned i = 0; i < n; i++) {
        uint64_t at = addr + (uint64_t)i * PAGE_BYTES;
        struct uffdio_copy c = {
            .dst = at, .src = (uint64_t)(uintptr_t)(v->buf + (size_t)i * PAGE_BYTES), .len = PAGE_BYTES};
        while (ioctl(s->uffd, UFFDIO_COPY, &c) < 0) {
            if (errno == EAGAIN)
                return -EAGAIN;
            if (errno == ESRCH)
                return -ESRCH;
            if (errno == EEXIST)
                wake(s, at, PAGE_BYTES);
            else if (errno != ENOENT && errno != EFAULT)
                return -errno;
            break; /* EEXIST: the program has the page; ENOENT: it has unmapped it */
        }
    }
    return 0;
}

/*
 * Copies n pages of a run from bit `first`.  0: done.  1: an event must be read first (EAGAIN): nothing
 * was taken off the index, so the same pages are tried again.  <0: the image or the kernel failed.
 */
static int bring(struct server *v, struct space *s, struct page_run *run, unsigned first, unsigned n)
{
    uint64_t addr = run->addr + (uint64_t)first * PAGE_BYTES;
    struct uffdio_copy c = {.dst = addr, .src = (uint64_t)(uintptr_t)v->buf, .len = (uint64_t)n * PAGE_BYTES};
    int r =
        image_read(v->img, run->offset + (uint64_t)first * PAGE_BYTES, v->buf, (size_t)n * PAGE_BYTES, v->e);

    if (r < 0)
        return r;
    if (ioctl(s->uffd, UFFDIO_COPY, &c) < 0) {
        r = errno == EAGAIN && c.copy <= 0 ? -EAGAIN : errno == ESRCH ? -ESRCH : copy_singly(v, s, addr, n);
        if (r == -EAGAIN)
            return 1;
        if (r == -ESRCH) {
            forget(s);
            return 0;
        }
        if (r < 0)
            return err_set(v->e, r, "give pages back to process %d: %s", s->pid, strerror(-r));
    }
    pages_take(&s->pages, run, first, n);
    return 0;
}

/* 0: the thread goes on.  1: an event must be read first, and the thread stays asleep. */
static int on_fault(struct server *v, struct space *s, uint64_t addr)
{
    addr &= ~(uint64_t)(PAGE_BYTES - 1);
    struct page_run *run = pages_find(&s->pages, addr);
    if (!run) {
        struct uffdio_zeropage z = {.range = {addr, PAGE_BYTES}};
        if (ioctl(s->uffd, UFFDIO_ZEROPAGE, &z) < 0 && errno == EAGAIN)
            return 1;
        wake(s, addr, PAGE_BYTES);
        return 0;
    }
    unsigned page = (unsigned)((addr - run->addr) / PAGE_BYTES);
    unsigned first = page / CLUSTER_PAGES * CLUSTER_PAGES;
    while (first < page && run_length(run, first) <= page - first) /* begin inside the same unbroken piece */
        first++;
    unsigned n = MIN(run_length(run, first), page / CLUSTER_PAGES * CLUSTER_PAGES + CLUSTER_PAGES - first);
    int r = bring(v, s, run, first, n);
    if (r == 0 && s->uffd >= 0)
        wake(s, addr, PAGE_BYTES);
    return r;
}

/*
 * The kernel hands out faults before events, and refuses pages while an event waits: a thread woken without
 * its page would fault again at once, and a few such threads keep the event from ever being read.
 */
static int serve_faults(struct server *v)
{
    size_t kept = 0;
    int r = 0;

    for (size_t i = 0; i < v->n_faults; i++) {
        const struct fault f = v->faults[i];
        struct space *s = &v->spaces->items[f.space];
        int again = s->uffd >= 0 && r == 0 ? on_fault(v, s, f.addr) : 0;
        if (again < 0)
            r = again;
        if (again > 0)
            v->faults[kept++] = f;
    }
    v->n_faults = kept;
    return r;
}

static int on_fork(struct server *v, size_t parent, int uffd)
{
    struct space_list *l = v->spaces;

    if (v->finished) { /* every page is back: what the child misses is zero, which is what it gets without us
                        */
        fd_close(uffd);
        return 0;
    }
    l->items = xgrow(l->items, l->n, &l->cap, sizeof *l->items);
    struct space *child = &l->items[l->n++];
    *child = (struct space){.pid = l->items[parent].pid, .uffd = uffd, .dropped = true};
    pages_copy(&child->pages, &l->items[parent].pages);
    (void)fd_set_nonblock(uffd, true);
    (void)fd_set_cloexec(uffd, true);
    return pager_send(v->control, PAGER_UFFD, NULL, uffd);
}

static int on_event(struct server *v, size_t index, const struct uffd_msg *m)
{
    struct space *s = &v->spaces->items[index];

    if (m->event == UFFD_EVENT_PAGEFAULT) {
        v->faults = xgrow(v->faults, v->n_faults, &v->cap_faults, sizeof *v->faults);
        v->faults[v->n_faults++] = (struct fault){index, m->arg.pagefault.address};
    } else if (m->event == UFFD_EVENT_REMOVE || m->event == UFFD_EVENT_UNMAP)
        pages_cut(&s->pages, m->arg.remove.start, m->arg.remove.end);
    else if (m->event == UFFD_EVENT_REMAP)
        pages_move(&s->pages, m->arg.remap.from, m->arg.remap.to, m->arg.remap.len);
    else if (m->event == UFFD_EVENT_FORK)
        return on_fork(v, index, (int)m->arg.fork.ufd);
    return 0;
}

static int read_events(struct server *v, size_t index)
{
    struct uffd_msg m;

    while (v->spaces->items[index].uffd >= 0) {
        ssize_t n = read(v->spaces->items[index].uffd, &m, sizeof m);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof m)
            return 0; /* EAGAIN: no more */
        int r = on_event(v, index, &m);
        if (r < 0)
            return r;
    }
    return 0;
}

static uint64_t pages_left(const struct server *v)
{
    uint64_t left = 0;

    for (size_t i = 0; i < v->spaces->n; i++)
        left += v->spaces->items[i].uffd >= 0 ? v->spaces->items[i].pages.left : 0;
    return left;
}

static int prefetch(struct server *v)
{
    for (size_t i = 0; i < v->spaces->n; i++) {
        struct space *s = &v->spaces->items[v->turn++ % v->spaces->n];
        struct page_run *run = s->uffd >= 0 ? pages_next(&s->pages) : NULL;
        if (!run)
            continue;
        unsigned first = (unsigned)__builtin_ctzll(run->left);
        int r = bring(v, s, run, first, run_length(run, first));
        return r < 0 ? r : 0;
    }
    return 0;
}

static int on_control(struct server *v)
{
    struct pager_message m;
    size_t n;
    int r = fd_recv_msg(v->control, &m, sizeof m, &n, NULL, NULL);

    if (v->finished && r != 0) {
        v->closed = true;
        return 0;
    }
    if (r != 0 || n != sizeof m)
        return err_set(v->e, -EPIPE, "the shim is gone");
    if (m.type == PAGER_CLOSED)
        v->closed = true;
    if (m.type == PAGER_RESUME)
        v->resuming = true;
    if (m.type != PAGER_RESUME)
        return 0;
    for (size_t i = 0; i < v->spaces->n; i++)
        if (v->spaces->items[i].uffd < 0 && v->spaces->items[i].dropped) {
            r = space_restore(&v->spaces->items[i], v->img, v->e);
            if (r < 0)
                return r;
        }
    return pager_send(v->control, PAGER_RESUMABLE, NULL, -1);
}

/* Waits for something to do; while pages are to be brought back it only looks. */
static int round_of(struct server *v, struct pollfd *fds, bool busy)
{
    size_t n = v->spaces->n;

    fds[0] = (struct pollfd){.fd = v->control, .events = POLLIN};
    for (size_t i = 0; i < n; i++)
        fds[i + 1] = (struct pollfd){.fd = v->spaces->items[i].uffd, .events = POLLIN};
    if (poll(fds, n + 1, busy ? 0 : -1) < 0)
        return errno == EINTR ? 0 : err_sys(v->e, "poll");
    for (size_t i = 0; i < n; i++) {
        int r = fds[i + 1].revents & POLLIN ? read_events(v, i) : 0;
        if (r < 0)
            return r;
        /* Every user of the address space is gone. */
        if (fds[i + 1].revents & (POLLERR | POLLHUP) && v->spaces->items[i].uffd >= 0)
            forget(&v->spaces->items[i]);
    }
    return fds[0].revents ? on_control(v) : 0;
}

int serve_run(struct space_list *spaces, const struct image *img, int control, struct err *e)
{
    struct server v = {.spaces = spaces, .img = img, .control = control, .e = e};
    struct pollfd *fds = NULL;
    int r = 0;

    if (posix_memalign((void **)&v.buf, PAGE_BYTES, (size_t)RUN_PAGES * PAGE_BYTES) != 0)
        return err_set(e, -ENOMEM, "out of memory");
    while (r >= 0 && !v.closed) {
        bool busy = v.n_faults > 0 || (v.resuming && pages_left(&v) > 0);
        fds = xrealloc_array(fds, spaces->n + 1, sizeof *fds);
        r = round_of(&v, fds, busy);
        if (r >= 0)
            r = serve_faults(&v);
        if (r >= 0 && v.resuming && pages_left(&v) > 0)
            r = prefetch(&v);
        if (r >= 0 && v.resuming && !v.finished && pages_left(&v) == 0) {
            v.finished = true;
            r = pager_send(control, PAGER_FINISHED, NULL, -1);
        }
    }
    free(fds);
    free(v.faults);
    free(v.buf);
    return r;
}
