/* The stdio engine on real FIFOs, pipes and terminals in a temporary directory. */
#include "shim/runtime/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/loop.h"
#include "shim/runtime/reaper.h"
#include "shim/runtime/uri.h"

struct world {
    struct loop *loop;
    struct reaper *reaper;
    char dir[64];
    char *path[3];
    int ready, ready_code;
    char ready_text[ERR_TEXT_MAX];
    int drained;
};

static bool claim(void *data, pid_t pid, int raw)
{
    (void)data, (void)pid, (void)raw;
    return false;
}
static bool expect(void *data)
{
    (void)data;
    return false;
}

static int setup(void **state)
{
    struct world *w = xcalloc(1, sizeof *w);

    (void)signal(SIGPIPE, SIG_IGN);
    snprintf(w->dir, sizeof w->dir, "/tmp/stdio.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(loop_new(&w->loop, NULL), 0);
    assert_int_equal(reaper_new(w->loop, claim, expect, w, &w->reaper, NULL), 0);
    static const char *const names[3] = {"in", "out", "err"};
    for (int i = 0; i < 3; i++) {
        w->path[i] = xasprintf("%s/%s", w->dir, names[i]);
        assert_int_equal(mkfifo(w->path[i], 0600), 0);
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    reaper_free(w->reaper);
    loop_free(w->loop);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", w->dir, (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 3; i++)
        free(w->path[i]);
    free(w);
    return 0;
}

static void run_ms(struct world *w, int ms)
{
    int64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end)
        assert_int_equal(loop_step(w->loop, 5, NULL), 0);
}

static void on_ready(void *data, int r, const struct err *e)
{
    struct world *w = data;

    w->ready++;
    w->ready_code = r;
    snprintf(w->ready_text, sizeof w->ready_text, "%s", err_text(e));
}

static void on_drained(void *data)
{
    ((struct world *)data)->drained++;
}

static struct stdio *open_io(struct world *w, const char *in, const char *out, const char *err, bool terminal,
                             int want)
{
    struct stdio *io = NULL;
    struct err e = {0};
    const struct stdio_params p = {.loop = w->loop,
                                   .reaper = w->reaper,
                                   .ns = "test",
                                   .id = "box",
                                   .uri = {in, out, err},
                                   .terminal = terminal,
                                   .ready = on_ready,
                                   .data = w};
    int r = stdio_open(&p, &io, &e);

    if (r != want)
        print_error("stdio_open: %s\n", err_text(&e));
    assert_int_equal(r, want);
    return io;
}

/* The process: copies of its three descriptors, as after fork; ours are closed. */
static void be_child(struct stdio *io, int fds[3])
{
    for (int i = 0; i < 3; i++) {
        fds[i] = dup(stdio_child_fds(io)[i]);
        assert_true(fds[i] >= 0);
    }
    stdio_child_started(io);
}

/* Reads until n bytes or the end, the loop running meanwhile. Returns the number; -1 in *ended unless the end
 * came. */
static size_t read_from(struct world *w, int fd, char *buf, size_t n, bool *ended)
{
    size_t got = 0;

    *ended = false;
    for (int64_t stop = clock_mono_ms() + 3000; got < n && clock_mono_ms() < stop;) {
        ssize_t r = read(fd, buf + got, n - got);
        if (r == 0) {
            *ended = true;
            break;
        }
        if (r > 0)
            got += (size_t)r;
        else
            assert_int_equal(loop_step(w->loop, 2, NULL), 0);
    }
    return got;
}

static int open_reader(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK);

    assert_true(fd >= 0);
    return fd;
}

static void output_arrives_and_ends_when_the_process_closes(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), err = open_reader(w->path[2]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], w->path[2], false, 0);
    char buf[64];
    bool ended;

    be_child(io, fds);
    run_ms(w, 5);
    assert_int_equal(write(fds[1], "out", 3), 3);
    assert_int_equal(write(fds[2], "err!", 4), 4);
    fd_close_all(fds, 3);
    assert_int_equal(read_from(w, out, buf, sizeof buf, &ended), 3);
    assert_true(ended);
    assert_int_equal(read_from(w, err, buf, sizeof buf, &ended), 4);
    assert_true(ended);
    assert_true(stdio_is_drained(io));
    stdio_free(io);
    close(out);
    close(err);
}

static void output_written_before_the_client_opens_is_not_lost(void **state)
{
    struct world *w = *state;
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);
    int fds[3];
    char buf[64];
    bool ended;

    be_child(io, fds);
    assert_int_equal(write(fds[1], "early", 5), 5);
    fd_close_all(fds, 3);
    stdio_process_exited(io);
    run_ms(w, 150);
    assert_false(stdio_is_drained(io));
    int out = open_reader(w->path[1]);
    run_ms(w, 150); /* a client waits in open(2) for the writer */
    assert_int_equal(read_from(w, out, buf, sizeof buf, &ended), 5);
    assert_memory_equal(buf, "early", 5);
    assert_true(ended);
    stdio_free(io);
    close(out);
}

static void a_reader_that_goes_and_comes_back_finds_everything(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);
    char buf[64];
    bool ended;

    be_child(io, fds);
    run_ms(w, 5);
    close(out); /* containerd dies */
    run_ms(w, 5);
    assert_int_equal(write(fds[1], "while away", 10), 10);
    fd_close_all(fds, 3); /* and the process ends meanwhile */
    stdio_process_exited(io);
    run_ms(w, 250);
    assert_false(stdio_is_drained(io));
    out = open_reader(w->path[1]);
    assert_int_equal(read_from(w, out, buf, sizeof buf, &ended), 10);
    run_ms(w, 150);
    assert_true(stdio_is_drained(io));
    stdio_free(io);
    close(out);
}

static void a_stopped_reader_blocks_only_its_own_stream(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), err = open_reader(w->path[2]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], w->path[2], false, 0);
    static char big[1 << 16];
    char buf[64];
    bool ended;

    be_child(io, fds);
    run_ms(w, 5);
    assert_int_equal(fd_set_nonblock(fds[1], true), 0);
    size_t written = 0;
    for (int i = 0; i < 50; i++) { /* until pipe, copier and FIFO are full */
        ssize_t n = write(fds[1], big, sizeof big);
        written += n > 0 ? (size_t)n : 0;
        run_ms(w, 2);
    }
    assert_true(written >= sizeof big);
    assert_int_equal(write(fds[1], big, 1), -1);
    assert_int_equal(write(fds[2], "free", 4), 4);
    assert_int_equal(read_from(w, err, buf, 4, &ended), 4);

    /* Not a busy loop: nothing happens while everybody waits, the process's end included. */
    fd_close_all(fds, 3);
    stdio_process_exited(io);
    run_ms(w, 5);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    assert_int_equal(loop_step(w->loop, 200, NULL), 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 < 50);

    char *all = xcalloc(1, written + 1);
    assert_int_equal(read_from(w, out, all, written + 1, &ended), written);
    assert_true(ended);
    free(all);
    stdio_free(io);
    close(out);
    close(err);
}

static void large_output_comes_whole_and_in_order(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);
    enum { N = 3000000 };
    bool ended;

    be_child(io, fds);
    pid_t pid = fork();
    if (pid == 0) {
        for (uint32_t i = 0; i < N / 4; i++)
            if (write(fds[1], &i, 4) != 4)
                _exit(1);
        _exit(0);
    }
    fd_close_all(fds, 3);
    char *all = xcalloc(1, N + 1);
    size_t got = 0;
    do
        got += read_from(w, out, all + got, N + 1 - got, &ended);
    while (!ended && got < N + 1 && waitpid(pid, NULL, WNOHANG) == 0);
    if (!ended)
        got += read_from(w, out, all + got, N + 1 - got, &ended);
    assert_int_equal(got, N);
    for (uint32_t i = 0; i < N / 4; i++)
        assert_memory_equal(all + 4 * (size_t)i, &i, 4);
    free(all);
    stdio_free(io);
    close(out);
}

static void stdin_ends_after_close_io_and_after_all_bytes(void **state)
{
    struct world *w = *state;
    struct stdio *io = open_io(w, w->path[0], "", "", false, 0);
    int fds[3];
    char buf[200000];
    bool ended;

    be_child(io, fds);
    assert_int_equal(fd_set_nonblock(fds[0], true), 0);
    int in = open(w->path[0], O_WRONLY | O_NONBLOCK);
    assert_true(in >= 0);
    memset(buf, 'x', sizeof buf);
    size_t sent = 0;
    ssize_t n = write(in, buf, 65536);
    sent += n > 0 ? (size_t)n : 0;
    stdio_close_stdin(io); /* while everything is still in the FIFO */
    close(in);
    assert_int_equal(read_from(w, fds[0], buf, sizeof buf, &ended), sent);
    assert_true(ended);
    assert_int_equal(sent, 65536);
    fd_close_all(fds, 3);
    stdio_free(io);
}

static void stdin_stays_open_when_one_client_leaves(void **state)
{
    struct world *w = *state;
    struct stdio *io = open_io(w, w->path[0], "", "", false, 0);
    int fds[3];
    char buf[16];
    bool ended;

    be_child(io, fds);
    assert_int_equal(fd_set_nonblock(fds[0], true), 0);
    for (int i = 0; i < 3; i++) {
        int in = open(w->path[0], O_WRONLY | O_NONBLOCK);
        assert_int_equal(write(in, "abc", 3), 3);
        close(in);
        assert_int_equal(read_from(w, fds[0], buf, 3, &ended), 3);
    }
    run_ms(w, 20);
    assert_int_equal(read(fds[0], buf, 1), -1);
    assert_int_equal(errno, EAGAIN);
    stdio_close_stdin(io);
    assert_int_equal(read_from(w, fds[0], buf, 1, &ended), 0);
    assert_true(ended);
    fd_close_all(fds, 3);
    stdio_free(io);
}

static void close_io_does_not_touch_the_output(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);
    char buf[16];
    bool ended;

    be_child(io, fds);
    stdio_close_stdin(io);
    stdio_close_stdin(io);
    run_ms(w, 20);
    assert_int_equal(read(fds[0], buf, 1), 0); /* no stdin: the null device */
    assert_int_equal(write(fds[1], "b", 1), 1);
    fd_close_all(fds, 3);
    assert_int_equal(read_from(w, out, buf, sizeof buf, &ended), 1);
    stdio_free(io);
    close(out);
}

static void a_process_that_closes_its_stdin_does_not_end_anything_else(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, w->path[0], w->path[1], "", false, 0);
    char buf[16];
    bool ended;

    be_child(io, fds);
    int in = open(w->path[0], O_WRONLY | O_NONBLOCK);
    close(fds[0]);
    fds[0] = -1;
    assert_int_equal(write(in, "unread", 6), 6);
    run_ms(w, 30);
    assert_int_equal(write(in, "x", 1), -1); /* the shim has let go of the FIFO */
    assert_int_equal(errno, EPIPE);
    assert_int_equal(write(fds[1], "alive", 5), 5);
    assert_int_equal(read_from(w, out, buf, 5, &ended), 5);
    close(in);
    fd_close_all(fds, 3);
    stdio_free(io);
    close(out);
}

static void a_drain_is_bounded_when_somebody_else_holds_the_pipe(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);

    be_child(io, fds); /* fds[1] plays the grandchild that never closes */
    run_ms(w, 5);
    stdio_process_exited(io);
    int64_t start = clock_mono_ms();
    stdio_drain(io, on_drained, w);
    while (!w->drained && clock_mono_ms() - start < STDIO_DRAIN_MAX_MS + 1000)
        loop_step(w->loop, 50, NULL);
    assert_int_equal(w->drained, 1);
    assert_in_range(clock_mono_ms() - start, STDIO_DRAIN_IDLE_MS - 50, STDIO_DRAIN_IDLE_MS + 500);
    stdio_free(io);
    char c;
    assert_int_equal(read(out, &c, 1), 0); /* the client is let go */
    fd_close_all(fds, 3);
    close(out);
}

static void a_drain_is_over_at_once_when_all_is_delivered(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), fds[3];
    struct stdio *io = open_io(w, "", w->path[1], "", false, 0);

    be_child(io, fds);
    run_ms(w, 5);
    assert_int_equal(write(fds[1], "x", 1), 1);
    fd_close_all(fds, 3);
    stdio_process_exited(io);
    int64_t start = clock_mono_ms();
    stdio_drain(io, on_drained, w);
    while (!w->drained && clock_mono_ms() - start < 2000)
        loop_step(w->loop, 50, NULL);
    assert_int_equal(w->drained, 1);
    assert_true(clock_mono_ms() - start < 100);
    stdio_free(io);
    close(out);
}

static void a_drain_does_not_wait_for_a_client_that_never_came_when_there_is_nothing(void **state)
{
    struct world *w = *state;
    struct stdio *io = open_io(w, "", w->path[1], w->path[2], false, 0);
    int fds[3];

    be_child(io, fds);
    assert_false(stdio_is_drained(io));
    close(fds[1]);
    assert_false(stdio_is_drained(io)); /* stderr is still held */
    assert_int_equal(write(fds[2], "x", 1), 1);
    close(fds[2]);
    assert_false(stdio_is_drained(io)); /* and has something to tell */
    int err = open_reader(w->path[2]);
    run_ms(w, 100);
    assert_true(stdio_is_drained(io));
    fds[1] = fds[2] = -1;
    fd_close_all(fds, 3);
    stdio_free(io);
    close(err);
}

static int open_pty(int *slave)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    assert_true(master >= 0);
    assert_int_equal(unlockpt(master), 0);
    *slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(*slave >= 0);
    return master;
}

static void a_terminal_carries_both_directions_and_its_size(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), slave;
    struct stdio *io = open_io(w, w->path[0], w->path[1], "", true, 0);
    char buf[64] = "";
    bool ended;
    struct winsize ws;

    assert_int_equal(stdio_resize(io, 132, 43, NULL), 0); /* before there is a terminal */
    assert_int_equal(stdio_set_console(io, open_pty(&slave), NULL), 0);
    assert_int_equal(ioctl(slave, TIOCGWINSZ, &ws), 0);
    assert_int_equal(ws.ws_col, 132);
    assert_int_equal(ws.ws_row, 43);
    assert_int_equal(write(slave, "hi\n", 3), 3);
    assert_int_equal(read_from(w, out, buf, 4, &ended), 4);
    assert_memory_equal(buf, "hi\r\n", 4);
    int in = open(w->path[0], O_WRONLY | O_NONBLOCK);
    assert_int_equal(write(in, "typed\n", 6), 6);
    run_ms(w, 30);
    assert_int_equal(read(slave, buf, sizeof buf), 6);
    assert_memory_equal(buf, "typed\n", 6);
    close(in);
    close(slave);
    stdio_process_exited(io);
    run_ms(w, 50);
    assert_int_equal(read_from(w, out, buf, sizeof buf, &ended), 7); /* the echo, then the end */
    assert_true(ended);
    assert_true(stdio_is_drained(io));
    stdio_free(io);
    close(out);
}

static void a_terminal_survives_a_moment_without_slaves(void **state)
{
    struct world *w = *state;
    int out = open_reader(w->path[1]), slave;
    struct stdio *io = open_io(w, "", w->path[1], "", true, 0);
    int master = open_pty(&slave);
    char *name = xstrdup(ptsname(master));
    char buf[64];
    bool ended;

    assert_int_equal(stdio_set_console(io, master, NULL), 0);
    close(slave);
    run_ms(w, 120);
    assert_false(stdio_is_drained(io));
    slave = open(name, O_RDWR | O_NOCTTY);
    assert_int_equal(write(slave, "again", 5), 5);
    assert_int_equal(read_from(w, out, buf, 5, &ended), 5);
    close(slave);
    stdio_process_exited(io);
    run_ms(w, 100);
    assert_true(stdio_is_drained(io));
    free(name);
    stdio_free(io);
    close(out);
}

static char *slurp(const char *path)
{
    char *text = NULL;
    size_t len;

    assert_int_equal(file_read(AT_FDCWD, path, 1 << 20, &text, &len, NULL), 0);
    return text;
}

static void a_file_gets_both_streams_appended_and_its_directory_made(void **state)
{
    struct world *w = *state;
    char *path = xasprintf("%s/new/dir/log", w->dir);
    char *uri = xasprintf("file://%s", path);
    int fds[3];

    for (int i = 0; i < 2; i++) {
        struct stdio *io = open_io(w, "", uri, uri, false, 0);
        struct stat st;
        be_child(io, fds);
        assert_int_equal(fstat(fds[1], &st), 0);
        assert_true(S_ISFIFO(st.st_mode)); /* never the host's file itself */
        assert_int_equal(write(fds[1], "o", 1), 1);
        run_ms(w, 10);
        assert_int_equal(write(fds[2], "e", 1), 1);
        fd_close_all(fds, 3);
        run_ms(w, 10);
        stdio_free(io);
    }
    char *text = slurp(path);
    assert_string_equal(text, "oeoe");
    free(text);
    free(uri);
    free(path);
}

static char *script(struct world *w, const char *body)
{
    char *path = xasprintf("%s/logger", w->dir);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

static void wait_ready(struct world *w)
{
    for (int64_t stop = clock_mono_ms() + 3000; !w->ready && clock_mono_ms() < stop;)
        loop_step(w->loop, 10, NULL);
    assert_int_equal(w->ready, 1);
}

static void a_logger_gets_its_arguments_environment_and_the_output(void **state)
{
    struct world *w = *state;
    char *body = xasprintf(
        "echo \"$@\" >%s/args; env | grep CONTAINER | sort >%s/env; echo >&5; cat <&3 >%s/o; cat <&4 >%s/e",
        w->dir, w->dir, w->dir, w->dir);
    char *path = script(w, body);
    char *uri = xasprintf("binary://%s?k=v&flag&empty=&sp=a%%20b", path);
    struct stdio *io = open_io(w, "", uri, uri, false, 1);
    int fds[3];

    wait_ready(w);
    assert_int_equal(w->ready_code, 0);
    be_child(io, fds);
    assert_int_equal(write(fds[1], "to out", 6), 6);
    assert_int_equal(write(fds[2], "to err", 6), 6);
    fd_close_all(fds, 3);
    stdio_process_exited(io);
    stdio_drain(io, on_drained, w);
    for (int64_t stop = clock_mono_ms() + 3000; !w->drained && clock_mono_ms() < stop;)
        loop_step(w->loop, 10, NULL);
    assert_int_equal(w->drained, 1);
    stdio_free(io);
    static const struct {
        const char *file, *text;
    } want[] = {{"args", "k v flag empty sp a b\n"},
                {"env", "CONTAINER_ID=box\nCONTAINER_NAMESPACE=test\n"},
                {"o", "to out"},
                {"e", "to err"}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        char *file = xasprintf("%s/%s", w->dir, want[i].file);
        char *text = slurp(file);
        assert_string_equal(text, want[i].text);
        free(text);
        free(file);
    }
    free(uri);
    free(path);
    free(body);
}

static void a_logger_that_dies_before_it_is_ready_is_an_error(void **state)
{
    struct world *w = *state;
    char *path = script(w, "exec 3<&- 4<&-; sleep 0.05; kill -9 $$");
    char *uri = xasprintf("binary-v2://%s", path);
    struct stdio *io = open_io(w, "", uri, "", false, 1);

    wait_ready(w);
    assert_true(w->ready_code < 0);
    assert_non_null(strstr(w->ready_text, "logger"));
    stdio_free(io);
    run_ms(w, 100);
    free(uri);
    free(path);
}

static void a_logger_of_the_second_kind_must_confirm(void **state)
{
    struct world *w = *state;
    char *path = script(w, "exec 5>&-; sleep 5");
    char *v2 = xasprintf("binary-v2://%s", path), *v1 = xasprintf("binary://%s", path);
    struct stdio *io = open_io(w, "", v2, "", false, 1);

    wait_ready(w);
    assert_int_equal(w->ready_code, -EIO);
    stdio_free(io);
    w->ready = 0;
    io = open_io(w, "", v1, "", false, 1);
    wait_ready(w);
    assert_int_equal(w->ready_code, 0);
    stdio_free(io);
    run_ms(w, 100);
    free(v1);
    free(v2);
    free(path);
}

static void what_cannot_be_opened_is_refused_with_its_name(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *uri[3];
        const char *text;
    } bad[] = {
        {{"", "gopher:///x", ""}, "unknown STDIO scheme gopher"},
        {{"", "relative", ""}, "not an absolute path"},
        {{"binary:///bin/cat", "", ""}, "stdin"},
        {{"", "/nonexistent/fifo", ""}, "/nonexistent/fifo"},
        {{"/nonexistent/in", "", ""}, "/nonexistent/in"},
        {{"", "binary:///nonexistent/logger", ""}, "/nonexistent/logger"},
        {{"", "file:///proc/nowhere/x", ""}, "/proc/nowhere"},
        {{"", "file:///tmp/a", "file:///tmp/b"}, "the same file"},
        {{"", "", "binary:///bin/cat"}, "stdout too"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct stdio *io = NULL;
        struct err e = {0};
        const struct stdio_params p = {.loop = w->loop,
                                       .reaper = w->reaper,
                                       .ns = "test",
                                       .id = "box",
                                       .uri = {bad[i].uri[0], bad[i].uri[1], bad[i].uri[2]},
                                       .ready = on_ready,
                                       .data = w};
        assert_true(stdio_open(&p, &io, &e) < 0);
        assert_null(io);
        if (!strstr(err_text(&e), bad[i].text))
            print_error("row %zu: %s\n", i, err_text(&e));
        assert_non_null(strstr(err_text(&e), bad[i].text));
    }
}

static size_t count_fds(void)
{
    size_t n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void nothing_stays_open(void **state)
{
    struct world *w = *state;
    size_t before = count_fds();

    for (int i = 0; i < 20; i++) {
        int slave, fds[3], out = open_reader(w->path[1]);
        struct stdio *io = open_io(w, w->path[0], w->path[1], w->path[2], false, 0);
        be_child(io, fds);
        run_ms(w, 2);
        stdio_free(io);
        fd_close_all(fds, 3);
        io = open_io(w, w->path[0], w->path[1], "", true, 0);
        assert_int_equal(stdio_set_console(io, open_pty(&slave), NULL), 0);
        run_ms(w, 2);
        stdio_free(io);
        close(slave);
        io = open_io(w, w->path[0], w->path[1], "", false, 0); /* created and never started */
        stdio_free(io);
        close(out);
    }
    run_ms(w, 5);
    assert_int_equal(count_fds(), before);
}

static void names_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
        enum uri_kind kind;
        const char *path;
        size_t n_args;
    } rows[] = {
        {"", 0, URI_NULL, NULL, 0},
        {"/a/b", 0, URI_PATH, "/a/b", 0},
        {"fifo:///a/b", 0, URI_PATH, "/a/b", 0},
        {"file:///a%20b", 0, URI_FILE, "/a b", 0},
        {"binary:///l?a=b&c", 0, URI_LOGGER, "/l", 3},
        {"binary-v2:///l", 0, URI_LOGGER, "/l", 0},
        {"binary:///l?", 0, URI_LOGGER, "/l", 0},
        {"binary:///l?&&=x", 0, URI_LOGGER, "/l", 1},
        {"binary:///l%00x", -EINVAL, URI_NULL, NULL, 0},
        {"binary://", -EINVAL, URI_NULL, NULL, 0},
        {"a/b", -EINVAL, URI_NULL, NULL, 0},
        {"http://x", -EINVAL, URI_NULL, NULL, 0},
        {"BINARY:///l", -EINVAL, URI_NULL, NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct uri *u = NULL;
        assert_int_equal(uri_parse(rows[i].text, "stdout", &u, NULL), rows[i].code);
        if (rows[i].code)
            continue;
        assert_int_equal(u->kind, rows[i].kind);
        assert_int_equal(u->n_args, rows[i].n_args);
        if (rows[i].path)
            assert_string_equal(u->path, rows[i].path);
        uri_free(u);
    }
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(output_arrives_and_ends_when_the_process_closes),
        T(output_written_before_the_client_opens_is_not_lost),
        T(a_reader_that_goes_and_comes_back_finds_everything),
        T(a_stopped_reader_blocks_only_its_own_stream),
        T(large_output_comes_whole_and_in_order),
        T(stdin_ends_after_close_io_and_after_all_bytes),
        T(stdin_stays_open_when_one_client_leaves),
        T(close_io_does_not_touch_the_output),
        T(a_process_that_closes_its_stdin_does_not_end_anything_else),
        T(a_drain_is_bounded_when_somebody_else_holds_the_pipe),
        T(a_drain_is_over_at_once_when_all_is_delivered),
        T(a_drain_does_not_wait_for_a_client_that_never_came_when_there_is_nothing),
        T(a_terminal_carries_both_directions_and_its_size),
        T(a_terminal_survives_a_moment_without_slaves),
        T(a_file_gets_both_streams_appended_and_its_directory_made),
        T(a_logger_gets_its_arguments_environment_and_the_output),
        T(a_logger_that_dies_before_it_is_ready_is_an_error),
        T(a_logger_of_the_second_kind_must_confirm),
        T(what_cannot_be_opened_is_refused_with_its_name),
        T(nothing_stays_open),
        cmocka_unit_test(names_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
