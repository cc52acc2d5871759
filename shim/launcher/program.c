#include "shim/launcher/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define PASSWD_MAX   (1u << 20)
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *env_get(const struct spec_process *p, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = p->env.n; i-- > 0;)
        if (strncmp(p->env.item[i], key, n) == 0 && p->env.item[i][n] == '=')
            return p->env.item[i] + n + 1;
    return NULL;
}

/* 0, or -errno for a file that cannot be executed by us. */
static int is_executable(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static int find_by_path(const char *name, char **ret, struct err *e)
{
    int r = is_executable(name);

    if (r == 0) {
        *ret = xstrdup(name);
        return 0;
    }
    if (r == -EISDIR)
        return err_set(e, r, "exec: \"%s\": is a directory", name);
    if (r == -EACCES || r == -EPERM)
        return err_set(e, r, "exec: \"%s\": permission denied", name);
    if (r == -ENOENT)
        return err_set(e, r, "exec: \"%s\": stat %s: no such file or directory", name, name);
    return err_set(e, r, "exec: \"%s\": stat %s: %s", name, name, strerror(-r));
}

int program_find(const struct spec_process *p, char **ret, struct err *e)
{
    if (p->args.n == 0 || !p->args.item[0][0])
        return err_set(e, -ENOENT, "exec: \"\": executable file not found in $PATH");
    const char *name = p->args.item[0];
    if (strchr(name, '/'))
        return find_by_path(name, ret, e);

    const char *path = env_get(p, "PATH");
    for (const char *at = path ? path : PATH_DEFAULT; at;) {
        size_t n = strcspn(at, ":");
        scoped_free char *full = n ? xasprintf("%.*s/%s", (int)n, at, name) : xasprintf("./%s", name);
        if (is_executable(full) == 0) {
            *ret = take(full);
            return 0;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return err_set(e, -ENOENT, "exec: \"%s\": executable file not found in $PATH", name);
}

/* Sixth field of the line of uid. The file is the image's: hostile, and only ever used as a string. */
static char *home_of(uint32_t uid)
{
    struct stat st;
    scoped_free char *text = NULL;
    scoped_fd int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        fd_read_all(fd, PASSWD_MAX, &text, NULL, NULL) < 0)
        return NULL;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *field[6] = {NULL};
        for (size_t i = 0; i < ARRAY_LEN(field); i++)
            field[i] = strsep(&line, ":");
        uint64_t id;
        if (field[5] && parse_u64(field[2], UINT32_MAX, &id) == 0 && id == uid && field[5][0])
            return xstrdup(field[5]);
    }
    return NULL;
}

char **program_env(const struct spec_process *p)
{
    char **out = xcalloc(p->env.n + 2, sizeof *out);
    size_t n = 0;

    for (size_t i = 0; i < p->env.n; i++) {
        const char *key = p->env.item[i];
        size_t len = strcspn(key, "=");
        bool again = false;
        for (size_t j = i + 1; !again && j < p->env.n; j++)
            again = strncmp(p->env.item[j], key, len + 1) == 0;
        if (!again)
            out[n++] = p->env.item[i];
    }
    const char *home = env_get(p, "HOME");
    if (!home || !home[0]) {
        char *found = home_of(p->uid);
        /* An empty HOME stays in front; the last one counts, so it must go. */
        for (size_t i = 0; home && i < n; i++)
            if (strcmp(out[i], "HOME=") == 0)
                out[i] = out[--n];
        out[n++] = xasprintf("HOME=%s", found ? found : "/");
        free(found);
    }
    out[n] = NULL;
    return out;
}

void program_exec_error(const char *path, int r, struct err *e)
{
    static const struct {
        int r;
        const char *text;
    } texts[] = {{-ENOEXEC, "exec format error"},
                 {-ENOENT, "no such file or directory"},
                 {-EACCES, "permission denied"},
                 {-E2BIG, "argument list too long"}};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (texts[i].r == r) {
            (void)err_set(e, r, "exec %s: %s", path, texts[i].text);
            return;
        }
    (void)err_set(e, r, "exec %s: %s", path, strerror(-r));
}
