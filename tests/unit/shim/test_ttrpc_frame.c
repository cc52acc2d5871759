#include "tests/unit/shim/unit.h"

#include <errno.h>
#include <stdlib.h>

#include "base/scoped.h"
#include "forward.pb-c.h"
#include "runtimeoptions.pb-c.h"
#include "shim/ttrpc/code.h"
#include "shim/ttrpc/frame.h"
#include "shim/ttrpc/text.h"
#include "task.pb-c.h"
#include "ttrpc.pb-c.h"

/* ---- bytes seen between containerd 1.6.20 and its own shim ---- */

static void a_connect_request_is_the_bytes_containerd_sends(void **state UNUSED)
{
    uint8_t want[128], got[128];
    size_t n = unhex("00000028 00000003 0100"
                     "0a17636f6e7461696e6572642e7461736b2e76322e5461736b1207436f6e6e6563741a040a027432",
                     want, sizeof want);
    struct ttrpc_frame f = {.len = 0x28, .stream = 3, .type = TTRPC_REQUEST};
    Containerd__Task__V2__ConnectRequest inner = CONTAINERD__TASK__V2__CONNECT_REQUEST__INIT;
    Ttrpc__Request q = TTRPC__REQUEST__INIT;
    uint8_t payload[16];

    inner.id = (char *)(uintptr_t) "t2";
    q.service = (char *)(uintptr_t) "containerd.task.v2.Task";
    q.method = (char *)(uintptr_t) "Connect";
    q.payload.data = payload;
    q.payload.len = containerd__task__v2__connect_request__pack(&inner, payload);
    ttrpc_frame_encode(&f, got);
    size_t len = TTRPC_HEADER + ttrpc__request__pack(&q, got + TTRPC_HEADER);
    assert_int_equal(len, n);
    assert_memory_equal(got, want, n);
    f = ttrpc_frame_decode(want);
    assert_int_equal(f.len, 0x28);
    assert_int_equal(f.stream, 3);
    assert_int_equal(f.type, TTRPC_REQUEST);
    assert_int_equal(f.flags, 0);
}

static void a_header_keeps_all_its_bits(void **state UNUSED)
{
    uint8_t raw[TTRPC_HEADER] = {0xff, 0xfe, 0xfd, 0xfc, 0x80, 0x01, 0x02, 0x03, 0xab, 0xcd},
            again[TTRPC_HEADER];
    struct ttrpc_frame f = ttrpc_frame_decode(raw);

    assert_int_equal(f.len, 0xfffefdfc);
    assert_int_equal(f.stream, 0x80010203);
    assert_int_equal(f.type, 0xab);
    assert_int_equal(f.flags, 0xcd);
    ttrpc_frame_encode(&f, again);
    assert_memory_equal(raw, again, sizeof raw);
}

/* Packs `inner` as the payload of a response and compares. */
static void check_response(const ProtobufCMessage *inner, const char *hex)
{
    uint8_t want[128], got[128], payload[128];
    size_t n = unhex(hex, want, sizeof want);
    Ttrpc__Response r = TTRPC__RESPONSE__INIT;

    assert_true(protobuf_c_message_get_packed_size(inner) <= sizeof payload);
    r.payload.data = payload;
    r.payload.len = protobuf_c_message_pack(inner, payload);
    assert_int_equal(ttrpc__response__get_packed_size(&r), n);
    (void)ttrpc__response__pack(&r, got);
    assert_memory_equal(got, want, n);
}

static void responses_are_the_bytes_containerd_expects(void **state UNUSED)
{
    Google__Protobuf__Timestamp at = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Containerd__Task__V2__ConnectResponse connect = CONTAINERD__TASK__V2__CONNECT_RESPONSE__INIT;
    Containerd__Task__V2__CreateTaskResponse create = CONTAINERD__TASK__V2__CREATE_TASK_RESPONSE__INIT;
    Containerd__Task__V2__WaitResponse wait = CONTAINERD__TASK__V2__WAIT_RESPONSE__INIT;
    Containerd__Task__V2__DeleteResponse del = CONTAINERD__TASK__V2__DELETE_RESPONSE__INIT;

    connect.shim_pid = 17049;
    connect.task_pid = 17153;
    check_response(&connect.base, "12080899850110818601");
    create.pid = 17153;
    check_response(&create.base, "120408818601");
    at.seconds = 1795954150;
    at.nanos = 918049452;
    wait.exited_at = &at;
    check_response(&wait.base, "120e120c08e6abb0d80610aca5e1b503");
    del.pid = 17153;
    del.exited_at = &at;
    check_response(&del.base, "1212088186011a0c08e6abb0d80610aca5e1b503");
}

static void a_status_is_the_bytes_containerd_expects(void **state UNUSED)
{
    uint8_t want[128], got[128];
    size_t n = unhex("0a270805122370726f6365737320616c72656164792066696e69736865643a206e6f7420666f756e64",
                     want, sizeof want);
    Ttrpc__Status s = TTRPC__STATUS__INIT;
    Ttrpc__Response r = TTRPC__RESPONSE__INIT;

    s.code = TTRPC_NOT_FOUND;
    s.message = (char *)(uintptr_t) "process already finished: not found";
    r.status = &s;
    assert_int_equal(ttrpc__response__pack(&r, got), n);
    assert_memory_equal(got, want, n);
}

static void an_empty_success_has_no_bytes(void **state UNUSED)
{
    Ttrpc__Response r = TTRPC__RESPONSE__INIT;

    assert_int_equal(ttrpc__response__get_packed_size(&r), 0);
}

static void options_on_stdin_are_read(void **state UNUSED)
{
    uint8_t raw[128];
    size_t n = unhex("0a1972756e74696d656f7074696f6e732e76312e4f7074696f6e73"
                     "1210120e2f6574632f6d696e652e746f6d6c",
                     raw, sizeof raw);
    Google__Protobuf__Any *any = google__protobuf__any__unpack(NULL, n, raw);

    assert_non_null(any);
    assert_string_equal(any->type_url, runtimeoptions__v1__options__descriptor.name);
    Runtimeoptions__V1__Options *o =
        runtimeoptions__v1__options__unpack(NULL, any->value.len, any->value.data);
    assert_non_null(o);
    assert_string_equal(o->config_path, "/etc/mine.toml");
    runtimeoptions__v1__options__free_unpacked(o, NULL);
    google__protobuf__any__free_unpacked(any, NULL);
}

/* ---- codes ---- */

static void codes_and_errnos_agree(void **state UNUSED)
{
    static const struct {
        int error;
        enum ttrpc_code code;
    } cases[] = {
        {0, TTRPC_OK},
        {EINVAL, TTRPC_INVALID_ARGUMENT},
        {-ENOENT, TTRPC_NOT_FOUND},
        {-ESRCH, TTRPC_NOT_FOUND},
        {-EEXIST, TTRPC_ALREADY_EXISTS},
        {-EPERM, TTRPC_PERMISSION_DENIED},
        {-ENOSYS, TTRPC_UNIMPLEMENTED},
        {-EBUSY, TTRPC_FAILED_PRECONDITION},
        {-ETIMEDOUT, TTRPC_DEADLINE_EXCEEDED},
        {-EFBIG, TTRPC_RESOURCE_EXHAUSTED},
        {-EL2HLT, TTRPC_UNKNOWN}, /* no row */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(ttrpc_code_from_errno(cases[i].error), cases[i].code);
    for (int code = TTRPC_OK; code <= TTRPC_UNAUTHENTICATED; code++) {
        int error = ttrpc_code_to_errno(code);
        assert_int_equal(ttrpc_code_from_errno(error), code);
        assert_true(code == TTRPC_OK ? error == 0 : error < 0);
        assert_true(strlen(ttrpc_code_text(code)) > 1);
    }
    assert_string_equal(ttrpc_code_text(TTRPC_NOT_FOUND), "not found");
    assert_string_equal(ttrpc_code_text(-1), "unknown");
    assert_string_equal(ttrpc_code_text(17), "unknown");
    assert_int_equal(ttrpc_code_to_errno(99), -EIO);
}

/* ---- texts ---- */

static void text_for_go_is_valid_utf8(void **state UNUSED)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x93\xa6",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x93\xa6"},
        {"a\xff"
         "b",
         "a?b"},
        {"\xc0\xaf", "??"}, /* too long a form of '/' */
        {"\xe0\x80\xaf", "???"},
        {"\xed\xa0\x80", "???"},      /* half a surrogate pair */
        {"\xf4\x90\x80\x80", "????"}, /* above U+10FFFF */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"cut \xe2\x82", "cut ??"},
        {"\xe2", "?"},
        {"\x80", "?"},
        {"\xf0\x9f\x93"
         "x",
         "???x"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        scoped_free char *copy = strdup(cases[i].in);
        ttrpc_text_clean(copy);
        assert_string_equal(copy, cases[i].out);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connect_request_is_the_bytes_containerd_sends),
        cmocka_unit_test(a_header_keeps_all_its_bits),
        cmocka_unit_test(responses_are_the_bytes_containerd_expects),
        cmocka_unit_test(a_status_is_the_bytes_containerd_expects),
        cmocka_unit_test(an_empty_success_has_no_bytes),
        cmocka_unit_test(options_on_stdin_are_read),
        cmocka_unit_test(codes_and_errnos_agree),
        cmocka_unit_test(text_for_go_is_valid_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
