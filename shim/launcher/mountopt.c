#include "shim/launcher/mountopt.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "base/macro.h"
#include "base/scoped.h"

enum place {
    TOP,  /* attribute of the mount */
    TREE, /* recursive attribute */
    BIND,
    BIND_ALL,
    SPREAD, /* propagation */
    REFUSED,
    FS_RO, /* read-only mount; of a fresh file system too */
    FS_SYNC,
    FS_DIRSYNC,
    FS_LAZY,
    COPY_UP,
    IDMAP,
    LOOP,
    NOTHING, /* understood, nothing to do */
};

static const struct word {
    const char *word;
    enum place place;
    uint64_t set, clear;
} words_known[] = {
    {"ro", FS_RO, MOUNT_ATTR_RDONLY, 0},
    {"rw", TOP, 0, MOUNT_ATTR_RDONLY},
    {"nosuid", TOP, MOUNT_ATTR_NOSUID, 0},
    {"suid", TOP, 0, MOUNT_ATTR_NOSUID},
    {"nodev", TOP, MOUNT_ATTR_NODEV, 0},
    {"dev", NOTHING, 0, 0}, /* device nodes exist in /dev alone */
    {"noexec", TOP, MOUNT_ATTR_NOEXEC, 0},
    {"exec", TOP, 0, MOUNT_ATTR_NOEXEC},
    {"nosymfollow", TOP, MOUNT_ATTR_NOSYMFOLLOW, 0},
    {"symfollow", TOP, 0, MOUNT_ATTR_NOSYMFOLLOW},
    {"noatime", TOP, MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME},
    {"atime", TOP, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"relatime", TOP, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"norelatime", NOTHING, 0, 0},
    {"strictatime", TOP, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME},
    {"nostrictatime", TOP, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"nodiratime", TOP, MOUNT_ATTR_NODIRATIME, 0},
    {"diratime", TOP, 0, MOUNT_ATTR_NODIRATIME},
    {"rro", TREE, MOUNT_ATTR_RDONLY, 0},
    {"rrw", TREE, 0, MOUNT_ATTR_RDONLY},
    {"rnosuid", TREE, MOUNT_ATTR_NOSUID, 0},
    {"rsuid", TREE, 0, MOUNT_ATTR_NOSUID},
    {"rnodev", TREE, MOUNT_ATTR_NODEV, 0},
    {"rdev", NOTHING, 0, 0},
    {"rnoexec", TREE, MOUNT_ATTR_NOEXEC, 0},
    {"rexec", TREE, 0, MOUNT_ATTR_NOEXEC},
    {"rnosymfollow", TREE, MOUNT_ATTR_NOSYMFOLLOW, 0},
    {"rsymfollow", TREE, 0, MOUNT_ATTR_NOSYMFOLLOW},
    {"rnoatime", TREE, MOUNT_ATTR_NOATIME, MOUNT_ATTR__ATIME},
    {"ratime", TREE, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"rrelatime", TREE, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"rnorelatime", NOTHING, 0, 0},
    {"rstrictatime", TREE, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME},
    {"rnostrictatime", TREE, MOUNT_ATTR_RELATIME, MOUNT_ATTR__ATIME},
    {"rnodiratime", TREE, MOUNT_ATTR_NODIRATIME, 0},
    {"rdiratime", TREE, 0, MOUNT_ATTR_NODIRATIME},
    {"bind", BIND, 0, 0},
    {"rbind", BIND_ALL, 0, 0},
    {"private", SPREAD, MS_PRIVATE, 0},
    {"rprivate", SPREAD, MS_PRIVATE, 0},
    {"slave", SPREAD, MS_SLAVE, 0},
    {"rslave", SPREAD, MS_SLAVE, 0},
    {"unbindable", SPREAD, MS_PRIVATE, 0}, /* nothing in the container can bind it anyway */
    {"runbindable", SPREAD, MS_PRIVATE, 0},
    {"shared", REFUSED, 0, 0},
    {"rshared", REFUSED, 0, 0},
    {"sync", FS_SYNC, 0, 0},
    {"async", NOTHING, 0, 0},
    {"dirsync", FS_DIRSYNC, 0, 0},
    {"lazytime", FS_LAZY, 0, 0},
    {"nolazytime", NOTHING, 0, 0},
    {"iversion", NOTHING, 0, 0},
    {"noiversion", NOTHING, 0, 0},
    {"mand", NOTHING, 0, 0}, /* removed in 5.15 */
    {"nomand", NOTHING, 0, 0},
    {"silent", NOTHING, 0, 0},
    {"loud", NOTHING, 0, 0},
    {"defaults", NOTHING, 0, 0},
    {"remount", NOTHING, 0, 0},
    {"idmap", IDMAP, 0, 0},
    {"ridmap", IDMAP, 0, 0},
    {"tmpcopyup", COPY_UP, 0, 0},
    {"loop", LOOP, 0, 0},
};

static const struct word *find(const char *word)
{
    for (size_t i = 0; i < ARRAY_LEN(words_known); i++)
        if (strcmp(words_known[i].word, word) == 0)
            return &words_known[i];
    return NULL;
}

/* For us, or for containerd; the kernel must not see them. */
static bool is_private_word(const char *word)
{
    return strncmp(word, "X-containerd.", 13) == 0 || strncmp(word, "uidmap=", 7) == 0 ||
           strncmp(word, "gidmap=", 7) == 0 || strncmp(word, "x-", 2) == 0;
}

/* A later word wins over an earlier one. */
static void change(uint64_t *set, uint64_t *clear, const struct word *w)
{
    *set = (*set & ~w->clear) | w->set;
    *clear = (*clear & ~w->set) | w->clear;
}

static int apply(struct mountopt *o, const struct word *w, const char *field, struct err *e)
{
    switch (w->place) {
    case TOP:
        change(&o->set, &o->clear, w);
        if (w->clear == MOUNT_ATTR_RDONLY)
            o->fs_ro = false;
        break;
    case FS_RO:
        change(&o->set, &o->clear, w);
        o->fs_ro = true;
        break;
    case TREE:
        change(&o->rec_set, &o->rec_clear, w);
        break;
    case BIND_ALL:
        o->recursive = true; /* fall through */
    case BIND:
        o->bind = true;
        break;
    case SPREAD:
        o->propagation = w->set;
        break;
    case REFUSED:
        return err_set(
            e, -EPERM,
            "%s: Bidirectional mount propagation is impossible for a pod in its own user namespace.", field);
    case FS_SYNC:
        o->fs_sync = true;
        break;
    case FS_DIRSYNC:
        o->fs_dirsync = true;
        break;
    case FS_LAZY:
        o->fs_lazytime = true;
        break;
    case COPY_UP:
        o->tmpcopyup = true;
        break;
    case IDMAP:
        o->idmap = true;
        break;
    case LOOP:
        o->loop = true;
        break;
    case NOTHING:
        break;
    }
    return 0;
}

int mountopt_parse(const char *const *words, size_t n, const char *field, struct mountopt *ret, struct err *e)
{
    struct mountopt o = {.propagation = MS_PRIVATE};

    o.data = xcalloc(n + 1, sizeof *o.data);
    for (size_t i = 0; i < n; i++) {
        const struct word *w = find(words[i]);
        if (!w) {
            o.idmap |= strncmp(words[i], "uidmap=", 7) == 0;
            if (words[i][0] && !is_private_word(words[i]))
                o.data[o.n_data++] = words[i];
            continue;
        }
        int r = apply(&o, w, field, e);
        if (r < 0) {
            mountopt_done(&o);
            return r;
        }
    }
    *ret = o;
    return 0;
}

void mountopt_done(struct mountopt *o)
{
    free(o->data);
    o->data = NULL;
    o->n_data = 0;
}

const char *mountopt_data(const struct mountopt *o, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = o->n_data; i-- > 0;)
        if (strncmp(o->data[i], key, n) == 0 && o->data[i][n] == '=')
            return o->data[i] + n + 1;
    return NULL;
}

const char *mountopt_known(size_t i)
{
    for (size_t k = 0; k < ARRAY_LEN(words_known); k++)
        if (words_known[k].place != REFUSED && words_known[k].place != COPY_UP &&
            words_known[k].place != LOOP && i-- == 0)
            return words_known[k].word;
    return NULL;
}
