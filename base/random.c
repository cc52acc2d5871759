#include "base/random.h"

#include <stdlib.h>
#include <sys/random.h>

uint32_t random_u32(void)
{
    uint32_t n;

    /* Up to 256 bytes are never cut short once the kernel's pool is ready (getrandom(2)). */
    if (getrandom(&n, sizeof n, 0) != sizeof n)
        abort();
    return n;
}

int64_t random_around(int64_t ms)
{
    return ms - ms / 4 + (int64_t)(random_u32() % ((uint64_t)ms / 2 + 1));
}
