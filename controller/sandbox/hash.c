#include "controller/sandbox/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t hash_bytes(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}

uint32_t hash_str(const char *text)
{
    return text ? hash_bytes(text, strlen(text)) : hash_bytes("", 0);
}

void hash_hex(uint32_t h, char out[HASH_TEXT_MAX])
{
    (void)snprintf(out, HASH_TEXT_MAX, "%08x", h);
}

void hash_text(const char *text, char out[HASH_TEXT_MAX])
{
    hash_hex(hash_str(text), out);
}

uint32_t hash_parse(const char *hex)
{
    if (!hex || strlen(hex) != 8 || strspn(hex, "0123456789abcdef") != 8)
        return 0;
    return (uint32_t)strtoul(hex, NULL, 16);
}
