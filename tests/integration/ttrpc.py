"""A small ttrpc peer for tests: protobuf by hand, blocking sockets.  Knows nothing of our C code, so it checks it."""
import os
import socket
import struct

TASK = "containerd.task.v2.Task"
LIMIT = 4 << 20
CODES = {"not found": 5, "unimplemented": 12, "invalid": 3, "exhausted": 8, "exists": 6, "unknown": 2, "precondition": 9}


def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while True:
        byte, n = n & 127, n >> 7
        out += bytes([byte | (128 if n else 0)])
        if not n:
            return out


def field(number, value):
    """A field by the type of its value: str and bytes, int and bool, list (repeated), None (absent)."""
    if value is None:
        return b""
    if isinstance(value, list):
        return b"".join(field(number, item) for item in value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(int(value)) if value else b""


def message(**fields):
    """message(_1="t1", _3=9)"""
    return b"".join(field(int(name[1:]), value) for name, value in fields.items())


def decode(data):
    """{number: last value}; lengths-delimited values are bytes."""
    out, at = {}, 0

    def take_varint():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    while at < len(data):
        tag = take_varint()
        if tag & 7 == 0:
            out[tag >> 3] = take_varint()
        elif tag & 7 == 2:
            size = take_varint()
            out[tag >> 3] = data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {tag & 7}")
    return out


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(f"code {code}: {text}")
        self.code, self.text = code, text


class Peer:
    def __init__(self, address, timeout=10):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(address.removeprefix("unix://"))
        self.stream = -1
        self.late = {}

    def close(self):
        self.sock.close()

    def send_frame(self, stream, kind, payload, flags=0, length=None):
        self.sock.sendall(struct.pack(">IIBB", len(payload) if length is None else length, stream, kind, flags) + payload)

    def send(self, method, payload=b"", service=TASK, timeout_ns=0):
        """Sends a request and returns its stream."""
        self.stream += 2
        pair = message(_1="containerd-namespace-ttrpc", _2="default")
        self.send_frame(self.stream, 1, message(_1=service, _2=method, _3=payload, _4=timeout_ns, _5=pair))
        return self.stream

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.sock.recv(min(size - len(data), 1 << 16))
            if not more:
                raise EOFError
            data += more
        return data

    def frame(self):
        size, stream, kind, _ = struct.unpack(">IIBB", self.read(10))
        return stream, kind, self.read(size)

    def receive(self, stream):
        """The answer to that request, whatever else comes before it."""
        while stream not in self.late:
            got, kind, payload = self.frame()
            assert kind == 2, f"frame of type {kind}"
            self.late[got] = payload
        answer = decode(self.late.pop(stream))
        if 1 in answer:
            status = decode(answer[1])
            raise Refused(status.get(1, 0), status.get(2, b"").decode())
        return decode(answer.get(2, b""))

    def call(self, method, payload=b"", **more):
        return self.receive(self.send(method, payload, **more))


def task_call(address, method, payload=b"", **more):
    peer = Peer(address)
    try:
        return peer.call(method, payload, **more)
    finally:
        peer.close()


def bundle(ns, container):
    return f"/run/containerd/io.containerd.runtime.v2.task/{ns}/{container}"


def address_of(ns, container):
    with open(os.path.join(bundle(ns, container), "address"), encoding="ascii") as f:
        return f.read()
