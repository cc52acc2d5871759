#include "unit.h"

#include <errno.h>
#include <stdlib.h>

#include "controller/install/containerd.h"

#define V2 "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.glovebox]\n"
#define V3 "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.glovebox]\n"

static void an_entry_is_added_once_and_removed_without_a_trace(void **state)
{
    static const struct {
        const char *text, *table;
    } files[] = {
        {"version = 2\n", V2},
        {"version = 2", V2},
        {"# mine\nversion=2\nroot = \"/x\"\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = "
         "\"p\"\n",
         V2},
        {"version = 3\n[plugins]\n", V3},
        {"version = 3\nimports = [\"/etc/other/*.toml\"]\n", V3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct containerd_plan once, twice, gone;

        assert_int_equal(containerd_add(files[i].text, NULL, "glovebox", NULL, &once, NULL), 0);
        assert_non_null(once.config);
        assert_null(once.drop_in);
        assert_non_null(strstr(once.config, files[i].table));
        assert_memory_equal(once.config, files[i].text, strlen(files[i].text));
        assert_int_equal(containerd_add(once.config, NULL, "glovebox", NULL, &twice, NULL), 0);
        assert_null(twice.config);
        assert_int_equal(containerd_remove(once.config, NULL, &gone, NULL), 0);
        /* A file without a newline at its end has got one; nothing else differs. */
        assert_memory_equal(gone.config, files[i].text, strlen(files[i].text));
        assert_true(strlen(gone.config) <= strlen(files[i].text) + 1);
        containerd_plan_done(&once);
        containerd_plan_done(&gone);
    }
}

static void a_missing_or_empty_file_is_made(void **state)
{
    static const char *const files[] = {NULL, "", "# only a comment\n\n"};
    struct containerd_plan p;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_int_equal(containerd_add(files[i], NULL, "glovebox", NULL, &p, NULL), 0);
        assert_memory_equal(p.config, "version = 2\n", 12);
        assert_non_null(strstr(p.config, V2));
        containerd_plan_done(&p);
    }
}

static void a_folder_of_drop_ins_is_used_when_it_is_imported(void **state)
{
    static const char text[] =
        "version = 3\nimports = ['/a.toml', \"/etc/containerd/conf.d/*.toml\"]\n[plugins]\n";
    struct containerd_plan p, again;

    (void)state;
    assert_int_equal(containerd_add(text, NULL, "glovebox", "/opt/x", &p, NULL), 0);
    assert_null(p.config);
    assert_memory_equal(p.drop_in, "version = 3\n", 12);
    assert_non_null(strstr(p.drop_in, "runtime_path = \"/opt/x\"\n"));
    assert_int_equal(containerd_add(text, p.drop_in, "glovebox", "/opt/x", &again, NULL), 0);
    assert_null(again.config);
    assert_null(again.drop_in);
    assert_int_equal(containerd_remove(text, p.drop_in, &again, NULL), 0);
    assert_null(again.config);
    assert_string_equal(again.drop_in, "");
    containerd_plan_done(&again);
    containerd_plan_done(&p);
}

static void what_others_wrote_is_left_and_what_is_too_old_is_refused(void **state)
{
    struct containerd_plan p;
    struct err e = {0};

    (void)state;
    assert_int_equal(
        containerd_add("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.glovebox]\n  "
                       "runtime_type = \"mine\"\n",
                       NULL, "glovebox", NULL, &p, NULL),
        0);
    assert_null(p.config);
    assert_int_equal(containerd_add("[plugins.cri]\n", NULL, "glovebox", NULL, &p, &e), -EINVAL);
    assert_non_null(strstr(e.text, "containerd config migrate"));
    assert_int_equal(containerd_add("version = 1\n", NULL, "glovebox", NULL, &p, &e), -EINVAL);
    /* "version" of a plugin is not the file's. */
    assert_int_equal(containerd_add("[plugins.x]\nversion = 3\n", NULL, "glovebox", NULL, &p, &e), -EINVAL);
    assert_null(p.config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_added_once_and_removed_without_a_trace),
        cmocka_unit_test(a_missing_or_empty_file_is_made),
        cmocka_unit_test(a_folder_of_drop_ins_is_used_when_it_is_imported),
        cmocka_unit_test(what_others_wrote_is_left_and_what_is_too_old_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
