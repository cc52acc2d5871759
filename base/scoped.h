#pragma once
/*
 * Scope-bound clean-up.  Declare with the initialiser, hand over with take() or take_fd(), never
 * free a scoped variable by hand.  Destructors keep errno.
 */
#include <stdlib.h>

#include "base/fd.h"

#define scoped(fn) __attribute__((cleanup(fn##_scoped)))
#define SCOPED_DEFINE(type, fn)                                                                              \
    static inline __attribute__((unused)) void fn##_scoped(type **p)                                         \
    {                                                                                                        \
        fn(*p);                                                                                              \
    }

static inline void scoped_free_fn(void *p)
{
    free(*(void **)p);
}
static inline void scoped_fd_fn(int *fd)
{
    fd_close(*fd);
}
#define scoped_free __attribute__((cleanup(scoped_free_fn)))
#define scoped_fd   __attribute__((cleanup(scoped_fd_fn)))

/* take(p): the value of p, which becomes NULL: ownership moves to whoever gets the value. */
#define take(p)                                                                                              \
    ({                                                                                                       \
        __typeof__(p) take_value_ = (p);                                                                     \
        (p) = NULL;                                                                                          \
        take_value_;                                                                                         \
    })
static inline int take_fd_fn(int *fd)
{
    int value = *fd;
    *fd = -1;
    return value;
}
#define take_fd(fd) take_fd_fn(&(fd))
