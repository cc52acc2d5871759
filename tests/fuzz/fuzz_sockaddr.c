/* An address as the workload may pass it: length, domain, use, bytes. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "shim/sentry/address.h"
#include "shim/sentry/egress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct egress_range deny[] = {
        {AF_INET, {169, 254}, 16}, {AF_INET6, {0xfe, 0x80}, 10}, {AF_INET, {0}, 0}};
    struct address a = {0};
    struct flow flow = {0};
    char text[ENDPOINT_TEXT_MAX];
    static struct egress egress;
    struct egress_answer answer;

    if (egress.n_hard_deny == 0)
        egress_init(&egress, deny, 3);
    if (size < 3 || data[0] > sizeof a.u.space)
        return 0;
    a.len = data[0];
    memcpy(&a.u, data + 3, size - 3 < a.len ? size - 3 : a.len);
    flow.use = data[1] % 3;
    int domain = data[2] % 2 ? AF_INET6 : AF_INET;
    if (address_parse(&a, domain, flow.use, &flow.to) != 0)
        return 0;
    assert(flow.to.family == AF_INET || (flow.to.family == AF_INET6 && domain == AF_INET6));
    endpoint_format(&flow.to, text);
    egress_decide(&egress, &flow, &answer);
    return 0;
}
