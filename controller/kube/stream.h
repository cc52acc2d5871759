#pragma once
/*
 * LIST and WATCH answers as they arrive, object by object; the only user of yajl.  Pure: bytes in,
 * callbacks out, no I/O.
 *
 * A LIST is one JSON object whose "items" may be many; each item becomes a jansson value of its own
 * and the rest is never held.  What nobody reads, managedFields, is left out before anything is made of it.
 * A WATCH is one JSON object per line; a partial last line stays until the rest comes, or is dropped with the
 * stream.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/scoped.h"
#include "controller/kube/scan.h"

#define STREAM_DEPTH_MAX 256 /* nesting of one object; the API server itself stops far below */

/* item is borrowed and may be changed in place; json_incref to keep it. */
typedef void (*stream_item_fn)(void *data, json_t *item);

struct list_stream;
/* item_max: bytes of text of one item (-EFBIG above). */
int list_stream_new(size_t item_max, stream_item_fn fn, void *data, struct list_stream **ret, struct err *e);
void list_stream_free(struct list_stream *s);
int list_stream_feed(struct list_stream *s, const char *bytes, size_t n, struct err *e);
/* End of the answer.  The strings live as long as s; "" when absent. */
int list_stream_end(struct list_stream *s, const char **ret_version, const char **ret_continue,
                    struct err *e);

enum watch_type { WATCH_NONE, WATCH_ADDED, WATCH_MODIFIED, WATCH_DELETED, WATCH_BOOKMARK, WATCH_ERROR };
typedef void (*watch_line_fn)(void *data, enum watch_type type, json_t *object);

/* true: this state is known already, it need not be parsed.  Never asked about deletions. */
typedef bool (*watch_known_fn)(void *data, const struct scan *s);

struct line_stream;
void line_stream_free(struct line_stream *s);
struct line_stream *line_stream_new(size_t line_max, watch_line_fn fn, void *data);
void line_stream_set_known(struct line_stream *s, watch_known_fn known);
/*
 * A line that is too long or is no event is dropped and counted; the stream goes on with the next.
 * fn may call line_stream_stop: the rest of the bytes is ignored.
 */
void line_stream_feed(struct line_stream *s, const char *bytes, size_t n);
void line_stream_stop(struct line_stream *s);
uint64_t line_stream_dropped(const struct line_stream *s);

SCOPED_DEFINE(struct list_stream, list_stream_free)
SCOPED_DEFINE(struct line_stream, line_stream_free)
