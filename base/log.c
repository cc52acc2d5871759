#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/scoped.h"
#include "base/strbuf.h"

#define LINE_MAX_BYTES 4000 /* below PIPE_BUF, so that lines of two writers never mix */
#define CONTEXT_MAX 4

static const char *const level_name[] = {"error", "warn", "info", "debug"};

/* The log sink: the one mutable global of the program. */
static struct {
    int fd;
    enum log_level level;
    char *key[CONTEXT_MAX], *value[CONTEXT_MAX];
    uint64_t dropped;
} sink = {.fd = 2, .level = LOG_INFO};

void log_init(int fd, enum log_level level)
{
    sink.fd = fd;
    sink.level = level;
}

void log_set_fd(int fd)
{
    sink.fd = fd;
}

bool log_enabled(enum log_level level)
{
    return level <= sink.level;
}

uint64_t log_dropped(void)
{
    return sink.dropped;
}

void log_context(const char *key, const char *value)
{
    size_t slot = CONTEXT_MAX;

    for (size_t i = CONTEXT_MAX; i-- > 0;)
        if (!sink.key[i] || strcmp(sink.key[i], key) == 0)
            slot = sink.key[i] ? i : (slot < CONTEXT_MAX && sink.key[slot] ? slot : i);
    if (slot == CONTEXT_MAX)
        return;
    free(sink.key[slot]);
    free(sink.value[slot]);
    sink.key[slot] = value ? xstrdup(key) : NULL;
    sink.value[slot] = xstrdup(value);
}

/* Length of the well-formed UTF-8 sequence at s, 0 if there is none. */
static size_t utf8_len(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

void log_escape(struct strbuf *out, const char *s)
{
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8_len(p);
        if (n == 0) {
            strbuf_puts(out, "\\ufffd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            strbuf_printf(out, "\\%c", *p);
        } else if (*p < 0x20 || *p == 0x7f) {
            strbuf_printf(out, "\\u%04x", *p);
        } else {
            strbuf_add(out, p, n);
        }
        p += n;
    }
}

static void put_pair(struct strbuf *out, const char *key, size_t key_len, const char *value)
{
    strbuf_printf(out, ",\"%.*s\":\"", (int)key_len, key);
    log_escape(out, value);
    strbuf_putc(out, '"');
}

/* Format each "key=spec" on its own would need a va_list per piece, so the values are separated by \x1f. */
static void put_fields(struct strbuf *out, const char *fmt, va_list ap)
{
    char marked[512], values[3072];
    size_t n = strlen(fmt);

    if (n >= sizeof marked)
        return;
    for (size_t i = 0; i <= n; i++)
        marked[i] = fmt[i] == ' ' ? '\x1f' : fmt[i];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)vsnprintf(values, sizeof values, marked, ap);
#pragma GCC diagnostic pop
    char *rest = values;
    for (char *piece; (piece = strsep(&rest, "\x1f"));) {
        char *eq = strchr(piece, '=');
        if (eq)
            put_pair(out, piece, (size_t)(eq - piece), eq + 1);
    }
}

void log_line(enum log_level level, const char *msg, const char *fmt, ...)
{
    if (!log_enabled(level) || sink.fd < 0)
        return;

    scoped_strbuf struct strbuf out;
    char ts[CLOCK_TEXT_MAX];
    struct timespec now = clock_wall();

    strbuf_init(&out, 2 * LINE_MAX_BYTES);
    clock_format(&now, ts);
    strbuf_printf(&out, "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":\"", ts, level_name[level]);
    log_escape(&out, msg);
    strbuf_putc(&out, '"');
    for (size_t i = 0; i < CONTEXT_MAX; i++)
        if (sink.key[i])
            put_pair(&out, sink.key[i], strlen(sink.key[i]), sink.value[i]);
    size_t safe = out.len;
    if (fmt) {
        va_list ap;
        va_start(ap, fmt);
        put_fields(&out, fmt, ap);
        va_end(ap);
    }
    if (out.overflow || out.len > LINE_MAX_BYTES) {
        out.len = safe;
        out.overflow = false;
        out.data[safe] = '\0';
        strbuf_puts(&out, ",\"truncated\":true");
    }
    strbuf_puts(&out, "}\n");
    if (write(sink.fd, out.data, out.len) != (ssize_t)out.len)
        sink.dropped++;
}
