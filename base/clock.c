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

/*
 * By arithmetic instead of gmtime_r(), which opens the time zone file: the sentry has no file system, and
 * its own filter would kill it for the attempt.  Proleptic Gregorian calendar; years begin in March here,
 * so that the leap day is the last of its year.
 */
void clock_format(const struct timespec *t, char *out)
{
    long day = t->tv_sec / 86400, second = t->tv_sec % 86400;

    if (second < 0) {
        second += 86400;
        day--;
    }
    long shifted = day + 719468; /* days since 0000-03-01 */
    long era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    long of_era = shifted - era * 146097;
    long year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    long of_year = of_era - (365 * year + year / 4 - year / 100);
    long march_month = (5 * of_year + 2) / 153;
    long mday = of_year - (153 * march_month + 2) / 5 + 1;
    long month = march_month < 10 ? march_month + 3 : march_month - 9;

    (void)snprintf(out, CLOCK_TEXT_MAX, "%04ld-%02ld-%02ldT%02ld:%02ld:%02ld.%09ldZ",
                   year + era * 400 + (month <= 2), month, mday, second / 3600, second / 60 % 60, second % 60,
                   t->tv_nsec);
}
