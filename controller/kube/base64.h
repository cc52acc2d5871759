#pragma once
/* Base64 (RFC 4648, standard alphabet), white space between characters allowed. */
#include <stddef.h>

/* *ret is NUL-terminated and the caller's; -EINVAL when text is not base64. */
int base64_decode(const char *text, size_t len, unsigned char **ret, size_t *ret_len);
