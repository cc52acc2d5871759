#pragma once
/*
 * One JSON object per line to one descriptor: {"ts","level","msg",...}.  Never blocks when the
 * descriptor is non-blocking: a line that does not fit is dropped and counted.  msg is a fixed
 * sentence; values are fields.  No secrets, no whole environments or argument lists.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/macro.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_init(int fd, enum log_level level); /* fd stays the caller's */
void log_set_fd(int fd);
bool log_enabled(enum log_level level);
void log_context(const char *key,
                 const char *value); /* at most 4, kept for all later lines; NULL value clears */
uint64_t log_dropped(void);

/*
 * fmt describes extra fields: pairs "key=%s" separated by one space, in printf form; each value is
 * quoted and escaped.  log_info("container created", "id=%s pid=%d", id, pid).  NULL = no fields.
 */
void log_line(enum log_level level, const char *msg, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define log_error(msg, ...) log_line(LOG_ERROR, msg, __VA_ARGS__)
#define log_warn(msg, ...)  log_line(LOG_WARN, msg, __VA_ARGS__)
#define log_info(msg, ...)  log_line(LOG_INFO, msg, __VA_ARGS__)
#define log_debug(msg, ...)                                                                                  \
    do {                                                                                                     \
        if (log_enabled(LOG_DEBUG))                                                                          \
            log_line(LOG_DEBUG, msg, __VA_ARGS__);                                                           \
    } while (0)

/* Appends s as the inside of a JSON string; invalid UTF-8 becomes U+FFFD. */
struct strbuf;
void log_escape(struct strbuf *out, const char *s);
