"""Calls that block.  blocked.py signals|pause|storm; prints "ok NAME" or "FAIL NAME: why"."""
import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)


def full_listener():
    """A connect to it waits, until somebody accepts."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(0)
    keep = []
    for _ in range(3):
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex(s.getsockname())
        keep.append(c)
    time.sleep(0.05)
    return s, keep


def check(name, ok, why=""):
    print(f"ok {name}" if ok else f"FAIL {name}: {why}", flush=True)


class Alarm(Exception):
    pass


def on_alarm(*_):
    raise Alarm


def accept_all(s, until):
    s.settimeout(0.2)
    kept = []
    while not until():
        try:
            kept.append(s.accept())
        except OSError:
            pass


def raw_connect(address, interrupt, timeout=False, accept=None):
    """(result, errno, seconds) of a connect that gets SIGUSR2 after 0.3 s."""
    signal.siginterrupt(signal.SIGUSR2, interrupt)
    c = socket.socket()
    if timeout:
        c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 5, 0))
    main = threading.main_thread().ident
    threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGUSR2)).start()
    done = []
    if accept:
        threading.Timer(0.7, lambda: accept_all(accept, lambda: done)).start()
    at = time.monotonic()
    sa = struct.pack("<H", 2) + struct.pack(">H", address[1]) + bytes([127, 0, 0, 1]) + bytes(8)
    r = libc.connect(c.fileno(), sa, 16)
    e = ctypes.get_errno() if r else 0
    done.append(1)
    return r, e, time.monotonic() - at


def signals():
    s, _keep = full_listener()
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    at = time.monotonic()
    try:
        socket.socket().connect(s.getsockname())
        check("an alarm ends a blocked connect", False, "it connected")
    except Alarm:
        check("an alarm ends a blocked connect", time.monotonic() - at < 2, time.monotonic() - at)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    at = time.monotonic()
    try:
        socket.socket().connect(s.getsockname())
        check("control-C ends a blocked connect", False, "it connected")
    except KeyboardInterrupt:
        check("control-C ends a blocked connect", time.monotonic() - at < 2, time.monotonic() - at)
    hits = []
    signal.signal(signal.SIGUSR2, lambda *a: hits.append(1))
    r = raw_connect(s.getsockname(), True)
    check("a handler without SA_RESTART: EINTR", r[:2] == (-1, 4) and r[2] < 2, r)
    r = raw_connect(s.getsockname(), False, timeout=True)
    check("a socket with a timeout is not restarted: EINTR", r[:2] == (-1, 4) and r[2] < 2, r)
    r = raw_connect(s.getsockname(), False, accept=s)
    check("a handler with SA_RESTART: the connect goes on and succeeds", r[0] == 0 and len(hits) == 3, (r, hits))


def pause():
    s, _keep = full_listener()
    results, errors, calls = [], [], [0]

    def connect():
        try:
            socket.socket().connect(s.getsockname())
            results.append("ok")
        except OSError as e:
            results.append(repr(e))

    def busy():
        while threads_alive():
            try:
                u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                u.connect(("127.0.0.1", 9))
                u.close()
                calls[0] += 1
            except OSError as e:
                errors.append(repr(e))
    threads = [threading.Thread(target=connect) for _ in range(3)]

    def threads_alive():
        return any(t.is_alive() for t in threads)
    for t in threads:
        t.start()
    b = threading.Thread(target=busy)
    b.start()
    gap, last, start = 0, time.monotonic(), time.monotonic()
    while time.monotonic() - start < 2.5:
        now = time.monotonic()
        gap, last = max(gap, now - last), now
        time.sleep(0.005)
    accept_all(s, lambda: not threads_alive() or time.monotonic() - start > 40)
    b.join()
    check("a pause really stops the program", gap > 0.5, gap)
    check("blocked connects go on after a pause, without EINTR", results == ["ok"] * 3, results)
    check("no short call fails because of a pause", not errors and calls[0] > 10, errors[:3])


def storm():
    s, _keep = full_listener()
    results = []

    def connect():
        c = socket.socket()
        c.settimeout(None)
        results.append(c.connect_ex(s.getsockname()))
    threading.stack_size(65536)
    for _ in range(400):
        threading.Thread(target=connect, daemon=True).start()
    time.sleep(3)
    check("blocked calls beyond the limit fail with ENOBUFS", results and set(results) == {105} and len(results) < 200, sorted(results)[:5] + [len(results)])
    at = time.monotonic()
    for _ in range(100):
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        u.connect(("127.0.0.1", 9))
        u.close()
    took = time.monotonic() - at
    check("other calls are served while hundreds block", took < 2, took)
    os._exit(0)  # the kernel ends the blocked ones with us


globals()[sys.argv[1]]()
