#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "controller/core/store_feed.h"
#include "controller/kube/object.h"

static int64_t now_ms = 1000;

int64_t __wrap_clock_mono_ns(void);
int64_t __wrap_clock_mono_ns(void)
{
    return now_ms * 1000000;
}

static const struct kube_resource things = {"g", "v1", "things", "Thing", false};

struct digest {
    int64_t size;
    char flag;
};

static void make_digest(const json_t *o, void *out)
{
    struct digest *d = out;

    d->size = obj_int(o, "spec.size", -1);
    d->flag = obj_label(o, "pool") ? 'p' : '-';
}

static void by_pool(const json_t *o, struct index_values *v)
{
    index_add(v, obj_label(o, "pool"));
}

static void by_tags(const json_t *o, struct index_values *v)
{
    json_t *tag;
    size_t i;

    json_array_foreach(obj_at(o, "spec.tags"), i, tag) index_add(v, json_string_value(tag));
}

static const char *const share[] = {"spec.template", NULL};
static const struct store_kind kind = {.resource = &things,
                                       .share = share,
                                       .index = {{"pool", by_pool}, {"tags", by_tags}},
                                       .digest_size = sizeof(struct digest),
                                       .digest = make_digest};

struct rig {
    struct parsed_cache *cache;
    struct store *store;
    struct strbuf log; /* +name, ~name, -name */
};

static void on_change(void *data, const struct change *c)
{
    struct rig *r = data;
    const struct object *o = c->now ? c->now : c->old;

    strbuf_printf(&r->log, "%c%s ", c->old ? (c->now ? '~' : '-') : '+', object_name(o));
    if (c->old)
        assert_non_null(object_json(c->old)); /* readable while it goes */
}

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    if (!r)
        return -1;
    r->cache = parsed_cache_new(4);
    r->store = store_new(&kind, r->cache, on_change, r);
    strbuf_init(&r->log, 1 << 20);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;

    store_free(r->store);
    parsed_cache_free(r->cache);
    strbuf_done(&r->log);
    free(r);
    return 0;
}

/* spec may be NULL. */
static json_t *thing(const char *name, const char *uid, int version, const char *pool, json_t *spec)
{
    scoped_free char *v = xasprintf("%d", version);
    json_t *o = json_pack("{s:s,s:{s:s,s:s,s:s,s:s,s:[{}]}}", "kind", "Thing", "metadata", "name", name,
                          "namespace", "n", "uid", uid, "resourceVersion", v, "managedFields");

    if (pool)
        obj_set(o, "metadata.labels.pool", json_string(pool));
    if (spec)
        json_object_set_new(o, "spec", spec);
    return o;
}

static void put(struct rig *r, json_t *o)
{
    assert_true(store_put(r->store, o));
    json_decref(o);
    parsed_trim(r->cache);
}

static json_t *size(int n)
{
    return json_pack("{s:i}", "size", n);
}

static void what_is_put_can_be_read_back(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, "p", size(3)));
    const struct object *o = store_get(r->store, "n", "a");
    assert_non_null(o);
    assert_string_equal(object_uid(o), "u1");
    assert_int_equal(object_version(o), 5);
    assert_int_equal(((const struct digest *)object_digest(o))->size, 3);
    assert_int_equal(((const struct digest *)object_digest(o))->flag, 'p');
    const json_t *j = object_json(o);
    assert_string_equal(obj_name(j), "a");
    assert_string_equal(obj_ns(j), "n");
    assert_string_equal(obj_version(j), "5");
    assert_string_equal(obj_label(j, "pool"), "p");
    assert_int_equal(obj_int(j, "spec.size", 0), 3);
    assert_null(obj_at(j, "metadata.managedFields"));
    assert_null(store_get(r->store, "m", "a"));
    assert_null(store_get(r->store, "n", NULL));
    assert_null(store_get_uid(r->store, "n", "a", "u2"));
}

/* The parsed form is dropped in between: what comes from the text must be the same. */
static void an_object_reads_the_same_when_it_is_parsed_again(void **state)
{
    struct rig *r = *state;
    json_t *spec = json_pack("{s:i,s:[s,s],s:{s:s,s:[n,b,f]}}", "size", 1, "tags", "x", "y", "template",
                             "image", "i\xc3\xa9", "more", 1, 1.5);
    scoped(json_decref) json_t *o = thing("a", "u1", 5, "p", spec);
    scoped(json_decref) json_t *want = json_deep_copy(o);

    json_object_del(want, "kind");
    json_object_del(json_object_get(want, "metadata"), "managedFields");
    assert_true(store_put(r->store, o));
    for (int i = 0; i < 10; i++) { /* more than the cache remembers */
        scoped_free char *name = xasprintf("other%d", i);
        put(r, thing(name, name, 6 + i, NULL, NULL));
    }
    const json_t *got = object_json(store_get(r->store, "n", "a"));
    assert_true(json_equal(got, want));
}

static void equal_parts_are_kept_once(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 50; i++) {
        scoped_free char *name = xasprintf("a%d", i);
        put(r, thing(name, name, i + 1, NULL, json_pack("{s:{s:s}}", "template", "image", "same")));
    }
    assert_int_equal(store_shared(r->store), 1);
    put(r, thing("a0", "a0", 100, NULL, json_pack("{s:{s:s}}", "template", "image", "other")));
    assert_int_equal(store_shared(r->store), 2);
    assert_string_equal(obj_str(object_json(store_get(r->store, "n", "a7")), "spec.template.image"), "same");
    assert_string_equal(obj_str(object_json(store_get(r->store, "n", "a0")), "spec.template.image"), "other");
    for (int i = 0; i < 50; i++) {
        scoped_free char *name = xasprintf("a%d", i);
        scoped(json_decref) json_t *o = thing(name, name, 200, NULL, NULL);
        store_gone(r->store, o);
    }
    assert_int_equal(store_shared(r->store), 0);
    assert_int_equal(store_bytes(r->store), 0);
}

static void changes_are_told_once_and_stale_ones_never(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, size(1)));
    put(r, thing("a", "u1", 5, NULL, size(1))); /* our own write, seen again by the watch */
    put(r, thing("a", "u1", 4, NULL, size(0))); /* older */
    put(r, thing("a", "u1", 6, NULL, size(1))); /* only the version is new */
    put(r, thing("a", "u1", 7, NULL, size(2)));
    assert_string_equal(r->log.data, "+a ~a ");
    assert_int_equal(object_version(store_get(r->store, "n", "a")), 7);
    assert_int_equal(obj_int(object_json(store_get(r->store, "n", "a")), "spec.size", 0), 2);
}

static void a_version_that_changed_alone_is_what_the_next_patch_carries(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, size(1)));
    assert_string_equal(obj_version(object_json(store_get(r->store, "n", "a"))), "5");
    put(r, thing("a", "u1", 6, NULL, size(1)));
    assert_string_equal(obj_version(object_json(store_get(r->store, "n", "a"))), "6");
}

static void a_new_object_by_the_same_name_is_a_deletion_and_an_addition(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, NULL));
    put(r, thing("a", "u2", 9, NULL, NULL));
    assert_string_equal(r->log.data, "+a -a +a ");
    scoped(json_decref) json_t *old = thing("a", "u1", 8, NULL, NULL);
    store_gone(r->store, old); /* the first one's DELETED event comes late */
    assert_string_equal(object_uid(store_get(r->store, "n", "a")), "u2");
    put(r, thing("a", "u1", 7, NULL, NULL)); /* and even an older state of it */
    assert_string_equal(object_uid(store_get(r->store, "n", "a")), "u2");
}

static void what_we_deleted_does_not_come_back_by_late_events(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, NULL));
    store_deleted_by_us(r->store, "n", "a", "u1");
    put(r, thing("a", "u1", 6, NULL, size(1)));
    assert_null(store_get(r->store, "n", "a"));
    put(r, thing("a", "u2", 9, NULL, NULL)); /* made again: another object */
    assert_non_null(store_get(r->store, "n", "a"));
    assert_string_equal(r->log.data, "+a -a +a ");
}

static void a_list_removes_what_it_does_not_show_but_nothing_newer(void **state)
{
    struct rig *r = *state;

    put(r, thing("old", "u1", 5, NULL, NULL));
    put(r, thing("kept", "u2", 6, NULL, NULL));
    store_list_begin(r->store);
    put(r, thing("kept", "u2", 6, NULL, NULL));
    put(r,
        thing("ours", "u3", 12, NULL, NULL)); /* created by us while the list of version 10 was on its way */
    store_list_end(r->store, 10, false);
    assert_null(store_get(r->store, "n", "old"));
    assert_non_null(store_get(r->store, "n", "kept"));
    assert_true(store_is_synced(r->store));
    store_list_begin(r->store);
    put(r, thing("kept", "u2", 6, NULL, NULL));
    store_list_end(r->store, 15, false);
    assert_null(store_get(r->store, "n", "ours"));
}

static void a_list_that_was_cut_off_removes_nothing(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, NULL));
    put(r, thing("b", "u2", 6, NULL, NULL));
    store_list_begin(r->store);
    put(r, thing("a", "u1", 5, NULL, NULL));
    store_list_begin(r->store); /* from the beginning */
    put(r, thing("b", "u2", 6, NULL, NULL));
    put(r, thing("a", "u1", 5, NULL, NULL));
    store_list_end(r->store, 10, false);
    assert_int_equal(store_count(r->store), 2);
}

static void versions_that_go_backwards_are_believed_after_a_rewind(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 500, NULL, size(9)));
    put(r, thing("b", "u2", 501, NULL, NULL));
    store_list_begin(r->store); /* etcd was restored from a copy */
    put(r, thing("a", "u1", 50, NULL, size(1)));
    store_list_end(r->store, 60, true);
    assert_null(store_get(r->store, "n", "b"));
    store_list_begin(r->store);
    put(r, thing("a", "u1", 50, NULL, size(1)));
    store_list_end(r->store, 60, false);
    assert_int_equal(obj_int(object_json(store_get(r->store, "n", "a")), "spec.size", 0), 1);
}

static void tombstones_run_out(void **state)
{
    struct rig *r = *state;

    put(r, thing("a", "u1", 5, NULL, NULL));
    store_deleted_by_us(r->store, "n", "a", "u1");
    now_ms += 299000;
    put(r, thing("a", "u1", 6, NULL, NULL));
    assert_null(store_get(r->store, "n", "a"));
    now_ms += 2000;
    put(r, thing("a", "u1", 7, NULL, NULL));
    assert_non_null(store_get(r->store, "n", "a"));
}

static void what_is_no_object_is_refused(void **state)
{
    struct rig *r = *state;
    static const char *const bad[] = {"{}", "{\"metadata\":1}", "{\"metadata\":{\"name\":\"a\"}}",
                                      "{\"metadata\":{\"uid\":\"u\",\"name\":5}}"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        scoped(json_decref) json_t *o = json_loads(bad[i], 0, NULL);
        assert_false(store_put(r->store, o));
        store_gone(r->store, o);
    }
    char name[4000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    scoped(json_decref) json_t *o = thing(name, "u", 1, NULL, NULL);
    assert_false(store_put(r->store, o));
    assert_int_equal(store_count(r->store), 0);
}

/* ---- against a model ---- */

enum { NAMES = 12, POOLS = 3, TAGS = 4 };
struct model {
    bool there;
    int uid, version, pool, tags; /* tags: bits */
};

static void check_index(struct rig *r, const struct model *m, int index, const char *value,
                        bool (*in)(const struct model *, int), int which)
{
    struct index_cursor c;
    size_t want = 0, got = 0;

    for (int i = 0; i < NAMES; i++)
        want += m[i].there && in(&m[i], which);
    for (const struct object *o = store_index_first(r->store, index, value, &c); o;
         o = store_index_next(&c)) {
        int i = atoi(object_name(o) + 1);
        assert_true(m[i].there && in(&m[i], which));
        got++;
    }
    assert_int_equal(got, want);
    assert_int_equal(store_index_count(r->store, index, value), want);
}

static bool in_pool(const struct model *m, int pool)
{
    return m->pool == pool;
}

static bool has_tag(const struct model *m, int tag)
{
    return m->tags >> tag & 1;
}

static void check(struct rig *r, const struct model *m)
{
    size_t want = 0, got = 0;
    char text[16];

    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(text, sizeof text, "k%d", i);
        const struct object *o = store_get(r->store, "n", text);
        assert_int_equal(o != NULL, m[i].there);
        if (o)
            assert_int_equal(object_version(o), m[i].version);
        want += m[i].there;
    }
    for (const struct object *o = NULL; (o = store_next(r->store, o));)
        got++;
    assert_int_equal(got, want);
    assert_int_equal(store_count(r->store), want);
    for (int p = 0; p < POOLS; p++) {
        (void)snprintf(text, sizeof text, "p%d", p);
        check_index(r, m, 0, text, in_pool, p);
    }
    for (int t = 0; t < TAGS; t++) {
        (void)snprintf(text, sizeof text, "t%d", t);
        check_index(r, m, 1, text, has_tag, t);
    }
}

static json_t *from_model(const struct model *m, int i)
{
    char name[16], uid[16], pool[16], tag[16];
    json_t *tags = json_array();

    (void)snprintf(name, sizeof name, "k%d", i);
    (void)snprintf(uid, sizeof uid, "u%d", m->uid);
    (void)snprintf(pool, sizeof pool, "p%d", m->pool);
    for (int t = 0; t < TAGS; t++)
        if (m->tags >> t & 1) {
            (void)snprintf(tag, sizeof tag, "t%d", t);
            json_array_append_new(tags, json_string(tag));
            json_array_append_new(tags, json_string(tag)); /* a duplicate counts once */
        }
    return thing(name, uid, m->version, m->pool < POOLS ? pool : NULL, json_pack("{s:o}", "tags", tags));
}

static void random_histories_keep_table_and_indexes_in_step(void **state)
{
    struct rig *r = *state;
    struct model m[NAMES] = {0};
    unsigned int seed = 3;
    int version = 0, uids = 0;

    for (int n = 0; n < 5000; n++) {
        int i = rand_r(&seed) % NAMES;
        struct model before = m[i];
        if (rand_r(&seed) % 4 == 0 && m[i].there) {
            scoped(json_decref) json_t *o = from_model(&m[i], i);
            m[i].there = false;
            if (rand_r(&seed) % 2) {
                char name[16], uid[16];
                (void)snprintf(name, sizeof name, "k%d", i);
                (void)snprintf(uid, sizeof uid, "u%d", m[i].uid);
                store_deleted_by_us(r->store, "n", name, uid);
                put(r, from_model(&before, i)); /* a late event */
            } else {
                store_gone(r->store, o);
            }
        } else {
            m[i] = (struct model){.there = true,
                                  .uid = before.there && rand_r(&seed) % 8 ? before.uid : ++uids,
                                  .version = ++version,
                                  .pool = rand_r(&seed) % (POOLS + 1),
                                  .tags = rand_r(&seed) % (1 << TAGS)};
            put(r, from_model(&m[i], i));
            if (before.there && rand_r(&seed) % 3 == 0)
                put(r, from_model(&before, i)); /* stale */
        }
        check(r, m);
        strbuf_reset(&r->log);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_put_can_be_read_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_object_reads_the_same_when_it_is_parsed_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(equal_parts_are_kept_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes_are_told_once_and_stale_ones_never, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_version_that_changed_alone_is_what_the_next_patch_carries, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_new_object_by_the_same_name_is_a_deletion_and_an_addition, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(what_we_deleted_does_not_come_back_by_late_events, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_removes_what_it_does_not_show_but_nothing_newer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_list_that_was_cut_off_removes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(versions_that_go_backwards_are_believed_after_a_rewind, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tombstones_run_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_object_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(random_histories_keep_table_and_indexes_in_step, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
