#pragma once
/* linux.resources of a configuration, and the argument of Update, as plain data; see spec.h. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct spec_pair {
    char *key, *value;
};
/* Numbers say whether they were given: absent means "leave as it is". */
struct spec_device_rule {
    bool allow;
    char type;            /* 'a' 'c' 'b' */
    int64_t major, minor; /* -1 = any */
    char *access;
};
struct spec_num {
    bool has;
    int64_t value; /* -1 = unlimited where the specification says so */
};
struct spec_throttle {
    int64_t major, minor;
    uint64_t rate;
};
struct spec_weight_device {
    int64_t major, minor;
    struct spec_num weight, leaf_weight;
};
struct spec_rdma {
    char *device;
    struct spec_num hca_handles, hca_objects;
};
struct spec_resources {
    struct spec_device_rule *devices;
    size_t n_devices;
    struct spec_num memory_limit, memory_reservation, memory_swap, memory_swappiness;
    struct spec_num memory_disable_oom_killer, memory_check_before_update;
    struct spec_num cpu_shares, cpu_quota, cpu_period, cpu_burst, cpu_rt_runtime, cpu_rt_period, cpu_idle;
    char *cpuset_cpus, *cpuset_mems;
    struct spec_num pids_limit;
    struct spec_num blkio_weight, blkio_leaf_weight;
    struct spec_weight_device *weight_devices;
    size_t n_weight_devices;
    struct spec_throttle *throttle[4]; /* read bps, write bps, read iops, write iops */
    size_t n_throttle[4];
    struct spec_pair *hugepage; /* page size -> limit in bytes, decimal */
    size_t n_hugepage;
    struct spec_num net_class_id;
    struct spec_pair *net_priorities;
    size_t n_net_priorities;
    struct spec_pair *unified; /* cgroup v2 file -> content, verbatim */
    size_t n_unified;
    struct spec_rdma *rdma;
    size_t n_rdma;
};

int spec_resources_parse(const char *json, size_t len, struct spec_resources **ret, struct err *e);
void spec_resources_free(struct spec_resources *r);
