/* Writing a plan into the control files, with a way back. */
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "shim/cgroup/internal.h"

#define OLD_MAX 4096

struct old_value {
    int dir;
    const char *file; /* the step's */
    char *text;
};
struct undo {
    struct old_value *item;
    size_t n;
};

static void undo_done_scoped(struct undo *u)
{
    for (size_t i = 0; i < u->n; i++)
        free(u->item[i].text);
    free(u->item);
}

/* What to write for a device that the file does not list. */
static const char *device_default(const char *file)
{
    static const struct {
        const char *file, *text;
    } words[] = {
        {"io.max", "rbps=max wbps=max riops=max wiops=max"},
        {"io.weight", "default"},
        {"io.bfq.weight", "default"},
        {"rdma.max", "hca_handle=max hca_object=max"},
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(words[i].file, file) == 0)
            return words[i].text;
    return "0";
}

/* The text that brings a file back to `old`; NULL: it cannot be. */
static char *way_back(const struct cg_step *s, const char *file, char *old, const char *value)
{
    uint64_t disabled = 0;

    if (strcmp(file, "memory.oom_control") == 0)
        return cg_keyed(old, "oom_kill_disable", &disabled) ? xstrdup(disabled ? "1" : "0") : NULL;
    if (s->flags & CG_PER_DEVICE) {
        size_t n = strcspn(value, " ");
        for (char *line = old; *line;) {
            char *end = strchrnul(line, '\n');
            if (strncmp(line, value, n + 1) == 0)
                return xstrndup(line, (size_t)(end - line));
            line = *end ? end + 1 : end;
        }
        return xasprintf("%.*s %s", (int)n, value, device_default(file));
    }
    old[strcspn(old, "\n")] = '\0';
    return xstrdup(old[0] ? old : "\n"); /* an empty cpuset is written as an empty line */
}

static void remember(struct undo *u, int dir, const struct cg_step *s, const char *file, const char *value)
{
    char old[OLD_MAX];

    if (cg_read(dir, file, old, sizeof old) < 0)
        return;
    char *text = way_back(s, file, old, value);
    if (text)
        u->item[u->n++] = (struct old_value){.dir = dir, .file = file, .text = text};
}

static void put_back(const struct undo *u)
{
    /* Twice: in the first round a limit may still be held up by one that is put back later. */
    for (int round = 0; round < 2; round++)
        for (size_t i = u->n; i-- > 0;)
            (void)cg_write(u->item[i].dir, u->item[i].file, u->item[i].text);
}

static int explain(const struct cgroup *cg, const struct cg_step *s, int r, struct err *e)
{
    const char *value = s->text ? s->text : s->value;

    if (r == -ENOENT)
        return err_set(e, -ENOTSUP,
                       "%s cannot be set: this host's kernel has no %s in the %s controller (cgroup v%d)",
                       s->field, s->file, cg_ctrl_name(s->ctrl, cg->mode), cg->mode == CGROUP_V2 ? 2 : 1);
    if (r == -EBUSY && s->ctrl == CG_MEMORY)
        return err_set(e, r, "%s of %.32s is less than the container uses now", s->field, value);
    return err_set(e, r, "%s: the kernel refuses \"%.64s\" for %s: %s", s->field, value, s->file,
                   strerror(-r));
}

static int write_step(const struct cg_dir *part, const struct cg_step *s, struct undo *undo)
{
    const char *value = s->text ? s->text : s->value;

    if (undo)
        remember(undo, part->dir, s, s->file, value);
    int r = cg_write(part->dir, s->file, value[0] ? value : "\n");
    if (r == -ENOENT && s->alt_file) {
        if (undo)
            remember(undo, part->dir, s, s->alt_file, s->alt_value);
        r = cg_write(part->dir, s->alt_file, s->alt_value);
    }
    return r == -ENOENT && (s->flags & CG_OPTIONAL) ? 0 : r;
}

static int apply_one(const struct cgroup *cg, const struct cg_step *s, struct undo *undo, struct err *e)
{
    const struct cg_dir *part = cg_part(cg, s->ctrl);
    if (!part && (s->flags & CG_OPTIONAL))
        return 0;
    if (!part)
        return err_set(e, -ENOTSUP, "%s cannot be set: this host has no %s controller (cgroup v%d)", s->field,
                       cg_ctrl_name(s->ctrl, cg->mode), cg->mode == CGROUP_V2 ? 2 : 1);
    int r = write_step(part, s, undo);
    return r < 0 ? explain(cg, s, r, e) : 0;
}

/* Steps that are only refused because of another one's old value succeed in a later round. */
static int apply_rounds(const struct cgroup *cg, const struct cg_plan *plan, struct undo *undo, struct err *e)
{
    scoped_free bool *done = xcalloc(plan->n, sizeof *done);
    struct undo *first = undo;

    for (int round = 0;; round++) {
        bool progress = false, waiting = false;
        struct err why = {0};
        for (size_t i = 0; i < plan->n; i++) {
            struct err one = {0};
            int r = done[i] ? 0 : apply_one(cg, &plan->step[i], first, &one);
            if (r < 0 && (r != -EINVAL || !(plan->step[i].flags & CG_RETRY)))
                return err_set(e, r, "%s", one.text);
            progress |= r == 0 && !done[i];
            if (r < 0 && !waiting)
                why = one;
            waiting |= r < 0;
            done[i] = r == 0;
        }
        if (!waiting)
            return 0;
        if (!progress || round == 3)
            return err_set(e, why.code, "%s", why.text);
        first = NULL; /* old values were taken in the first round */
    }
}

int cg_apply(const struct cgroup *cg, const struct cg_plan *plan, bool undo, struct err *e)
{
    if (plan->n == 0)
        return 0;
    __attribute__((cleanup(undo_done_scoped))) struct undo old = {0};
    if (undo)
        old.item = xcalloc(2 * plan->n, sizeof *old.item);
    int r = apply_rounds(cg, plan, undo ? &old : NULL, e);
    if (r < 0 && undo)
        put_back(&old);
    return r;
}
