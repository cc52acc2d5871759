#include "shim/launcher/mountinfo.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/scoped.h"

#define TEXT_MAX (8u << 20)

/* Space, tab, newline and backslash are written as \\ooo. In place. */
static char *unescape(char *s)
{
    char *out = s;

    for (char *in = s; *in;) {
        if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && in[2] >= '0' && in[2] <= '7' && in[3] >= '0' &&
            in[3] <= '7') {
            *out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
            in += 4;
        } else {
            *out++ = *in++;
        }
    }
    *out = '\0';
    return s;
}

/* "id parent major:minor root point options [tags] - type source fs_options" */
static bool parse_line(char *text, struct mountinfo_line *ret)
{
    char *field[6], *tail = strstr(text, " - ");

    if (!tail)
        return false;
    *tail = '\0';
    for (size_t i = 0; i < ARRAY_LEN(field); i++)
        field[i] = strsep(&text, " ");
    tail += 3;
    char *type = strsep(&tail, " ");
    (void)strsep(&tail, " ");
    if (!field[5] || !type || !tail)
        return false;
    *ret = (struct mountinfo_line){.id = strtoull(field[0], NULL, 10),
                                   .point = unescape(field[4]),
                                   .type = type,
                                   .fs_options = unescape(tail)};
    return true;
}

int mountinfo_read(int proc_self, struct mountinfo *ret, struct err *e)
{
    struct mountinfo m = {0};
    size_t cap = 0;

    int r = file_read(proc_self, proc_self == AT_FDCWD ? "/proc/self/mountinfo" : "mountinfo", TEXT_MAX,
                      &m.text, NULL, e);
    if (r < 0)
        return r;
    char *rest = m.text;
    for (char *text; (text = strsep(&rest, "\n"));) {
        m.line = xgrow(m.line, m.n, &cap, sizeof *m.line);
        m.n += parse_line(text, &m.line[m.n]);
    }
    *ret = m;
    return 0;
}

void mountinfo_done(struct mountinfo *m)
{
    free(m->text);
    free(m->line);
    *m = (struct mountinfo){0};
}
