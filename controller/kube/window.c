#include "controller/kube/window.h"

#include "base/macro.h"

/* Calls that may stand in the server's queue: below the first the window grows, above the second it shrinks.
 */
#define QUEUE_LOW  3.0
#define QUEUE_HIGH 8.0
/* The fastest call is forgotten slowly, a per mille in five calls: the way to the server may have changed. */
#define FORGET 1.0002
#define SMOOTH 0.1

void window_init(struct window *w)
{
    *w = (struct window){.size = 16};
}

void window_sample(struct window *w, double ms, size_t in_flight)
{
    ms = MAX(ms, 0.1);
    w->fastest_ms = w->fastest_ms > 0 ? MIN(w->fastest_ms * FORGET, ms) : ms;
    w->usual_ms = w->usual_ms > 0 ? w->usual_ms + SMOOTH * (ms - w->usual_ms) : ms;
    double queue = w->size * (1 - w->fastest_ms / MAX(w->usual_ms, w->fastest_ms));
    if (queue < QUEUE_LOW && (double)in_flight + 1 >= w->size)
        w->size += 1 / w->size * 4;
    else if (queue > QUEUE_HIGH)
        w->size -= 1 / w->size * 4;
    w->size = MAX(MIN(w->size, WINDOW_MAX), WINDOW_MIN);
}

size_t window_calls(const struct window *w)
{
    return (size_t)w->size;
}

size_t window_background(const struct window *w)
{
    return window_calls(w) / 2;
}
