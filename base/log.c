#include "base/log.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/scoped.h"
#include "base/strbuf.h"

#define LINE_MAX_BYTES    4000 /* below PIPE_BUF, so that lines of two writers never mix */
#define CONTEXT_MAX       4
#define CONTEXT_VALUE_MAX 200

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
    sink.value[slot] = value ? xstrndup(value, CONTEXT_VALUE_MAX) : NULL;
}

/*
 * Length of the well-formed UTF-8 sequence at s, 0 if there is none.  The second byte's range depends
 * on the first: outside it lie overlong forms, surrogates and what is beyond U+10FFFF, which readers
 * of JSON refuse.
 */
static size_t utf8_len(const unsigned char *s)
{
    static const struct {
        unsigned char first, last, second_min, second_max, len;
    } forms[] = {
        {0x01, 0x7f, 0, 0xff, 1},    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        if (s[0] < forms[i].first || s[0] > forms[i].last)
            continue;
        if (forms[i].len > 1 && (s[1] < forms[i].second_min || s[1] > forms[i].second_max))
            return 0;
        for (size_t n = 2; n < forms[i].len; n++)
            if ((s[n] & 0xc0) != 0x80)
                return 0;
        return forms[i].len;
    }
    return 0;
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

/*
 * Formats one conversion, text in [spec, end).  Values are formatted one at a time, never all at once
 * with a separator between them: a value may hold any byte, and one that holds the separator could
 * forge a field.
 */
static void put_value(struct strbuf *out, const char *spec, const char *end, va_list *ap)
{
    char f[16];
    size_t n = (size_t)(end - spec);

    if (n >= sizeof f)
        return;
    memcpy(f, spec, n);
    f[n] = '\0';
    bool two = n > 2 && f[n - 3] == 'l' && f[n - 2] == 'l';
    bool word = n > 1 && strchr("lzjt", f[n - 2]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (f[n - 1] == '%')
        strbuf_putc(out, '%');
    else if (f[n - 1] == 's')
        strbuf_printf(out, f, va_arg(*ap, const char *));
    else if (f[n - 1] == 'p')
        strbuf_printf(out, f, va_arg(*ap, const void *));
    else if (strchr("feg", f[n - 1]))
        strbuf_printf(out, f, va_arg(*ap, double));
    else if (two)
        strbuf_printf(out, f, va_arg(*ap, long long));
    else if (word)
        strbuf_printf(out, f, va_arg(*ap, long));
    else
        strbuf_printf(out, f, va_arg(*ap, int));
#pragma GCC diagnostic pop
}

static void put_fields(struct strbuf *out, const char *fmt, va_list *ap)
{
    while (*fmt) {
        scoped_strbuf struct strbuf value;
        const char *key = fmt;
        size_t key_len = strcspn(fmt, "= ");

        strbuf_init(&value, LINE_MAX_BYTES);
        fmt += key_len;
        if (*fmt == '=')
            fmt++;
        while (*fmt && *fmt != ' ') {
            if (*fmt != '%') {
                strbuf_putc(&value, *fmt++);
                continue;
            }
            const char *end = fmt + 1 + strspn(fmt + 1, "-+#0123456789.hlzjt");
            end += *end != '\0';
            put_value(&value, fmt, end, ap);
            fmt = end;
        }
        put_pair(out, key, key_len, value.data);
        out->overflow |= value.overflow;
        fmt += strspn(fmt, " ");
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
        put_fields(&out, fmt, &ap);
        va_end(ap);
    }
    if (out.overflow || out.len > LINE_MAX_BYTES) {
        out.len = safe; /* without the fields it always fits: message and context are short */
        out.overflow = false;
        out.data[safe] = '\0';
        strbuf_puts(&out, ",\"truncated\":true");
    }
    strbuf_puts(&out, "}\n");
    if (write(sink.fd, out.data, out.len) != (ssize_t)out.len)
        sink.dropped++;
}
