#pragma once
/*
 * FNV-1a, 32 bit: the hash that the field's API puts into label values.  It is not collision-proof, so
 * wherever it is looked up the owner's uid decides.
 */
#include <stddef.h>
#include <stdint.h>

#define HASH_TEXT_MAX 9

uint32_t hash_bytes(const void *data, size_t n);
uint32_t hash_str(const char *text);                       /* NULL counts as "" */
void hash_text(const char *text, char out[HASH_TEXT_MAX]); /* eight lower-case hex digits */
void hash_hex(uint32_t h, char out[HASH_TEXT_MAX]);
uint32_t hash_parse(const char *hex); /* 0: not eight hex digits */
