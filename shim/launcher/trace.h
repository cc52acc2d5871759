#pragma once
/*
 * Times of the steps of a launch, written by the shim, the launcher and all helpers into one page that
 * they share, read by the shim at the end.  NULL = off, which costs nothing.
 */
#include <stdint.h>

struct trace;

struct trace *trace_new(void); /* NULL when there is no memory */
void trace_free(struct trace *t);
/* who: one letter (S shim, L launcher, X builder, W joiner, Y init); step: a literal, it stays valid after
 * fork. */
void trace_step(struct trace *t, char who, const char *step);
/* One debug line for each step, with microseconds since the start. */
void trace_log(const struct trace *t, const char *id);
