/* P25, P29-P32: devices, writable kernel knobs, leaked descriptors, masked paths. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define REACHED(...) .reached = {__VA_ARGS__}

/* Descriptors above 2 at exec, except the one that reads the directory. */
static long leaked_fds(const struct probe *p)
{
    (void)p;
    DIR *d = opendir("/proc/self/fd");
    long n = 0;

    if (!d)
        return -errno;
    for (struct dirent *entry; (entry = readdir(d));) {
        int fd = atoi(entry->d_name);
        struct stat st;
        if (entry->d_name[0] == '.' || fd < 3 || fd == dirfd(d))
            continue;
        if (fstat(fd, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode)))
            n++;
    }
    closedir(d);
    return n ? n : -ENOENT;
}

static long abstract_name(const struct probe *p)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (fd < 0)
        return -errno;
    size_t n = strlen(p->text);
    memcpy(at.sun_path + 1, p->text, n);
    long r = connect(fd, (struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
    r = r < 0 ? -errno : r;
    close(fd);
    return r;
}

/* Success when the file gives any byte: masked files are absent, empty or refused. */
static long readable(const struct probe *p)
{
    char c;
    int fd = open(p->text, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return -errno;
    long r = read(fd, &c, 1);
    r = r < 0 ? -errno : r == 0 ? -ENODATA : r;
    close(fd);
    return r;
}

/* kallsyms is harmless while every address in it is zero. */
static long real_addresses(const struct probe *p)
{
    char line[256];
    long found = -ENODATA;
    FILE *f = fopen(p->text, "re");

    if (!f)
        return -errno;
    for (int i = 0; i < 2000 && fgets(line, sizeof line, f); i++)
        if (strtoull(line, NULL, 16) != 0)
            found = 1;
    fclose(f);
    return found;
}

static long dev_null_replaced(const struct probe *p)
{
    struct stat st;
    (void)p;
    if (lstat("/dev/null", &st) < 0)
        return -errno;
    return S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) ? -ENOENT : 1;
}

/* A directory above the root by way of "..": must stay at the root. */
static long above_root(const struct probe *p)
{
    struct stat up, root;
    (void)p;
    if (stat("/..", &up) < 0 || stat("/", &root) < 0)
        return -errno;
    return up.st_dev == root.st_dev && up.st_ino == root.st_ino ? -ENOENT : 1;
}

#define DEV(path)                                                                                            \
    {                                                                                                        \
        .group = "P25", .name = "open " path, .run = run_open, .text = path, .arg = {O_RDWR},                \
        REACHED(PROBE_OK, EACCES, EBUSY, EPERM, ENODEV, ENXIO)                                               \
    }
#define WRITE(path)                                                                                          \
    {                                                                                                        \
        .group = "P29", .name = "open for writing " path, .run = run_open, .text = path, .arg = {O_WRONLY},  \
        REACHED(PROBE_OK)                                                                                    \
    }
#define READ(path)                                                                                           \
    {                                                                                                        \
        .group = "P32", .name = "read " path, .run = readable, .text = path, REACHED(PROBE_OK)               \
    }

const struct probe probes_runtime[] = {
    DEV("/dev/kvm"),
    DEV("/dev/net/tun"),
    DEV("/dev/dri/card0"),
    DEV("/dev/vhost-net"),
    DEV("/dev/vhost-vsock"),
    DEV("/dev/mem"),
    DEV("/dev/kmsg"),
    DEV("/dev/binder"),
    DEV("/dev/snd/seq"),
    DEV("/dev/video0"),
    DEV("/dev/nvidiactl"),
    DEV("/dev/uinput"),
    DEV("/dev/loop-control"),
    DEV("/dev/vda"),
    DEV("/dev/sda"),

    WRITE("/proc/sys/kernel/core_pattern"),
    WRITE("/proc/sys/kernel/modprobe"),
    WRITE("/proc/sys/fs/binfmt_misc/register"),
    WRITE("/sys/fs/cgroup/memory/release_agent"),
    WRITE("/sys/fs/cgroup/release_agent"),
    WRITE("/sys/kernel/uevent_helper"),
    WRITE("/proc/self/exe"),
    WRITE("/proc/sysrq-trigger"),
    WRITE("/proc/sys/vm/drop_caches"),
    WRITE("/proc/irq/default_smp_affinity"),

    {.group = "P30",
     .name = "abstract name of a containerd shim",
     .run = abstract_name,
     .text = "/containerd-shim/x.sock",
     REACHED(PROBE_OK)},
    {.group = "P30",
     .name = "/run/containerd/containerd.sock",
     .run = run_open,
     .text = "/run/containerd/containerd.sock",
     .arg = {O_RDONLY},
     REACHED(PROBE_OK, ENXIO)},
    {.group = "P30",
     .name = "/var/run/docker.sock",
     .run = run_open,
     .text = "/var/run/docker.sock",
     .arg = {O_RDONLY},
     REACHED(PROBE_OK, ENXIO)},

    {.group = "P31", .name = "directories and sockets left open", .run = leaked_fds, REACHED(PROBE_OK)},

    READ("/proc/kcore"),
    READ("/proc/keys"),
    READ("/proc/timer_list"),
    READ("/proc/sched_debug"),
    READ("/proc/kmsg"),
    READ("/proc/latency_stats"),
    READ("/proc/iomem"),
    READ("/sys/firmware/dmi/tables/DMI"),
    READ("/sys/kernel/debug/tracing/trace"),
    READ("/sys/kernel/tracing/trace"),
    READ("/proc/acpi/wakeup"),
    READ("/proc/config.gz"),
    READ("/proc/interrupts"),
    READ("/proc/self/pagemap"),
    {.group = "P32",
     .name = "addresses in /proc/kallsyms",
     .run = real_addresses,
     .text = "/proc/kallsyms",
     REACHED(PROBE_OK)},
    {.group = "P32", .name = "/dev/null is not 1:3", .run = dev_null_replaced, REACHED(PROBE_OK)},
    {.group = "P32", .name = "/.. leaves the root", .run = above_root, REACHED(PROBE_OK)},
};
const size_t probes_runtime_n = sizeof probes_runtime / sizeof probes_runtime[0];
