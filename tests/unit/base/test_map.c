#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"

static int one = 1, two = 2;

static void put_get_replace_remove(void **state)
{
    (void)state;
    struct map *m = map_new();

    assert_null(map_get(m, "a"));
    assert_null(map_put(m, "a", &one));
    assert_ptr_equal(map_get(m, "a"), &one);
    assert_ptr_equal(map_put(m, "a", &two), &one);
    assert_int_equal(map_count(m), 1);
    assert_ptr_equal(map_remove(m, "a"), &two);
    assert_null(map_remove(m, "a"));
    assert_null(map_get(m, "a"));
    assert_int_equal(map_count(m), 0);
    map_free(m);
    map_free(NULL);
}

static void keys_are_copied_and_may_be_empty(void **state)
{
    (void)state;
    struct map *m = map_new();
    char key[] = "key";

    (void)map_put(m, key, &one);
    key[0] = 'K';
    assert_ptr_equal(map_get(m, "key"), &one);
    assert_null(map_get(m, key));
    (void)map_put(m, "", &two);
    assert_ptr_equal(map_get(m, ""), &two);
    map_free(m);
}

/* A model beside the map: whatever the order of operations, both must agree. */
static void it_agrees_with_a_plain_array_over_random_operations(void **state)
{
    (void)state;
    enum { KEYS = 200, STEPS = 50000 };
    static int values[KEYS];
    bool there[KEYS] = {false};
    size_t count = 0;
    struct map *m = map_new();

    srand(1);
    for (int i = 0; i < STEPS; i++) {
        int k = rand() % KEYS;
        char key[16];
        (void)snprintf(key, sizeof key, "k%d", k);
        if (rand() % 2) {
            assert_ptr_equal(map_put(m, key, &values[k]), there[k] ? &values[k] : NULL);
            count += !there[k];
            there[k] = true;
        } else {
            assert_ptr_equal(map_remove(m, key), there[k] ? &values[k] : NULL);
            count -= there[k];
            there[k] = false;
        }
        assert_int_equal(map_count(m), count);
    }
    size_t cursor = 0, seen = 0;
    const char *key;
    void *value;
    while (map_next(m, &cursor, &key, &value)) {
        assert_true(there[atoi(key + 1)]);
        assert_ptr_equal(value, &values[atoi(key + 1)]);
        seen++;
    }
    assert_int_equal(seen, count);
    map_free(m);
}

static void the_current_key_may_go_during_iteration(void **state)
{
    (void)state;
    struct map *m = map_new();
    size_t cursor = 0, seen = 0;
    const char *key;

    for (int i = 0; i < 100; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        (void)map_put(m, name, &one);
    }
    while (map_next(m, &cursor, &key, NULL)) {
        char copy[16];
        (void)snprintf(copy, sizeof copy, "%s", key);
        (void)map_remove(m, copy);
        seen++;
    }
    assert_int_equal(seen, 100);
    assert_int_equal(map_count(m), 0);
    map_free(m);
}

static void churn_does_not_make_searches_endless(void **state)
{
    (void)state;
    struct map *m = map_new();

    for (int i = 0; i < 100000; i++) { /* every slot has been used and given up many times */
        char name[16];
        (void)snprintf(name, sizeof name, "%d", i);
        (void)map_put(m, name, &one);
        assert_ptr_equal(map_remove(m, name), &one);
    }
    assert_null(map_get(m, "absent"));
    map_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put_get_replace_remove),
        cmocka_unit_test(keys_are_copied_and_may_be_empty),
        cmocka_unit_test(it_agrees_with_a_plain_array_over_random_operations),
        cmocka_unit_test(the_current_key_may_go_during_iteration),
        cmocka_unit_test(churn_does_not_make_searches_endless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
