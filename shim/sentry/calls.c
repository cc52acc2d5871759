/* From a notification to its handler. */
#include "shim/sentry/calls.h"

#include <errno.h>
#include <sys/syscall.h>

#include "shim/filter/filter.h"

typedef void (*handler_fn)(struct call *call);

/* A dispatch by number would be a 472-entry table for ten entries. */
static const struct {
    int nr;
    handler_fn fn;
} handlers[] = {
    {SYS_socket, on_socket},     {SYS_connect, on_connect},   {SYS_sendmsg, on_sendmsg},
    {SYS_sendmmsg, on_sendmmsg}, {SYS_sendto, on_sendto},     {SYS_bind, on_bind},
    {SYS_listen, on_listen},     {SYS_sendfile, on_sendfile}, {SYS_sched_getaffinity, on_getaffinity},
    {SYS_sysinfo, on_sysinfo},
};

void calls_answer(struct call *call)
{
    const struct seccomp_data *data = &call->u.n.data;
    uint64_t args[6];

    for (unsigned i = 0; i < 6; i++)
        args[i] = data->args[i];
    /* A program that stacked a filter of its own can send us any call: the table is asked again. */
    struct rule_verdict v = rule_judge(data->nr, args);
    if (v.how == RULE_DENY) {
        const struct rule *r = rule_for(data->nr);
        call_refuse(call, v.error, r ? r->why : "unknown system call", NULL);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(handlers); i++) {
        if (handlers[i].nr != data->nr)
            continue;
        handlers[i].fn(call);
        return;
    }
    call_fail(call, ENOSYS); /* native by the table, but sent here by a filter of the program's own */
}
