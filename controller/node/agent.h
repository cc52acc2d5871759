#pragma once
/*
 * The node agent at work: watches the pods of its node, asks their shims to pause and resume, and
 * writes the outcome into a condition of the pod.
 *
 * It keeps nothing on disk: the wish is an annotation, the truth is in the shims.  After a restart it
 * asks every shim and goes on from there, so a pod whose pause was cut in two is completed or undone.
 */
#include "base/err.h"
#include "base/scoped.h"

struct loop;
struct engine;
struct metrics;
struct agent;

/* Registers its kind and its controller with the engine.  folder: of the shims' sockets. */
int agent_new(struct loop *loop, struct engine *x, const char *node, const char *folder, struct metrics *m,
              struct agent **ret, struct err *e);
void agent_free(struct agent *a); /* before the engine */

SCOPED_DEFINE(struct agent, agent_free)
