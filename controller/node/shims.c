#include "controller/node/shims.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/map.h"
#include "control.pb-c.h"
#include "shim/ttrpc/client.h"

#define SERVICE           "glovebox.shim.v1.Control"
#define SUFFIX            ".sock"
#define STATUS_TIMEOUT_MS 5000
#define FOLDER_RETRY_MS   10000
#define CONTAINERS_MAX    1024

/* One connection for one call: a pause is rare, and a shim may be replaced in between. */
struct call {
    struct shim *shim;
    struct ttrpc_client *client;
    int64_t started_ms;
    bool resume;
    shim_fn fn;
    void *data;
};

struct shim {
    struct list node;
    struct shims *all;
    char *id;
    char **containers;
    size_t n_containers;
    bool paused, seen; /* seen: its name is still in the folder */
    char *broken;
    struct call status, action, egress; /* client NULL: none in flight */
    struct map *refused;                /* call name -> uint64_t *, as told last */
};

struct shims {
    struct loop *loop;
    char *folder;
    int inotify;
    struct source *source, *retry;
    void (*changed)(void *data, struct shim *s);
    void *data;
    struct list list;
    size_t n, scanning; /* scanning: answers that the scan under way waits for */
    uint64_t begun, done;
    bool again;
    struct map *refused; /* call name -> uint64_t *, summed over all pods */
};

/* ---- counters ---- */

static uint64_t *counter(struct map *m, const char *name)
{
    uint64_t *n = map_get(m, name);

    if (!n) {
        n = xcalloc(1, sizeof *n);
        map_put(m, name, n);
    }
    return n;
}

static void counters_free(struct map *m)
{
    size_t cursor = 0;
    void *n;

    while (m && map_next(m, &cursor, NULL, &n))
        free(n);
    map_free(m);
}

static void count_refused(struct shim *s, const Glovebox__Shim__V1__StatusResponse *m)
{
    for (size_t i = 0; i < m->n_refused_calls; i++) {
        const Glovebox__Shim__V1__Counter *c = m->refused_calls[i];
        uint64_t *last = counter(s->refused, c->name);
        if (c->value > *last)
            *counter(s->all->refused, c->name) += c->value - *last;
        *last = c->value;
    }
}

int shims_next_refused(const struct shims *x, size_t *cursor, const char **ret_call, uint64_t *ret_n)
{
    void *n;

    if (!map_next(x->refused, cursor, ret_call, &n))
        return 0;
    *ret_n = *(uint64_t *)n;
    return 1;
}

/* ---- one shim ---- */

static void drop_containers(struct shim *s)
{
    for (size_t i = 0; i < s->n_containers; i++)
        free(s->containers[i]);
    free(take(s->containers));
    s->n_containers = 0;
}

static void scan_answered(struct shims *x);

static void shim_free(struct shim *s)
{
    bool asked = s->status.client != NULL;

    list_remove(&s->node);
    s->all->n--;
    ttrpc_client_free(s->status.client);
    ttrpc_client_free(s->action.client);
    bool telling = s->egress.client != NULL;
    ttrpc_client_free(take(s->egress.client));
    if (telling) /* nobody else would tell who waits */
        s->egress.fn(s->egress.data, &(struct shim_result){.code = -EIO, .text = "the shim is gone"});
    drop_containers(s);
    counters_free(s->refused);
    free(s->broken);
    free(s->id);
    struct shims *x = s->all;
    free(s);
    if (asked)
        scan_answered(x);
}

const char *shim_id(const struct shim *s)
{
    return s->id;
}

bool shim_is_paused(const struct shim *s)
{
    return s->paused;
}

const char *shim_broken(const struct shim *s)
{
    return s->broken ? s->broken : "";
}

bool shim_has(const struct shim *s, const char *container_id)
{
    for (size_t i = 0; i < s->n_containers; i++)
        if (strcmp(s->containers[i], container_id) == 0)
            return true;
    return false;
}

bool shim_has_one_of(const struct shim *s, const char *text)
{
    for (size_t i = 0; i < s->n_containers; i++)
        if (strstr(text, s->containers[i]))
            return true;
    return false;
}

/* q without the service. */
static int call_with(struct shim *s, struct call *c, const struct ttrpc_request *q, ttrpc_done_fn done,
                     struct err *e)
{
    scoped_free char *path = xasprintf("%s/%s" SUFFIX, s->all->folder, s->id);
    struct ttrpc_request full = *q;
    int r = ttrpc_client_connect(s->all->loop, path, &c->client, e);

    if (r < 0)
        return r;
    full.service = SERVICE;
    c->shim = s;
    c->started_ms = clock_mono_ms();
    ttrpc_client_call(c->client, &full, done, c);
    return 0;
}

static int call(struct shim *s, struct call *c, const char *method, int64_t timeout_ms, ttrpc_done_fn done,
                struct err *e)
{
    return call_with(s, c, &(struct ttrpc_request){.method = method, .timeout_ms = timeout_ms}, done, e);
}

static void end_call(struct call *c)
{
    ttrpc_client_free(take(c->client));
}

static void take_status(struct shim *s, const Glovebox__Shim__V1__StatusResponse *m)
{
    drop_containers(s);
    s->containers = xcalloc(m->n_containers + 1, sizeof(char *));
    for (size_t i = 0; i < m->n_containers && i < CONTAINERS_MAX; i++)
        if (*m->containers[i]->id)
            s->containers[s->n_containers++] = xstrdup(m->containers[i]->id);
    s->paused = m->state == GLOVEBOX__SHIM__V1__POD_STATE__POD_PAUSED;
    free(s->broken);
    s->broken = xstrdup(m->broken);
    count_refused(s, m);
}

static void on_status(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload, size_t len)
{
    struct call *c = data;
    struct shim *s = c->shim;
    struct shims *x = s->all;
    Glovebox__Shim__V1__StatusResponse *m =
        code == TTRPC_OK ? glovebox__shim__v1__status_response__unpack(NULL, len, payload) : NULL;

    if (!m)
        log_debug("a shim does not tell its status", "id=%s why=%s", s->id, text);
    end_call(c);
    if (m) {
        take_status(s, m);
        glovebox__shim__v1__status_response__free_unpacked(m, NULL);
        x->changed(x->data, s);
    }
    scan_answered(x);
}

/* ---- the folder ---- */

static struct shim *find_by_id(struct shims *x, const char *id)
{
    LIST_FOREACH(n, &x->list)
    {
        struct shim *s = LIST_ENTRY(n, struct shim, node);
        if (strcmp(s->id, id) == 0)
            return s;
    }
    return NULL;
}

static void see(struct shims *x, const char *file)
{
    size_t n = strlen(file);

    if (n <= strlen(SUFFIX) || strcmp(file + n - strlen(SUFFIX), SUFFIX) != 0 || file[0] == '.')
        return;
    scoped_free char *id = xstrndup(file, n - strlen(SUFFIX));
    struct shim *s = find_by_id(x, id);
    if (!s) {
        s = xcalloc(1, sizeof *s);
        s->all = x;
        s->id = take(id);
        s->refused = map_new();
        list_append(&x->list, &s->node);
        x->n++;
    }
    s->seen = true;
}

static void read_folder(struct shims *x)
{
    DIR *d = opendir(x->folder);
    struct dirent *entry;

    LIST_FOREACH(n, &x->list)
    LIST_ENTRY(n, struct shim, node)->seen = false;
    while (d && (entry = readdir(d)))
        see(x, entry->d_name);
    if (d)
        (void)closedir(d);
    LIST_FOREACH(n, &x->list)
    {
        struct shim *s = LIST_ENTRY(n, struct shim, node);
        /* With a call in flight its answer comes first, even if it is only that the shim is gone. */
        if (!s->seen && !s->action.client && !s->status.client)
            shim_free(s);
    }
}

/* 1: there was nothing to wait for. */
static int ask(struct shims *x, struct shim *s)
{
    struct err e = {0};

    if (s->status.client)
        return 0;
    if (call(s, &s->status, "Status", STATUS_TIMEOUT_MS, on_status, &e) < 0) {
        log_debug("a shim is not there", "id=%s why=%s", s->id, err_text(&e));
        return 1;
    }
    x->scanning++;
    return 0;
}

static void begin_scan(struct shims *x)
{
    x->begun++;
    x->again = false;
    x->scanning = 1; /* ourselves, until all are asked */
    read_folder(x);
    LIST_FOREACH(n, &x->list)
    {
        struct shim *s = LIST_ENTRY(n, struct shim, node);
        if (ask(x, s) == 1 && !s->action.client)
            shim_free(s); /* a killed shim's name */
    }
    scan_answered(x);
}

static void scan_answered(struct shims *x)
{
    if (x->scanning == 0 || --x->scanning > 0)
        return;
    x->done = x->begun;
    if (x->again)
        begin_scan(x);
    else
        x->changed(x->data, NULL);
}

uint64_t shims_scan(struct shims *x)
{
    if (x->done == x->begun) {
        begin_scan(x);
        return x->begun;
    }
    x->again = true;
    return x->begun + 1;
}

uint64_t shims_scanned(const struct shims *x)
{
    return x->done;
}

size_t shims_count(const struct shims *x)
{
    return x->n;
}

struct shim *shims_find(struct shims *x, const char *const *container_ids, size_t n)
{
    LIST_FOREACH(k, &x->list)
    {
        struct shim *s = LIST_ENTRY(k, struct shim, node);
        for (size_t i = 0; i < n; i++)
            if (shim_has(s, container_ids[i]))
                return s;
    }
    return NULL;
}

static void on_retry(void *data);

/* The folder appears with the first pod; until then its name is looked for from time to time. */
static void watch_folder(struct shims *x)
{
    int wd = inotify_add_watch(x->inotify, x->folder,
                               IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR);

    source_arm(x->retry, wd < 0 ? FOLDER_RETRY_MS : -1);
    if (wd >= 0)
        shims_scan(x);
}

static void on_retry(void *data)
{
    watch_folder(data);
}

static void on_inotify(void *data, uint32_t events)
{
    struct shims *x = data;
    char buf[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
    bool gone = false, news = false;

    (void)events;
    for (ssize_t n; (n = read(x->inotify, buf, sizeof buf)) > 0;)
        for (char *p = buf; p < buf + n;) {
            const struct inotify_event *ev = (const struct inotify_event *)(void *)p;
            gone |= (ev->mask & (IN_DELETE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0;
            news |= (ev->mask & (IN_CREATE | IN_MOVED_TO | IN_Q_OVERFLOW)) != 0;
            p += sizeof *ev + ev->len;
        }
    if (gone)
        source_arm(x->retry, 0);
    else if (news)
        shims_scan(x);
    else
        read_folder(x);
}

/* ---- pause and resume ---- */

static int errno_of(enum ttrpc_code code)
{
    return code == TTRPC_UNIMPLEMENTED ? -ENOSYS : ttrpc_code_to_errno(code);
}

static void on_action(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload, size_t len)
{
    struct call *c = data;
    struct shim_result r = {.code = errno_of(code), .text = text, .took_ms = clock_mono_ms() - c->started_ms};
    shim_fn fn = c->fn;
    void *fn_data = c->data;

    if (code == TTRPC_OK && !c->resume) {
        Glovebox__Shim__V1__PauseResponse *m = glovebox__shim__v1__pause_response__unpack(NULL, len, payload);
        if (m) {
            r.memory_before = m->memory_before;
            r.memory_after = m->memory_after;
            glovebox__shim__v1__pause_response__free_unpacked(m, NULL);
        } else {
            r.code = -EBADMSG;
            r.text = "the shim's answer is not valid";
        }
    }
    if (r.code == 0)
        c->shim->paused = !c->resume;
    scoped_free char *copy = xstrdup(r.text ? r.text : ""); /* it may belong to the connection */
    r.text = copy;
    end_call(c);
    if (fn)
        fn(fn_data, &r);
}

static int act(struct shim *s, bool resume, int64_t timeout_ms, shim_fn fn, void *data)
{
    struct err e = {0};

    if (s->action.client)
        return -EBUSY;
    s->action = (struct call){.resume = resume, .fn = fn, .data = data};
    return call(s, &s->action, resume ? "Resume" : "Pause", timeout_ms, on_action, &e);
}

int shim_pause(struct shim *s, int64_t timeout_ms, shim_fn fn, void *data)
{
    return act(s, false, timeout_ms, fn, data);
}

int shim_resume(struct shim *s, int64_t timeout_ms, shim_fn fn, void *data)
{
    return act(s, true, timeout_ms, fn, data);
}

static void on_egress(void *data, enum ttrpc_code code, const char *text, const uint8_t *payload, size_t len)
{
    struct call *c = data;
    scoped_free char *copy = xstrdup(text ? text : "");
    const struct shim_result r = {
        .code = errno_of(code), .text = copy, .took_ms = clock_mono_ms() - c->started_ms};
    shim_fn fn = c->fn;
    void *fn_data = c->data;

    (void)payload;
    (void)len;
    end_call(c);
    fn(fn_data, &r);
}

int shim_egress(struct shim *s, const char *policy, int64_t timeout_ms, shim_fn fn, void *data)
{
    Glovebox__Shim__V1__SetEgressRequest m;
    struct err e = {0};

    if (s->egress.client)
        return -EBUSY;
    glovebox__shim__v1__set_egress_request__init(&m);
    m.policy = (char *)(uintptr_t)(policy ? policy : "");
    m.confirm = !policy;
    size_t len = glovebox__shim__v1__set_egress_request__get_packed_size(&m);
    scoped_free uint8_t *packed = xcalloc(1, len);
    glovebox__shim__v1__set_egress_request__pack(&m, packed);
    s->egress = (struct call){.fn = fn, .data = data};
    const struct ttrpc_request q = {
        .method = "SetEgress", .timeout_ms = timeout_ms, .payload = packed, .len = len};
    return call_with(s, &s->egress, &q, on_egress, &e);
}

void shim_forget_call(struct shim *s)
{
    s->action.fn = NULL;
}

/* ---- life ---- */

int shims_new(struct loop *loop, const char *folder, void (*changed)(void *data, struct shim *s), void *data,
              struct shims **ret, struct err *e)
{
    scoped(shims_free) struct shims *x = xcalloc(1, sizeof *x);

    x->loop = loop;
    x->changed = changed;
    x->data = data;
    x->folder = xstrdup(folder);
    x->refused = map_new();
    list_init(&x->list);
    x->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (x->inotify < 0)
        return err_sys(e, "inotify_init1");
    int r = loop_add_fd(loop, x->inotify, EPOLLIN, on_inotify, x, &x->source);
    if (r == 0)
        r = loop_add_timer(loop, 0, on_retry, x, &x->retry);
    if (r < 0)
        return err_set(e, r, "watch %s", folder);
    *ret = take(x);
    return 0;
}

void shims_free(struct shims *x)
{
    if (!x)
        return;
    x->scanning = 0;
    LIST_FOREACH(n, &x->list)
    shim_free(LIST_ENTRY(n, struct shim, node));
    source_free(x->source);
    source_free(x->retry);
    fd_close(x->inotify);
    counters_free(x->refused);
    free(x->folder);
    free(x);
}
