#pragma once
/* SHA-256 (FIPS 180-4), for socket names only: the static program carries no crypto library for it. */
#include <stddef.h>

#define SHA256_HEX 65 /* with the NUL */
void sha256_hex(const void *data, size_t n, char out[SHA256_HEX]);
