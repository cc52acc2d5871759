"""Runs under the sentry: one line per case, "ok NAME" or "FAIL NAME: why"."""
import asyncio
import ctypes
import os
import select
import shutil
import socket
import struct
import tempfile
import threading

libc = ctypes.CDLL(None, use_errno=True)
CASES = []
TMP = tempfile.mkdtemp()


def case(fn):
    CASES.append(fn)
    return fn


def same(a, b):
    assert a == b, f"{a!r}, expected {b!r}"


def errno_of(fn, *args):
    try:
        fn(*args)
    except OSError as e:
        return e.errno
    return 0


def echo_server(family, address, n=1):
    s = socket.socket(family)
    s.bind((address, 0))
    s.listen(16)

    def serve():
        for _ in range(n):
            c, _peer = s.accept()
            while data := c.recv(65536):
                c.sendall(data)
            c.close()
        s.close()
    threading.Thread(target=serve, daemon=True).start()
    return s.getsockname()


def exchange(family, address, n=1000):
    c = socket.create_connection(echo_server(family, address)[:2])
    c.sendall(b"x" * n)
    got = b""
    while len(got) < n:
        got += c.recv(n)
    return c


@case
def tcp_over_ipv4_and_ipv6():
    same(exchange(socket.AF_INET, "127.0.0.1").getpeername()[0], "127.0.0.1")
    same(exchange(socket.AF_INET6, "::1").getpeername()[0], "::1")


@case
def a_v4_mapped_address_on_an_ipv6_socket():
    c = socket.socket(socket.AF_INET6)
    c.connect(("::ffff:127.0.0.1", echo_server(socket.AF_INET, "127.0.0.1")[1]))
    c.send(b"q")
    same(c.recv(1), b"q")


@case
def epoll_registered_before_a_non_blocking_connect():
    c = socket.socket()
    c.setblocking(False)
    ep = select.epoll()
    ep.register(c.fileno(), select.EPOLLOUT)
    c.connect_ex(echo_server(socket.AF_INET, "127.0.0.1"))
    same(ep.poll(2)[0][1], select.EPOLLOUT)
    same(c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)


@case
def errors_are_the_kernels():
    same(socket.socket().connect_ex(("127.0.0.1", 1)), 111)
    a = socket.socket()
    a.bind(("127.0.0.1", 0))
    a.listen()
    same(errno_of(socket.socket().bind, a.getsockname()), 98)
    same(errno_of(socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto, b"x" * 70000, ("127.0.0.1", 9)), 90)
    for family, kind, protocol, want in ((40, 1, 0, 97), (38, 5, 0, 97), (17, 3, 0, 97), (2, 1, 262, 93), (2, 3, 1, 1)):
        same(errno_of(socket.socket, family, kind, protocol), want)


def raw(*args):
    ctypes.set_errno(0)
    r = libc.syscall(*[ctypes.c_long(a) for a in args])
    return r if r >= 0 else -ctypes.get_errno()


@case
def bad_arguments_are_refused_as_by_the_kernel():
    t = socket.socket()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    pipe = os.pipe()[0]
    space = ctypes.create_string_buffer(struct.pack("<HH4s8x", 2, 0x0900, bytes([127, 0, 0, 1])), 128)
    good = ctypes.addressof(space)
    connect, sendto, sendmsg, bind, listen, sendmmsg, sendfile = 42, 44, 46, 49, 50, 307, 40
    for want, args in (
            (-9, (connect, 999, good, 16)), (-9, (connect, -1, good, 16)), (-88, (connect, pipe, good, 16)),
            (-14, (connect, t.fileno(), 0, 16)), (-14, (connect, t.fileno(), 8, 16)), (-22, (connect, t.fileno(), good, -1)),
            (-22, (connect, t.fileno(), good, 129)), (-22, (connect, t.fileno(), good, 3)), (-22, (connect, t.fileno(), good, 0)),
            (-14, (bind, t.fileno(), 1 << 46, 16)), (-22, (bind, t.fileno(), good, 1)), (-9, (listen, 999, 1)), (-88, (listen, pipe, 1)),
            (-95, (listen, u.fileno(), 1)), (-14, (sendto, u.fileno(), 8, 4, 0, good, 16)), (-14, (sendto, u.fileno(), good, 4, 0, 8, 16)),
            (-90, (sendto, u.fileno(), good, 1 << 40, 0, good, 16)), (-95, (sendto, u.fileno(), good, 4, 0x20000000, good, 16)),
            (-14, (sendmsg, u.fileno(), 0, 0)), (-14, (sendmmsg, u.fileno(), 8, 2, 0)), (0, (sendmmsg, u.fileno(), good, 0, 0)),
            (-9, (sendfile, 999, 998, 0, 10)), (-9, (sendmsg, 999, 0, 0))):
        same((args, raw(*args)), (args, want))


@case
def udp_with_and_without_connect():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
    s.bind(("0.0.0.0", 0))
    to = ("127.0.0.1", s.getsockname()[1])
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    c.sendto(b"one", to)
    same(s.recv(10), b"one")
    c.sendmsg([b"a" * 30000, b"b" * 30000], [], 0, to)
    data, control, _flags, peer = s.recvmsg(65536, 200)
    same(data, b"a" * 30000 + b"b" * 30000)
    s.sendmsg([b"pong"], [control[0]], 0, peer)  # from the address it came to
    same(c.recv(10), b"pong")
    c.connect(to)
    c.sendmsg([b"h", b"i"])
    same(s.recv(10), b"hi")
    same(libc.connect(c.fileno(), b"\0" * 16, 16), 0)  # AF_UNSPEC: disconnect
    same(errno_of(c.send, b"x"), 89)


@case
def unix_sockets_are_native():
    path = TMP + "/u"
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen()
    c = socket.socket(socket.AF_UNIX)
    c.connect(path)
    x, _ = s.accept()
    same(struct.unpack("3i", x.getsockopt(1, 17, 12))[0], os.getpid())  # the peer is the program, not the sentry
    inet = socket.create_connection(echo_server(socket.AF_INET, "127.0.0.1"))
    socket.send_fds(c, [b"f"], [inet.fileno()])
    _m, fds, _f, _a = socket.recv_fds(x, 10, 1)
    inet.close()
    k = socket.socket(fileno=fds[0])
    k.send(b"z")
    same(k.recv(1), b"z")
    d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    d.bind("\0name")
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\0name")
    same(d.recv(1), b"x")
    a, _b = socket.socketpair()
    same(errno_of(a.send, b"x", socket.MSG_OOB), 95)


@case
def sockets_survive_dup_and_fork():
    c = socket.create_connection(echo_server(socket.AF_INET, "127.0.0.1"))
    d = c.dup()
    c.close()
    pid = os.fork()
    if pid == 0:
        d.send(b"child")
        os._exit(0)
    os.waitpid(pid, 0)
    same(d.recv(10), b"child")


@case
def two_servers_share_a_port():
    a = [socket.socket() for _ in range(2)]
    for s in a:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        s.bind(a[0].getsockname() if s is a[1] else ("127.0.0.1", 0))
        s.listen()


@case
def close_on_exec_and_non_blocking_are_honoured():
    for flags, cloexec, nonblocking in ((0, 0, 0), (0o2000000, 1, 0), (0o4000, 0, 0o4000), (0o2004000, 1, 0o4000)):
        fd = raw(41, 2, 1 | flags, 0)
        same(raw(72, fd, 1, 0), cloexec)
        same(raw(72, fd, 3, 0) & 0o4000, nonblocking)
        os.close(fd)


@case
def asyncio_streams():
    async def run():
        async def handler(r, w):
            w.write(await r.read(5))
            await w.drain()
            w.close()
        s = await asyncio.start_server(handler, "127.0.0.1", 0)
        r, w = await asyncio.open_connection("127.0.0.1", s.sockets[0].getsockname()[1])
        w.write(b"12345")
        return await r.read()
    same(asyncio.run(run()), b"12345")


@case
def interfaces_are_those_of_the_pods_network():
    same(socket.if_nameindex()[0][1], "lo")


@case
def sendfile_to_a_socket_and_to_a_file():
    path = TMP + "/f"
    data = os.urandom(3_000_000)
    with open(path, "wb") as f:
        f.write(data)
    a, b = socket.socketpair()
    for out, peer in ((a, b), (lambda s: (s[0], s[1]))(tcp_pair())):
        got = bytearray()

        def read():
            while len(got) < len(data):
                got.extend(peer.recv(65536))
        t = threading.Thread(target=read)
        t.start()
        with open(path, "rb") as f:
            same(out.sendfile(f), len(data))
        t.join(10)
        assert bytes(got) == data
    with open(path, "rb") as f:  # the position moves when there is no offset
        n = raw(40, a.fileno(), f.fileno(), 0, 1000)
        same((n, os.lseek(f.fileno(), 0, 1)), (1000, 1000))
    shutil.copyfile(path, TMP + "/g")
    same(os.path.getsize(TMP + "/g"), len(data))
    with open("/proc/self/maps", "rb") as f:
        same(raw(40, a.fileno(), f.fileno(), 0, 1000), -22)


def tcp_pair():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen()
    c = socket.create_connection(s.getsockname())
    return c, s.accept()[0]


@case
def a_broken_pipe_raises_the_signal():
    import signal
    hits = []
    old = signal.signal(signal.SIGPIPE, lambda *a: hits.append(1))
    a, b = socket.socketpair()
    b.close()
    with open("/etc/passwd", "rb") as f:
        same(raw(40, a.fileno(), f.fileno(), 0, 10), -32)
    same(hits, [1])
    signal.signal(signal.SIGPIPE, old)


for fn in CASES:
    try:
        fn()
        print("ok", fn.__name__, flush=True)
    except BaseException as e:  # noqa: B902
        print(f"FAIL {fn.__name__}: {type(e).__name__} {e}", flush=True)
