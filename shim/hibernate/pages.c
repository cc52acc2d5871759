#include "shim/hibernate/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static uint64_t bits(unsigned first, unsigned n)
{
    uint64_t ones = n >= 64 ? ~0ULL : (1ULL << n) - 1;

    return ones << first;
}

void pages_add(struct pages *p, uint64_t addr, uint64_t offset, unsigned pages)
{
    assert(pages > 0 && pages <= RUN_PAGES);
    assert(p->n == 0 || p->runs[p->n - 1].addr < addr);
    p->runs = xgrow(p->runs, p->n, &p->cap, sizeof *p->runs);
    p->runs[p->n++] = (struct page_run){.addr = addr, .offset = offset, .left = bits(0, pages)};
    p->left += pages;
}

void pages_done(struct pages *p)
{
    free(p->runs);
    *p = (struct pages){0};
}

void pages_copy(struct pages *to, const struct pages *from)
{
    *to = *from;
    to->cap = from->n;
    to->runs = xmemdup(from->runs, from->n * sizeof *from->runs);
}

/* Index of the first run whose 64 pages end above addr. */
static size_t lower(const struct pages *p, uint64_t addr)
{
    size_t low = 0, high = p->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->runs[middle].addr + (uint64_t)RUN_PAGES * PAGE_BYTES <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct page_run *pages_find(struct pages *p, uint64_t addr)
{
    /* Short runs may overlap in their nominal 64 pages, so several neighbours can qualify. */
    for (size_t i = lower(p, addr); i < p->n && p->runs[i].addr <= addr; i++)
        if (p->runs[i].left >> ((addr - p->runs[i].addr) / PAGE_BYTES) & 1)
            return &p->runs[i];
    return NULL;
}

void pages_cut(struct pages *p, uint64_t start, uint64_t end)
{
    for (size_t i = lower(p, start); i < p->n && p->runs[i].addr < end; i++) {
        struct page_run *r = &p->runs[i];
        unsigned first = start > r->addr ? (unsigned)((start - r->addr) / PAGE_BYTES) : 0;
        uint64_t after = (end - r->addr + PAGE_BYTES - 1) / PAGE_BYTES;
        unsigned last = after > RUN_PAGES ? RUN_PAGES : (unsigned)after;
        if (first >= last)
            continue;
        uint64_t gone = r->left & bits(first, last - first);
        p->left -= (uint64_t)__builtin_popcountll(gone);
        r->left &= ~gone;
    }
}

static int by_address(const void *a, const void *b)
{
    uint64_t x = ((const struct page_run *)a)->addr, y = ((const struct page_run *)b)->addr;

    return x < y ? -1 : x > y;
}

void pages_move(struct pages *p, uint64_t from, uint64_t to, uint64_t len)
{
    struct page_run *moved = NULL;
    size_t n = 0, cap = 0;

    for (size_t i = lower(p, from); i < p->n && p->runs[i].addr < from + len; i++) {
        struct page_run *r = &p->runs[i];
        for (unsigned bit = 0; bit < RUN_PAGES;) {
            uint64_t addr = r->addr + (uint64_t)bit * PAGE_BYTES;
            unsigned length = run_length(r, bit);
            while (length && addr + (uint64_t)length * PAGE_BYTES > from + len)
                length--;
            if (!length || addr < from) {
                bit++;
                continue;
            }
            moved = xgrow(moved, n, &cap, sizeof *moved);
            moved[n++] = (struct page_run){.addr = addr - from + to,
                                           .offset = r->offset + (uint64_t)bit * PAGE_BYTES,
                                           .left = bits(0, length)};
            r->left &= ~bits(bit, length);
            p->left -= length;
            bit += length;
        }
    }
    pages_cut(p, to, to + len);
    for (size_t i = 0; i < n; i++) {
        p->runs = xgrow(p->runs, p->n, &p->cap, sizeof *p->runs);
        p->runs[p->n++] = moved[i];
        p->left += (uint64_t)__builtin_popcountll(moved[i].left);
    }
    free(moved);
    if (n)
        qsort(p->runs, p->n, sizeof *p->runs, by_address);
}

struct page_run *pages_next(struct pages *p)
{
    if (!p->left)
        return NULL;
    for (size_t i = 0; i < p->n; i++, p->cursor++) {
        if (p->cursor >= p->n)
            p->cursor = 0;
        if (p->runs[p->cursor].left)
            return &p->runs[p->cursor];
    }
    return NULL;
}

unsigned run_length(const struct page_run *r, unsigned first)
{
    uint64_t rest = first < RUN_PAGES ? r->left >> first : 0;

    if (!(rest & 1))
        return 0;
    return ~rest ? (unsigned)__builtin_ctzll(~rest) : RUN_PAGES;
}

void pages_take(struct pages *p, struct page_run *r, unsigned first, unsigned n)
{
    uint64_t taken = r->left & bits(first, n);

    p->left -= (uint64_t)__builtin_popcountll(taken);
    r->left &= ~taken;
}
