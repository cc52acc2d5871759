#!/usr/bin/python3
# rig: 2.4
# timeout: 300
"""Standard streams of real containers: FIFOs, terminals, files and loggers; readers and writers that come late, leave, or sleep."""
import os
import select
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from shimrig import Shim, eventually, main, message, same  # noqa: E402

SLEEP = ["sleep", "1000"]


class Reader:
    """Opens a FIFO as containerd does, in a thread that waits in open(2), and collects what comes until the end."""

    def __init__(self, path):
        self.data, self.ended = b"", threading.Event()
        self.path = path
        threading.Thread(target=self.run, daemon=True).start()
        time.sleep(0.002)

    def run(self):
        with open(self.path, "rb", buffering=0) as f:
            while True:
                piece = f.read(65536)
                if not piece:
                    break
                self.data += piece
        self.ended.set()

    def all(self, seconds=10):
        assert self.ended.wait(seconds), f"no end of {self.path} after {len(self.data)} bytes"
        return self.data


def box(s, name="box", args=None, **more):
    s.run(name, args or SLEEP, **more)


def end(s, name="box"):
    s.kill(name)
    s.wait(name)
    s.delete(name)
    s.shutdown()


def exec_output(s, exec_id, args, stdin=None, container="box", **more):
    """(stdout, status) of an exec."""
    out = s.fifo(f"{exec_id}-out")
    reader = Reader(out)
    s.exec_(container, exec_id, args, stdout=out, stdin=stdin or "", **more)
    s.start(container, exec_id)
    status = s.wait(container, exec_id)
    s.delete(container, exec_id)
    data = reader.all()
    os.unlink(out)
    return data, status


def no_output_is_lost_when_the_process_ends_at_once():
    s = Shim()
    box(s)
    for i in range(300):
        same(exec_output(s, f"q{i}", ["echo", f"line {i}"]), (f"line {i}\n".encode(), 0))
    same(len(exec_output(s, "big", ["head", "-c", "3000000", "/dev/zero"])[0]), 3000000)
    end(s)


def output_of_a_container_comes_whole_and_apart():
    s = Shim()
    out, err = s.fifo("o"), s.fifo("e")
    readers = Reader(out), Reader(err)
    s.run("box", ["sh", "-c", "head -c 1000000 /dev/zero; echo problem >&2; exit 4"], stdio={"stdout": out, "stderr": err})
    same(s.wait("box"), 4)
    same(len(readers[0].all()), 1000000)
    same(readers[1].all(), b"problem\n")
    s.delete("box")
    s.shutdown()


def write_all(path, data, close=True):
    fd = os.open(path, os.O_WRONLY)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view[:65536]):]
    if close:
        os.close(fd)
    return fd


def stdin_of_an_exec_ends_after_all_of_it():
    s = Shim()
    box(s)
    for i, size in enumerate((0, 1, 1 << 20)):
        fifo, out = s.fifo(f"in{i}"), s.fifo(f"out{i}")
        reader = Reader(out)
        s.exec_("box", f"e{i}", ["wc", "-c"], stdin=fifo, stdout=out)
        s.start("box", f"e{i}")
        writer = threading.Thread(target=write_all, args=(fifo, b"x" * size))
        writer.start()
        writer.join(10)
        s.call("CloseIO", message(_1="box", _2=f"e{i}", _3=True))
        same(reader.all().strip(), str(size).encode())
        same(s.wait("box", f"e{i}"), 0)
        s.delete("box", f"e{i}")
    end(s)


def an_end_of_stdin_that_comes_before_the_start_is_kept():
    s = Shim()
    box(s)
    fifo, out = s.fifo("in"), s.fifo("out")
    reader = Reader(out)
    s.exec_("box", "e", ["cat"], stdin=fifo, stdout=out)
    s.call("CloseIO", message(_1="box", _2="e", _3=True))
    s.call("CloseIO", message(_1="box", _2="e", _3=True))
    s.start("box", "e")
    same(s.wait("box", "e"), 0)
    same(reader.all(), b"")
    s.delete("box", "e")
    end(s)


def an_end_of_stdin_does_not_cut_the_output():
    s = Shim()
    box(s)
    out = s.fifo("out")
    reader = Reader(out)
    s.exec_("box", "e", ["sh", "-c", "echo a; sleep 0.3; cat; echo b"], stdout=out)
    s.start("box", "e")
    s.call("CloseIO", message(_1="box", _2="e", _3=True))
    same(s.wait("box", "e"), 0)
    same(reader.all(), b"a\nb\n")
    s.delete("box", "e")
    end(s)


def stdin_stays_open_for_the_next_client():
    s = Shim()
    fifo, out = s.fifo("in"), s.fifo("out")
    reader = Reader(out)
    s.run("box", ["cat"], stdio={"stdin": fifo, "stdout": out})
    for _ in range(3):
        write_all(fifo, b"hello\n")
        time.sleep(0.05)
    same(s.status("box"), "RUNNING")
    s.call("CloseIO", message(_1="box", _3=True))
    same(s.wait("box"), 0)
    same(reader.all(), b"hello\n" * 3)
    s.delete("box")
    s.shutdown()


def read_lines(fd, n):
    """At least n lines of a descriptor that does not wait."""
    data, stop = b"", time.monotonic() + 10
    while data.count(b"\n") < n:
        assert time.monotonic() < stop, f"only {data!r}"
        select.select([fd], [], [], 1)
        try:
            data += os.read(fd, 1 << 16)
        except BlockingIOError:
            pass
    return data


def a_reader_that_leaves_kills_nobody_and_the_next_one_reads_on():
    s = Shim()
    out = s.fifo("out")
    first = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    s.run("box", ["sh", "-c", "i=0; while :; do echo $i || exit 9; i=$((i+1)); sleep 0.01; done"], stdio={"stdout": out})
    got = read_lines(first, 5)
    os.close(first)
    time.sleep(0.5)
    same(s.status("box"), "RUNNING")
    second = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    got += read_lines(second, 30)
    numbers = [int(n) for n in got.split()[:-1]]
    same(numbers, list(range(len(numbers))), "numbers")
    os.close(second)
    end(s)


def a_container_whose_reader_is_away_ends_and_keeps_its_last_words():
    s = Shim()
    out = s.fifo("out")
    first = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    s.run("box", ["sh", "-c", "sleep 0.2; echo last words"], stdio={"stdout": out})
    os.close(first)
    same(s.wait("box"), 0)
    time.sleep(0.3)
    second = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    select.select([second], [], [], 2)
    same(os.read(second, 100), b"last words\n")
    os.close(second)
    s.delete("box")
    s.shutdown()


def a_sleeping_reader_delays_only_its_own_stream():
    s = Shim()
    out = s.fifo("out")
    asleep = os.open(out, os.O_RDONLY | os.O_NONBLOCK)
    s.run("box", ["yes"], stdio={"stdout": out})
    time.sleep(0.3)
    begin = time.monotonic()
    same(s.status("box"), "RUNNING")
    same(exec_output(s, "e", ["echo", "free"]), (b"free\n", 0))
    s.kill("box")
    same(s.wait("box"), 137)
    assert time.monotonic() - begin < 3, "calls wait for the reader"
    begin = time.monotonic()
    s.delete("box")
    assert 1 < time.monotonic() - begin < 7, "the drain is not bounded"
    os.close(asleep)
    s.shutdown()


def delete_of_an_exec_lets_go_of_what_its_children_hold():
    s = Shim()
    box(s)
    out = s.fifo("out")
    reader = Reader(out)
    s.exec_("box", "e", ["sh", "-c", "sleep 1000 & echo started"], stdout=out)
    s.start("box", "e")
    same(s.wait("box", "e"), 0)
    begin = time.monotonic()
    s.delete("box", "e")
    same(reader.all(3), b"started\n")
    assert time.monotonic() - begin < 7
    end(s)


def a_client_that_opens_late_gets_everything():
    s = Shim()
    box(s)
    out = s.fifo("out")
    s.exec_("box", "e", ["echo", "early"], stdout=out)
    s.start("box", "e")
    same(s.wait("box", "e"), 0)
    time.sleep(0.2)
    reader = Reader(out)
    same(reader.all(), b"early\n")
    s.delete("box", "e")
    end(s)


def terminal(s, name):
    """FIFOs of a terminal: (stdin path, reader of stdout, stdout path)"""
    out = s.fifo(f"{name}-out")
    return s.fifo(f"{name}-in"), Reader(out), out


def a_terminal_has_a_size_that_can_change_before_and_after_the_start():
    s = Shim()
    box(s)
    fifo, reader, out = terminal(s, "t")
    s.exec_("box", "t", ["sh", "-c", "stty size; read x; stty size; tty; echo $x"], terminal=True, stdin=fifo, stdout=out)
    s.call("ResizePty", message(_1="box", _2="t", _3=132, _4=43))
    s.start("box", "t")
    eventually(lambda: b"43 132\r\n" in reader.data, "the first size")
    s.call("ResizePty", message(_1="box", _2="t", _3=80, _4=25))
    write_all(fifo, b"typed\n")
    same(s.wait("box", "t"), 0)
    text = reader.all()
    assert b"25 80\r\n" in text and b"/dev/pts/" in text and text.count(b"typed\r\n") == 2, text
    s.delete("box", "t")
    end(s)


def a_container_with_a_terminal_reads_and_writes_it():
    s = Shim()
    fifo, reader, out = terminal(s, "t")
    s.create("box", ["sh", "-c", "echo ready; read a; echo got $a; exit 5"], stdio={"terminal": True, "stdin": fifo, "stdout": out},
             process={"args": ["sh", "-c", "echo ready; read a; echo got $a; exit 5"], "cwd": "/", "env": ["PATH=/bin"],
                      "user": {"uid": 0, "gid": 0}, "terminal": True, "consoleSize": {"height": 30, "width": 100}})
    s.start("box")
    eventually(lambda: b"ready\r\n" in reader.data, "the first line")
    write_all(fifo, b"word\n")
    same(s.wait("box"), 5)
    assert b"got word\r\n" in reader.all()
    s.delete("box")
    s.shutdown()


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def nothing_stays_open_after_many_terminals_and_containers_that_never_ran():
    s = Shim()
    box(s)
    pid = s.pid()
    before = descriptors(pid)
    for i in range(100):
        fifo, _, out = terminal(s, "t")
        s.exec_("box", f"t{i}", ["true"], terminal=True, stdin=fifo, stdout=out)
        s.start("box", f"t{i}")
        s.wait("box", f"t{i}")
        s.delete("box", f"t{i}")
    for i in range(30):
        out = s.fifo("c-out")
        s.create(f"c{i}", SLEEP, stdio={"stdin": s.fifo("c-in"), "stdout": out, "stderr": out})
        s.delete(f"c{i}")
        s.exec_("box", f"n{i}", ["true"], stdin=s.fifo("c-in"), stdout=out)
        s.delete("box", f"n{i}")
    eventually(lambda: descriptors(pid) <= before, f"{before} descriptors as before", 3)
    masters = [f for f in os.listdir(f"/proc/{pid}/fd") if "ptmx" in os.readlink(f"/proc/{pid}/fd/{f}")]
    same(masters, [])
    end(s)


def the_pipes_belong_to_the_user_who_may_open_them_again():
    s = Shim()
    box(s)
    for user in (0, 1000):
        same(exec_output(s, f"u{user}", ["sh", "-c", "echo again > /dev/stdout; echo and > /proc/self/fd/1"],
                         user={"uid": user, "gid": user}), (b"again\nand\n", 0), f"output of user {user}")
    end(s)


def a_file_takes_both_streams_and_the_container_never_has_it():
    s = Shim()
    uri = f"file://{s.dir}/logs/deep/box.log"
    s.run("box", ["sh", "-c", "echo out; echo err >&2; ls -l /proc/self/fd/1"], stdio={"stdout": uri, "stderr": uri})
    same(s.wait("box"), 0)
    s.delete("box")
    with open(f"{s.dir}/logs/deep/box.log", encoding="ascii") as f:
        text = f.read()
    assert "out\n" in text and "err\n" in text and "pipe:" in text, text
    s.shutdown()


def a_logger_reads_both_streams_to_their_end():
    s = Shim()
    logger = f"{s.dir}/logger"
    with open(logger, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\necho $1 $2 $CONTAINER_ID $CONTAINER_NAMESPACE >{s.dir}/who\necho >&5\n"
                f"cat <&4 >{s.dir}/err &\ncat <&3 >{s.dir}/out\nwait\n")
    os.chmod(logger, 0o755)
    uri = f"binary://{logger}?key=value"
    s.run("box", ["sh", "-c", "head -c 500000 /dev/zero; echo problem >&2"], stdio={"stdout": uri, "stderr": uri})
    same(s.wait("box"), 0)
    s.delete("box")
    same(os.path.getsize(f"{s.dir}/out"), 500000, "bytes of stdout")
    same(open(f"{s.dir}/err", encoding="ascii").read(), "problem\n")
    same(open(f"{s.dir}/who", encoding="ascii").read(), f"key value box {os.environ['RIG_NS']}\n")
    s.shutdown()


def an_exec_with_a_megabyte_of_arguments_starts():
    s = Shim()
    box(s)
    words = ["x" * 1000] * 1000
    data, status = exec_output(s, "long", ["sh", "-c", "echo $#", "sh", *words])
    same((data, status), (b"1000\n", 0))
    end(s)


if __name__ == "__main__":
    main([no_output_is_lost_when_the_process_ends_at_once, output_of_a_container_comes_whole_and_apart,
          stdin_of_an_exec_ends_after_all_of_it, an_end_of_stdin_that_comes_before_the_start_is_kept,
          an_end_of_stdin_does_not_cut_the_output, stdin_stays_open_for_the_next_client,
          a_reader_that_leaves_kills_nobody_and_the_next_one_reads_on,
          a_container_whose_reader_is_away_ends_and_keeps_its_last_words, a_sleeping_reader_delays_only_its_own_stream,
          delete_of_an_exec_lets_go_of_what_its_children_hold, a_client_that_opens_late_gets_everything,
          a_terminal_has_a_size_that_can_change_before_and_after_the_start, a_container_with_a_terminal_reads_and_writes_it,
          nothing_stays_open_after_many_terminals_and_containers_that_never_ran,
          the_pipes_belong_to_the_user_who_may_open_them_again, a_file_takes_both_streams_and_the_container_never_has_it,
          a_logger_reads_both_streams_to_their_end, an_exec_with_a_megabyte_of_arguments_starts])
