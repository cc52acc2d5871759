#pragma once
/*
 * One JSON line for each refused call: what, who, which rule.  Rate limited, because the workload
 * decides how often it asks; what is dropped is counted in the next line that is written.
 */
#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

struct audit {
    int fd; /* -1: none */
    pthread_mutex_t lock;
    int64_t refilled_ms;
    unsigned tokens;
    uint64_t lost;
};

struct audit_record {
    const char *container;
    pid_t tid; /* on the host */
    const char *call;
    const uint64_t *args; /* six registers */
    const char *detail;   /* destination and the like; NULL */
    const char *rule;
    int error; /* positive errno that the caller gets */
};

void audit_init(struct audit *a, int fd);
void audit_write(struct audit *a, const struct audit_record *r);
