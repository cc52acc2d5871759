#pragma once
/*
 * The pages of one address space that were moved to the image: runs of at most 64 pages, sorted by
 * address, with one bit per page that is still only in the image.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096u
#define RUN_PAGES  64u

struct page_run {
    uint64_t addr;   /* of page 0 */
    uint64_t offset; /* in the image, of page 0 */
    uint64_t left;   /* bit n: page n is still only in the image */
};
struct pages {
    struct page_run *runs;
    size_t n, cap;
    uint64_t left; /* pages */
    size_t cursor; /* where the next prefetch looks */
};

/* Runs must be added in rising order and not overlap; pages <= RUN_PAGES. */
void pages_add(struct pages *p, uint64_t addr, uint64_t offset, unsigned pages);
void pages_done(struct pages *p);
void pages_copy(struct pages *to, const struct pages *from);
/* The run that holds addr's page and still has it, or NULL. */
struct page_run *pages_find(struct pages *p, uint64_t addr);
/* Forget [start, end): discarded, unmapped, or already present. */
void pages_cut(struct pages *p, uint64_t start, uint64_t end);
/* mremap: what was at [from, from + len) is at `to` now; what was at the new place is gone. */
void pages_move(struct pages *p, uint64_t from, uint64_t to, uint64_t len);
/* The next run with pages left, in a round; NULL when there is none. */
struct page_run *pages_next(struct pages *p);
/* Contiguous pages of r from bit `first` on that are left; 0 = that page is not. */
unsigned run_length(const struct page_run *r, unsigned first);
void pages_take(struct pages *p, struct page_run *r, unsigned first, unsigned n);
