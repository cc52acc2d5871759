#include "shim/sentry/audit.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"

#define BURST          200
#define PER_SECOND     50
#define LINE_MAX_BYTES 1024

void audit_init(struct audit *a, int fd)
{
    *a = (struct audit){.fd = fd, .tokens = BURST, .refilled_ms = clock_mono_ms()};
    pthread_mutex_init(&a->lock, NULL);
}

static bool take_token(struct audit *a)
{
    int64_t now = clock_mono_ms();
    int64_t grown = (now - a->refilled_ms) * PER_SECOND / 1000;
    if (grown > 0) {
        a->tokens = (unsigned)MIN((int64_t)BURST, (int64_t)a->tokens + grown);
        a->refilled_ms = now;
    }
    if (a->tokens == 0)
        return false;
    a->tokens--;
    return true;
}

static void format(struct strbuf *s, const struct audit_record *r, uint64_t lost)
{
    char when[CLOCK_TEXT_MAX];
    struct timespec now = clock_wall();

    clock_format(&now, when);
    strbuf_printf(s, "{\"ts\":\"%s\",\"event\":\"refused\",\"container\":\"", when);
    log_escape(s, r->container);
    strbuf_printf(s, "\",\"pid\":%d,\"call\":\"%s\",\"args\":[", r->tid, r->call);
    for (int i = 0; i < 6; i++)
        strbuf_printf(s, "%s\"0x%" PRIx64 "\"", i ? "," : "", r->args[i]);
    strbuf_puts(s, "]");
    if (r->detail) {
        strbuf_puts(s, ",\"detail\":\"");
        log_escape(s, r->detail);
        strbuf_puts(s, "\"");
    }
    strbuf_puts(s, ",\"rule\":\"");
    log_escape(s, r->rule);
    strbuf_printf(s, "\",\"errno\":%d,\"error\":\"%s\"", r->error,
                  r->error ? strerrorname_np(r->error) : "none");
    if (lost)
        strbuf_printf(s, ",\"lost\":%" PRIu64, lost);
    strbuf_puts(s, "}\n");
}

/* A full pipe must not stop the pod's system calls: the line is then lost, and counted. */
static bool write_line(int fd, const struct strbuf *s)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return !s->overflow && poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) &&
           write(fd, s->data, s->len) == (ssize_t)s->len;
}

void audit_write(struct audit *a, const struct audit_record *r)
{
    if (a->fd < 0)
        return;
    pthread_mutex_lock(&a->lock);
    if (take_token(a)) {
        scoped_strbuf struct strbuf line;
        strbuf_init(&line, LINE_MAX_BYTES);
        format(&line, r, a->lost);
        if (write_line(a->fd, &line))
            a->lost = 0;
        else
            a->lost++;
    } else {
        a->lost++;
    }
    pthread_mutex_unlock(&a->lock);
}
