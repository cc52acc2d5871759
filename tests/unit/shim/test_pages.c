#include "unit.h"

#include "shim/hibernate/pages.h"

#define AT(n) (0x100000ULL + (n) * (uint64_t)PAGE_BYTES)

static void a_page_is_found_until_it_is_taken(void **state)
{
    struct pages p = {0};

    (void)state;
    pages_add(&p, AT(0), 0, 64);
    pages_add(&p, AT(64), 64 * PAGE_BYTES, 3);
    pages_add(&p, AT(70), 67 * PAGE_BYTES, 1);
    assert_int_equal(p.left, 68);
    assert_non_null(pages_find(&p, AT(63)));
    assert_non_null(pages_find(&p, AT(66)));
    assert_null(pages_find(&p, AT(67)));
    assert_null(pages_find(&p, AT(69)));
    struct page_run *r = pages_find(&p, AT(70) + 5 * 0);
    assert_non_null(r);
    pages_take(&p, r, 0, 1);
    assert_null(pages_find(&p, AT(70)));
    assert_int_equal(p.left, 67);
    pages_done(&p);
}

static void a_short_run_does_not_hide_its_neighbour(void **state)
{
    struct pages p = {0};

    (void)state;
    pages_add(&p, AT(0), 0, 1); /* its 64 nominal pages cover the next run's */
    pages_add(&p, AT(2), PAGE_BYTES, 5);
    assert_ptr_equal(pages_find(&p, AT(4)), &p.runs[1]);
    pages_cut(&p, AT(3), AT(4));
    assert_null(pages_find(&p, AT(3)));
    assert_int_equal(p.left, 5);
    assert_int_equal(run_length(&p.runs[1], 0), 1);
    assert_int_equal(run_length(&p.runs[1], 2), 3);
    pages_done(&p);
}

static void cutting_a_range_forgets_exactly_its_pages(void **state)
{
    static const struct {
        uint64_t start, end, left;
    } cases[] = {{0, 128, 0}, {0, 1, 127}, {10, 20, 118}, {60, 70, 118}, {127, 200, 127}, {128, 200, 128}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pages p = {0};
        pages_add(&p, AT(0), 0, 64);
        pages_add(&p, AT(64), 64 * PAGE_BYTES, 64);
        pages_cut(&p, AT(cases[i].start), AT(cases[i].end));
        assert_int_equal(p.left, cases[i].left);
        for (uint64_t n = 0; n < 128; n++)
            assert_int_equal(pages_find(&p, AT(n)) == NULL, n >= cases[i].start && n < cases[i].end);
        pages_done(&p);
    }
}

static void a_moved_range_is_found_at_its_new_place_with_its_old_content(void **state)
{
    struct pages p = {0};

    (void)state;
    pages_add(&p, AT(0), 0, 64);
    pages_add(&p, AT(200), 64 * PAGE_BYTES, 10);
    pages_move(&p, AT(10), AT(198), 5 * PAGE_BYTES); /* overwrites pages 200..202 there */
    assert_null(pages_find(&p, AT(10)));
    assert_null(pages_find(&p, AT(14)));
    assert_non_null(pages_find(&p, AT(15)));
    struct page_run *r = pages_find(&p, AT(199));
    assert_non_null(r);
    assert_int_equal(r->offset + (AT(199) - r->addr), 11 * PAGE_BYTES);
    r = pages_find(&p, AT(203));
    assert_int_equal(r->offset + (AT(203) - r->addr), 67 * PAGE_BYTES);
    assert_int_equal(p.left, 64 - 5 + 5 + 10 - 3);
    pages_done(&p);
}

static void prefetch_visits_every_page_once(void **state)
{
    struct pages p = {0};
    unsigned taken = 0;

    (void)state;
    for (uint64_t i = 0; i < 20; i++)
        pages_add(&p, AT(i * 100), i * 64 * PAGE_BYTES, (unsigned)(i + 1));
    p.cursor = 7;
    for (struct page_run *r; (r = pages_next(&p));) {
        unsigned first = (unsigned)__builtin_ctzll(r->left), n = run_length(r, first);
        pages_take(&p, r, first, n);
        taken += n;
    }
    assert_int_equal(taken, 210);
    assert_int_equal(p.left, 0);
    pages_done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_found_until_it_is_taken),
        cmocka_unit_test(a_short_run_does_not_hide_its_neighbour),
        cmocka_unit_test(cutting_a_range_forgets_exactly_its_pages),
        cmocka_unit_test(a_moved_range_is_found_at_its_new_place_with_its_old_content),
        cmocka_unit_test(prefetch_visits_every_page_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
