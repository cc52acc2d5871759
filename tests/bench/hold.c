/*
 * hold MIB FILE: fills MIB of memory with random bytes, then writes CLOCK_MONOTONIC into the shared file FILE
 * all the time: word 0.  When word 1 becomes N, it touches N MiB of its memory and writes the time when that
 * is done to word 2.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 2 ? (size_t)atol(argv[1]) << 20 : 0;
    int fd = argc > 2 ? open(argv[2], O_RDWR) : -1;
    volatile int64_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char sum = 0;

    if (fd < 0 || shared == MAP_FAILED || memory == MAP_FAILED)
        return 1;
    for (size_t at = 0; at < bytes;) {
        ssize_t n = getrandom(memory + at, bytes - at, 0);
        if (n > 0)
            at += (size_t)n;
    }
    for (;;) {
        shared[0] = now();
        if (shared[1]) {
            size_t touch = (size_t)shared[1] << 20;
            shared[1] = 0;
            for (size_t at = 0; at < touch; at += 4096)
                sum += memory[at];
            shared[2] = now();
        }
        const struct timespec nap = {.tv_nsec = 50000};
        nanosleep(&nap, NULL);
    }
}
