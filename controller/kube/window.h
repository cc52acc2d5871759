#pragma once
/*
 * How many calls to have in flight: enough to keep the API server busy, few enough that a call which
 * somebody waits for does not stand behind a hundred others there.  After TCP Vegas: as long as calls
 * take about as long as the fastest one did, more are sent; when they take longer, they stand in a
 * queue, and fewer are.  A far server with a long way thus gets many, a busy one few.  Pure.
 */
#include <stddef.h>

struct window {
    double size;
    double fastest_ms, usual_ms; /* 0: no call yet */
};

#define WINDOW_MIN 6
#define WINDOW_MAX 64 /* below the 100 streams that HTTP/2 servers commonly allow */

void window_init(struct window *w);
/* One call took so long, while in_flight (itself too) were on their way. */
void window_sample(struct window *w, double ms, size_t in_flight);
size_t window_calls(const struct window *w);
/* Of them, how many may be calls that nobody waits for. */
size_t window_background(const struct window *w);
