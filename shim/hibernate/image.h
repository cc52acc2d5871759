#pragma once
/*
 * The file that holds the pages of a paused pod: made unlinked, mode 0600, written and read past the
 * page cache (O_DIRECT), because a cached image would hold the very memory that the pause gives back.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct image;

/* dir must be on a file system with O_DIRECT; the file has no name, so a crash leaves nothing. */
int image_new(const char *dir, struct image **ret, struct err *e);
void image_free(struct image *img);
/* Appends one page; *ret_offset is where it will be. Written in large pieces: image_flush() ends it. */
int image_append(struct image *img, const void *page, uint64_t *ret_offset, struct err *e);
int image_flush(struct image *img, struct err *e);
/* Reads n bytes (whole pages) into buf, which must be page-aligned. */
int image_read(const struct image *img, uint64_t offset, void *buf, size_t n, struct err *e);
uint64_t image_bytes(const struct image *img);
