#include "unit.h"

#include "base/list.h"

struct item {
    int n;
    struct list node;
};

static int sum(struct list *head)
{
    int total = 0;

    LIST_FOREACH(at, head)
    total = total * 10 + LIST_ENTRY(at, struct item, node)->n;
    return total;
}

static void items_keep_their_order(void **state)
{
    (void)state;
    struct list head = LIST_INIT(head);
    struct item a = {1, LIST_INIT(a.node)}, b = {2, LIST_INIT(b.node)}, c = {3, LIST_INIT(c.node)};

    assert_true(list_is_empty(&head));
    list_append(&head, &a.node);
    list_append(&head, &b.node);
    list_append(&head, &c.node);
    assert_int_equal(sum(&head), 123);
    list_remove(&b.node);
    assert_int_equal(sum(&head), 13);
    list_append(&head, &b.node);
    assert_int_equal(sum(&head), 132);
}

static void removing_twice_is_harmless(void **state)
{
    (void)state;
    struct list head = LIST_INIT(head);
    struct item a = {1, LIST_INIT(a.node)}, b = {2, LIST_INIT(b.node)};

    list_append(&head, &a.node);
    list_append(&head, &b.node);
    list_remove(&a.node);
    list_remove(&a.node);
    assert_int_equal(sum(&head), 2);
    list_remove(&b.node);
    assert_true(list_is_empty(&head));
}

static void the_current_item_may_go_in_a_walk(void **state)
{
    (void)state;
    struct list head = LIST_INIT(head);
    struct item items[5];
    int seen = 0;

    for (int i = 0; i < 5; i++) {
        items[i].n = i;
        list_append(&head, &items[i].node);
    }
    LIST_FOREACH(at, &head)
    {
        if (LIST_ENTRY(at, struct item, node)->n % 2 == 0)
            list_remove(at);
        seen++;
    }
    assert_int_equal(seen, 5);
    assert_int_equal(sum(&head), 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_keep_their_order),
        cmocka_unit_test(removing_twice_is_harmless),
        cmocka_unit_test(the_current_item_may_go_in_a_walk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
