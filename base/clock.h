#pragma once
/* Monotonic and wall time.  Tests may replace these two functions at link time (--wrap). */
#include <stdint.h>
#include <time.h>

int64_t clock_mono_ns(void);
struct timespec clock_wall(void);
static inline int64_t clock_mono_ms(void)
{
    return clock_mono_ns() / 1000000;
}
/* RFC 3339 with nanoseconds, UTC; out needs CLOCK_TEXT_MAX bytes. */
#define CLOCK_TEXT_MAX 96 /* whatever the numbers; 30 for years of four digits */
void clock_format(const struct timespec *t, char *out);
