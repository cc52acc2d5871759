/*
 * `-info` (containerd 2.0 and later): who we are and what we can do, as containerd's RuntimeInfo.
 *
 * kubelet reads two things out of the features document through CRI: recursive read-only mounts (the
 * option "rro") and user namespaces (linux.mountExtensions.idmap).  Every pod gets one; with hostUsers: false
 * containerd makes it and the launcher enters it.
 */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/strbuf.h"
#include "info.pb-c.h"
#include "shim/cli/cli.h"
#include "shim/cli/kernel.h"
#include "shim/launcher/mountopt.h"

static const char features_type[] = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

static const char *const hooks[] = {"prestart",       "createRuntime", "createContainer",
                                    "startContainer", "poststart",     "poststop"};
static const char *const namespaces[] = {"cgroup", "ipc", "mount", "network", "pid", "user", "uts"};
static const char *const capabilities[] = {
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
};

static json_t *strings(const char *const *items, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(array, json_string(items[i]));
    return array;
}

static json_t *mount_options(void)
{
    json_t *array = json_array();

    for (size_t i = 0; mountopt_known(i); i++)
        (void)json_array_append_new(array, json_string(mountopt_known(i)));
    return array;
}

static json_t *enabled(bool on)
{
    return json_pack("{s:b}", "enabled", on);
}

/* seccomp: the interposer's own filter applies instead of linux.seccomp of a pod, and is narrower. */
static char *features(void)
{
    json_t *linux_part = json_pack("{s:o, s:o, s:{s:b, s:b, s:b, s:b}, s:o, s:o, s:o, s:o, s:{s:o}, s:o}",
                                   "namespaces", strings(namespaces, ARRAY_LEN(namespaces)), "capabilities",
                                   strings(capabilities, ARRAY_LEN(capabilities)), "cgroup", "v1", 1, "v2", 1,
                                   "systemd", 1, "rdma", 0, "seccomp", enabled(true), "apparmor",
                                   enabled(true), "selinux", enabled(true), "intelRdt", enabled(false),
                                   "mountExtensions", "idmap", enabled(true), "netDevices", enabled(false));
    json_t *all =
        json_pack("{s:s, s:s, s:o, s:o, s:o}", "ociVersionMin", "1.0.0", "ociVersionMax", "1.3.0", "hooks",
                  strings(hooks, ARRAY_LEN(hooks)), "mountOptions", mount_options(), "linux", linux_part);
    char *text = json_dumps(all, JSON_COMPACT);

    json_decref(all);
    return text;
}

static void set_annotation(Containerd__Types__RuntimeInfo__AnnotationsEntry *entry, const char *key,
                           char *value)
{
    containerd__types__runtime_info__annotations_entry__init(entry);
    entry->key = (char *)(uintptr_t)key;
    entry->value = value;
}

static int print_info(char *features_json, char *missing, unsigned n_missing, struct err *e)
{
    Containerd__Types__RuntimeVersion version = CONTAINERD__TYPES__RUNTIME_VERSION__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    Containerd__Types__RuntimeInfo info = CONTAINERD__TYPES__RUNTIME_INFO__INIT;
    Containerd__Types__RuntimeInfo__AnnotationsEntry entry[2], *annotations[] = {&entry[0], &entry[1]};

    version.version = (char *)(uintptr_t)GLOVEBOX_VERSION;
    any.type_url = (char *)(uintptr_t)features_type;
    any.value.data = (uint8_t *)features_json;
    any.value.len = strlen(features_json);
    info.name = (char *)(uintptr_t)GLOVEBOX_NAME;
    info.version = &version;
    info.features = &any;
    set_annotation(&entry[0], "glovebox.dev/interposer", (char *)(uintptr_t)(n_missing ? "reduced" : "full"));
    set_annotation(&entry[1], "glovebox.dev/kernel-lacks", missing);
    info.annotations = annotations;
    info.n_annotations = n_missing ? 2 : 1;

    size_t n = containerd__types__runtime_info__get_packed_size(&info);
    scoped_free uint8_t *out = xcalloc(1, n);
    (void)containerd__types__runtime_info__pack(&info, out);
    int r = fd_write_all(STDOUT_FILENO, out, n);
    return r < 0 ? err_set(e, r, "print the information: %s", strerror(-r)) : 0;
}

int cli_info(void)
{
    struct err e = {0};
    scoped_strbuf struct strbuf missing;
    /* stdin may hold runtime options; none of them changes the answer, so it is not even read. */
    scoped_free char *json = features();

    strbuf_init(&missing, 4096);
    if (!json) {
        (void)err_set(&e, -ENOMEM, "no memory for the features document");
        return cli_fail("info", &e);
    }
    unsigned n = kernel_missing(&missing);
    return print_info(json, missing.data, n, &e) < 0 ? cli_fail("info", &e) : 0;
}
