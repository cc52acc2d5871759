#include "base/clock.h"

#include <stdio.h>

int64_t clock_mono_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct timespec clock_wall(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return t;
}

void clock_format(const struct timespec *t, char *out)
{
    struct tm tm = {0}; /* stays so for a year beyond what struct tm can hold */

    (void)gmtime_r(&t->tv_sec, &tm);
    size_t n = strftime(out, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + n, CLOCK_TEXT_MAX - n, ".%09ldZ", t->tv_nsec);
}
