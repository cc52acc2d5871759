/*
 * Pause with the memory given back, by way of shim/hibernate.  It stands in for the plain freezer: when it
 * cannot (no room for the image, a process that cannot be stopped) the container is frozen as it is.
 *
 *   PAUSING --(pager: stopped, saved, frozen)--> PAUSED --Resume--> thaw --> RUNNING, pages come back
 * meanwhile
 *
 * A container that is paused again before the last page is back waits for that page first.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "shim/cgroup/cgroup.h"
#include "shim/hibernate/hibernate.h"
#include "shim/oci/spec.h"
#include "shim/runtime/internal.h"

#define IMAGE_DIR       "/var/lib/glovebox/paused"
#define KEEP_ANNOTATION "glovebox.dev/pause-memory" /* "keep": freeze only */

static int start(struct container *c, struct err *e);

/* The sandbox container has next to no memory; the annotation is on the pod, so on the sandbox. */
static bool wanted(const struct container *c)
{
    const char *type = spec_container_type(c->spec);
    size_t at = 0;
    void *value;

    if (type && strcmp(type, "sandbox") == 0)
        return false;
    while (map_next(c->rt->containers, &at, NULL, &value)) {
        const char *keep = spec_annotation(((struct container *)value)->spec, KEEP_ANNOTATION);
        if (keep && strcmp(keep, "keep") == 0)
            return false;
    }
    return true;
}

static void forget(struct container *c)
{
    hibernate_free(take(c->sleep));
    c->saved_bytes = 0;
}

static void on_asked(void *data)
{
    pause_release_parked(data);
}

static void on_paused(void *data, int r, const struct hibernate_result *result, const struct err *e)
{
    struct container *c = data;
    struct err failed = {0};

    if (r < 0) {
        log_warn("memory is not given back", "id=%s error=%s", c->id, err_text(e));
        forget(c);
        if (c->init.state == PS_PAUSING)
            pause_plain(c);
        return;
    }
    c->saved_bytes = result->saved_bytes;
    c->lazy = result->lazy;
    log_info("memory given back", "id=%s bytes=%llu ms=%llu lazy=%d", c->id,
             (unsigned long long)result->saved_bytes, (unsigned long long)result->duration_ms,
             (int)result->lazy);
    if (c->init.state == PS_PAUSING)
        pause_frozen(c);
    else if (hibernate_resume(c->sleep, &failed) < 0) /* given up meanwhile: back to work */
        sleep_broken(c, &failed);
}

static void on_resumable(void *data)
{
    pause_wake(data);
}

static void on_finished(void *data)
{
    struct container *c = data;
    struct err e = {0};

    forget(c);
    if (c->sleep_again && c->init.state == PS_PAUSING && start(c, &e) < 0) {
        log_warn("memory is not given back", "id=%s error=%s", c->id, err_text(&e));
        pause_plain(c);
    }
    c->sleep_again = false;
}

void sleep_broken(struct container *c, const struct err *e)
{
    log_error("the paused memory is lost, the container is killed", "id=%s error=%s", c->id, err_text(e));
    /* Before our userfaultfds close: from then on a fault reads zeros instead of waiting. */
    (void)cgroup_kill(c->cg, SIGKILL, NULL);
    forget(c);
    pause_thaw(c);
    pause_wake(c);
}

static void on_broken(void *data, const struct err *e)
{
    sleep_broken(data, e);
}

static int start(struct container *c, struct err *e)
{
    struct cgroup *const groups[] = {c->cg};
    const struct hibernate_params params = {.cgroups = groups, .n_cgroups = 1, .image_dir = IMAGE_DIR};
    const struct hibernate_events events = {.asked = on_asked,
                                            .paused = on_paused,
                                            .resumable = on_resumable,
                                            .finished = on_finished,
                                            .broken = on_broken,
                                            .data = c};

    if ((mkdir("/var/lib/glovebox", 0700) < 0 && errno != EEXIST) ||
        (mkdir(IMAGE_DIR, 0700) < 0 && errno != EEXIST))
        return err_sys(e, "make %s", IMAGE_DIR);
    return hibernate_pause(c->rt->loop, &params, &events, &c->sleep, e);
}

bool sleep_begin(struct container *c)
{
    struct err e = {0};

    if (!wanted(c))
        return false;
    if (c->sleep) {
        c->sleep_again = true;
        return true;
    }
    if (start(c, &e) == 0)
        return true;
    log_warn("memory is not given back", "id=%s error=%s", c->id, err_text(&e));
    return false;
}

bool sleep_wake(struct container *c, int *r, struct err *e)
{
    if (!c->sleep)
        return false;
    *r = hibernate_resume(c->sleep, e);
    return true;
}

bool sleep_reaped(struct runtime *rt, pid_t pid, int status)
{
    size_t at = 0;
    void *value;

    while (map_next(rt->containers, &at, NULL, &value)) {
        struct container *c = value;
        if (c->sleep && hibernate_reaped(c->sleep, pid, status))
            return true;
    }
    return false;
}
