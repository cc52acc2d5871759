#pragma once
/* What the tests of this folder share: cmocka with its includes, hex, and a loop that is stepped until
 * something holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/macro.h"

#define PATIENCE_MS 5000

/* Steps `loop` until cond holds; fails the test when that takes too long. */
#define STEP_UNTIL(loop, cond)                                                                               \
    do {                                                                                                     \
        int64_t unit_end = clock_mono_ms() + PATIENCE_MS;                                                    \
        while (!(cond)) {                                                                                    \
            assert_int_equal(loop_step((loop), 10, NULL), 0);                                                \
            assert_true(clock_mono_ms() < unit_end);                                                         \
        }                                                                                                    \
    } while (0)

static inline UNUSED size_t unhex(const char *text, uint8_t *out, size_t max)
{
    size_t n = 0;

    for (; *text; text++) {
        unsigned byte;
        if (*text == ' ')
            continue;
        assert_true(n < max && sscanf(text, "%2x", &byte) == 1);
        out[n++] = (uint8_t)byte;
        text++;
    }
    return n;
}
