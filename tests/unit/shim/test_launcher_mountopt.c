#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "base/scoped.h"
#include "shim/launcher/mountopt.h"

#define RO     MOUNT_ATTR_RDONLY
#define ATIMES MOUNT_ATTR__ATIME

static int parse(const char *line, struct mountopt *o, struct err *e)
{
    static char buf[512];
    static const char *words[32];
    size_t n = 0;
    char *rest = buf;

    (void)snprintf(buf, sizeof buf, "%s", line);
    for (char *word; (word = strsep(&rest, ","));)
        if (line[0])
            words[n++] = word;
    return mountopt_parse(words, n, "mounts[1] (/x)", o, e);
}

static void words_become_attributes(void **state UNUSED)
{
    static const struct {
        const char *line;
        uint64_t set, clear, rec_set, rec_clear, propagation;
        bool bind, recursive, fs_ro;
        const char *data;
    } cases[] = {
        {.line = "", .propagation = MS_PRIVATE},
        {.line = "rbind,rprivate", .propagation = MS_PRIVATE, .bind = true, .recursive = true},
        {.line = "bind,ro,rslave", .set = RO, .propagation = MS_SLAVE, .bind = true, .fs_ro = true},
        {.line = "ro,rw", .clear = RO, .propagation = MS_PRIVATE}, /* the later word counts */
        {.line = "rw,ro", .set = RO, .propagation = MS_PRIVATE, .fs_ro = true},
        {.line = "rbind,rro", .rec_set = RO, .propagation = MS_PRIVATE, .bind = true, .recursive = true},
        {.line = "rro,rrw", .rec_clear = RO, .propagation = MS_PRIVATE},
        {.line = "nosuid,nodev,noexec",
         .set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
         .propagation = MS_PRIVATE},
        {.line = "noatime,strictatime",
         .set = MOUNT_ATTR_STRICTATIME,
         .clear = ATIMES,
         .propagation = MS_PRIVATE},
        {.line = "strictatime,relatime",
         .set = MOUNT_ATTR_RELATIME,
         .clear = ATIMES,
         .propagation = MS_PRIVATE},
        {.line = "mode=755,size=64k,ro",
         .set = RO,
         .propagation = MS_PRIVATE,
         .fs_ro = true,
         .data = "mode=755 size=64k"},
        {.line = "index=off,userxattr,uidmap=0:1:2,X-containerd.mkfs=x,x-systemd.y,defaults",
         .propagation = MS_PRIVATE,
         .data = "index=off userxattr"},
        {.line = "bind,unbindable,nodev,dev",
         .set = MOUNT_ATTR_NODEV,
         .propagation = MS_PRIVATE,
         .bind = true}, /* "dev" never gives devices */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct mountopt o;
        struct err e = {0};
        char data[200] = "";
        assert_int_equal(parse(cases[i].line, &o, &e), 0);
        for (size_t k = 0; k < o.n_data; k++) {
            (void)snprintf(data + strlen(data), sizeof data - strlen(data), "%s%s", k ? " " : "", o.data[k]);
        }
        if (o.set != cases[i].set || o.clear != cases[i].clear || o.rec_set != cases[i].rec_set ||
            o.rec_clear != cases[i].rec_clear || o.propagation != cases[i].propagation ||
            o.bind != cases[i].bind || o.recursive != cases[i].recursive || o.fs_ro != cases[i].fs_ro ||
            strcmp(data, cases[i].data ? cases[i].data : "") != 0)
            fail_msg("case %zu \"%s\": set %#llx clear %#llx data %s", i, cases[i].line,
                     (unsigned long long)o.set, (unsigned long long)o.clear, data);
        mountopt_done(&o);
    }
}

static void shared_propagation_is_refused_by_name(void **state UNUSED)
{
    struct mountopt o;
    struct err e = {0};

    assert_int_equal(parse("rbind,rshared", &o, &e), -EPERM);
    assert_string_equal(
        err_text(&e),
        "mounts[1] (/x): Bidirectional mount propagation is impossible for a pod in its own user namespace.");
    assert_int_equal(parse("shared", &o, &e), -EPERM);
}

static void values_are_found_by_key(void **state UNUSED)
{
    struct mountopt o;

    assert_int_equal(parse("lowerdir=/a:/b,upperdir=/u,upper=/x,upperdir=/v", &o, NULL), 0);
    assert_string_equal(mountopt_data(&o, "lowerdir"), "/a:/b");
    assert_string_equal(mountopt_data(&o, "upperdir"), "/v"); /* the last */
    assert_string_equal(mountopt_data(&o, "upper"), "/x");
    assert_null(mountopt_data(&o, "workdir"));
    mountopt_done(&o);
    mountopt_done(&o); /* twice is fine */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_attributes),
        cmocka_unit_test(shared_propagation_is_refused_by_name),
        cmocka_unit_test(values_are_found_by_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
