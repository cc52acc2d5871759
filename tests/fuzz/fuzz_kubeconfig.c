/* Files as a user, or somebody who can write one, could give them as --kubeconfig. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "controller/kube/kubeconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kube_config *c = NULL;
    struct err e = {0};
    int r = kube_config_parse((const char *)data, size, "/etc/k", NULL, &c, &e);

    if (r < 0) {
        assert(!c && e.text[0] != '\0');
        return 0;
    }
    /* Whatever the file says, the connection is encrypted and its end is known. */
    assert(strncmp(c->server, "https://", 8) == 0 && !c->plain_http && c->ns);
    assert(!c->token || !strpbrk(c->token, "\r\n"));
    kube_config_free(c);
    return 0;
}
