/* A message header, its parts and its control messages, as the workload may lay them out. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "shim/sentry/msghdr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_msghdr h;
    struct iovec iov[32];

    if (size >= sizeof h) {
        memcpy(&h, data, sizeof h);
        if (msghdr_check(&h) == 0)
            assert(h.iov_len <= MSG_IOV_MAX && h.control_len <= MSG_CONTROL_MAX);
    }
    size_t n = size / sizeof iov[0] < 32 ? size / sizeof iov[0] : 32;
    memcpy(iov, data, n * sizeof iov[0]);
    int64_t sum = msghdr_data_bytes(iov, n);
    assert(sum <= MSG_DATAGRAM_MAX);
    (void)msghdr_control_check(data, size < MSG_CONTROL_MAX ? size : MSG_CONTROL_MAX);
    return 0;
}
