#include "shim/sentry/task.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/scoped.h"
#include "shim/sentry/message.h"

#define ANSWER_SECONDS 2

struct question {
    struct list node;
    uint64_t cookie;
    int tgid; /* 0: not answered yet */
};

/* Most threads belong to a process that was asked for before. */
static pid_t find_recent(struct core *core, pid_t tid)
{
    for (size_t i = 0; i < ARRAY_LEN(core->recent); i++)
        if (core->recent[i] > 0 && syscall(SYS_tgkill, core->recent[i], tid, 0) == 0)
            return core->recent[i];
    return 0;
}

pid_t task_process(struct core *core, pid_t tid)
{
    struct question q = {0};
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ANSWER_SECONDS;
    pthread_mutex_lock(&core->lock);
    pid_t known = find_recent(core, tid);
    if (known) {
        pthread_mutex_unlock(&core->lock);
        return known;
    }
    q.cookie = ++core->last_cookie;
    list_append(&core->questions, &q.node);
    core_ask(core, &(struct message){.type = MESSAGE_TASK_QUERY, .value = tid, .cookie = q.cookie});
    while (q.tgid == 0 && pthread_cond_timedwait(&core->answered, &core->lock, &until) == 0)
        ;
    list_remove(&q.node);
    if (q.tgid > 0)
        core->recent[core->next_recent++ % ARRAY_LEN(core->recent)] = q.tgid;
    pthread_mutex_unlock(&core->lock);
    return q.tgid != 0 ? q.tgid : -ETIMEDOUT;
}

void task_answer(struct core *core, uint64_t cookie, int tgid)
{
    pthread_mutex_lock(&core->lock);
    LIST_FOREACH(node, &core->questions)
    {
        struct question *q = LIST_ENTRY(node, struct question, node);
        if (q->cookie == cookie)
            q->tgid = tgid != 0 ? tgid : -ESRCH;
    }
    pthread_cond_broadcast(&core->answered);
    pthread_mutex_unlock(&core->lock);
}
