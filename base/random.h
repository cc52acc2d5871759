#pragma once
/* Random numbers from the kernel for jitter and names; never for tests that must repeat. */
#include <stdint.h>

uint32_t random_u32(void);
/* ms with jitter: evenly spread over 3/4 to 5/4 of it. */
int64_t random_around(int64_t ms);
