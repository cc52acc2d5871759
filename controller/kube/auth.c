#include "controller/kube/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "controller/kube/kubeconfig.h"

#define TOKEN_MAX     (64u << 10)
#define LOOK_EVERY_MS 1000
#define READ_EVERY_MS 60000

struct auth {
    const char *file; /* NULL: the token never changes */
    char *header;
    struct timespec mtime;
    ino_t inode;
    int64_t looked_ms, read_ms;
};

static void set_header(struct auth *a, const char *token)
{
    if (a->header)
        explicit_bzero(a->header, strlen(a->header));
    free(a->header);
    a->header = xasprintf("Authorization: Bearer %s", token);
}

static int read_token(struct auth *a, struct err *e)
{
    scoped_free char *text = NULL;
    struct stat st;

    a->read_ms = clock_mono_ms();
    if (stat(a->file, &st) == 0) { /* before reading: a change in between is seen at the next look */
        a->mtime = st.st_mtim;
        a->inode = st.st_ino;
    }
    int r = file_read(AT_FDCWD, a->file, TOKEN_MAX, &text, NULL, e);
    if (r < 0)
        return err_wrap(e, r, "token file");
    text[strcspn(text, "\r\n")] = '\0';
    if (!*text)
        r = err_set(e, -EINVAL, "token file %s is empty", a->file);
    else
        set_header(a, text);
    explicit_bzero(text, strlen(text));
    return r;
}

int auth_new(const struct kube_config *c, struct auth **ret, struct err *e)
{
    scoped(auth_free) struct auth *a = xcalloc(1, sizeof *a);

    if (c->token_file) { /* the file wins over an inline token, as in client-go */
        a->file = c->token_file;
        int r = read_token(a, e);
        if (r < 0)
            return r;
    } else if (c->token) {
        set_header(a, c->token);
    }
    *ret = take(a);
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    if (a->header)
        explicit_bzero(a->header, strlen(a->header));
    free(a->header);
    free(a);
}

static bool is_changed(const struct auth *a)
{
    struct stat st;

    return stat(a->file, &st) == 0 && (st.st_ino != a->inode || st.st_mtim.tv_sec != a->mtime.tv_sec ||
                                       st.st_mtim.tv_nsec != a->mtime.tv_nsec);
}

const char *auth_header(struct auth *a)
{
    int64_t now = clock_mono_ms();

    if (a->file && now - a->looked_ms >= LOOK_EVERY_MS) {
        a->looked_ms = now;
        if (now - a->read_ms >= READ_EVERY_MS || is_changed(a))
            (void)read_token(a, NULL); /* the server judges the old token */
    }
    return a->header;
}

bool auth_refresh(struct auth *a)
{
    if (!a->file)
        return false;
    scoped_free char *old = xstrdup(a->header);
    (void)read_token(a, NULL);
    bool changed = strcmp(old, a->header) != 0;
    explicit_bzero(old, strlen(old));
    return changed;
}
