#include "controller/kube/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"

static int value_of(char c)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

int base64_decode(const char *text, size_t len, unsigned char **ret, size_t *ret_len)
{
    scoped_free unsigned char *out = xcalloc(len / 4 * 3 + 4, 1);
    size_t n = 0, chars = 0, pads = 0;
    uint32_t bits = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] && strchr(" \t\r\n", text[i]))
            continue;
        int v = text[i] == '=' ? 0 : value_of(text[i]);
        if (v < 0 || (pads > 0 && text[i] != '='))
            return -EINVAL;
        pads += text[i] == '=';
        bits = bits << 6 | (uint32_t)v;
        if (++chars % 4 == 0) {
            out[n++] = (unsigned char)(bits >> 16);
            out[n++] = (unsigned char)(bits >> 8);
            out[n++] = (unsigned char)bits;
        }
    }
    if (chars % 4 != 0 || pads > 2)
        return -EINVAL;
    n -= pads;
    out[n] = '\0';
    *ret = take(out);
    *ret_len = n;
    return 0;
}
