#pragma once
/*
 * The program of a binary:// stream: reads a container's output from descriptors 3 and 4 and says on
 * 5 that it is ready.  Gets only CONTAINER_ID and CONTAINER_NAMESPACE in its environment.
 */
#include <stdbool.h>

#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct reaper;
struct uri;
struct logger;

struct logger_events {
    void (*ready)(void *data, int r,
                  const struct err *e); /* once; r < 0: it failed or did not get ready in time */
    void (*ended)(void *data);          /* once, after ready: it has exited */
    void *data;
};

struct logger_params {
    struct loop *loop;
    struct reaper *reaper;
    const struct uri *uri;
    const char *ns, *id;
    int out, err; /* read ends; stay the caller's, who closes them after the start */
    struct logger_events events;
};
int logger_start(const struct logger_params *p, struct logger **ret, struct err *e);
bool logger_is_running(const struct logger *l);
/*
 * The streams have ended or do not matter any more.  SIGTERM, 12 s later SIGKILL; the logger frees
 * itself when the process is gone and calls nothing more.  NULL is fine.
 */
void logger_release(struct logger *l);

SCOPED_DEFINE(struct logger, logger_release)
