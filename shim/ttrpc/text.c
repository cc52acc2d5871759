#include "shim/ttrpc/text.h"

#include <stddef.h>
#include <stdint.h>

#include "base/macro.h"

/* First bytes, and the range of the second: the rest of them are always 80..bf (Unicode, table 3-7). */
static const struct {
    uint8_t first, last, low, high;
    size_t len;
} forms[] = {
    {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
    {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

static size_t sequence_len(const uint8_t *s)
{
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last)
            continue;
        if (forms[i].len > 1 && (s[1] < forms[i].low || s[1] > forms[i].high))
            return 0;
        for (size_t k = 2; k < forms[i].len; k++)
            if ((s[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].len;
    }
    return 0;
}

void ttrpc_text_clean(char *text)
{
    for (uint8_t *p = (uint8_t *)text; *p;) {
        size_t n = sequence_len(p);
        if (n == 0)
            *p = '?';
        p += n ? n : 1;
    }
}
