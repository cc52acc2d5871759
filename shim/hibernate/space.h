#pragma once
/*
 * One stopped address space: which of its memory can be moved out, moving it to the image, and giving
 * it back.  Private anonymous memory only; locked, device, huge and shared memory stays where it is.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "shim/hibernate/image.h"
#include "shim/hibernate/pages.h"
#include "shim/hibernate/stop.h"

struct region {
    uint64_t start, end;
};
struct space {
    pid_t pid;
    int uffd; /* -1: the pages are written back before the thaw */
    struct region *regions;
    size_t n_regions, cap_regions;
    struct pages pages;
    bool dropped;
};

void space_done(struct space *s);
/* Finds the regions and appends their pages to the image; changes nothing in the process. */
int space_save(struct space *s, struct image *img, struct err *e);
/*
 * Makes a userfaultfd inside the process (device: an open /dev/userfaultfd, -1 = none), then drops the
 * saved pages.  1: dropped, but without userfaultfd (*e says why).
 */
int space_drop(struct space *s, struct stopped *p, int device, struct err *e);
/* Frozen: writes back what the kernel brought in meanwhile (rseq areas), then starts to catch faults. */
int space_arm(struct space *s, const struct image *img, struct err *e);
/* Writes everything back from the image (no userfaultfd, or undoing a failed pause). */
int space_restore(struct space *s, const struct image *img, struct err *e);
