"""Servers for the egress tests, in the network namespace that plays the world: DNS that logs every query, TCP and UDP echo.

servers.py LOG: listens on the addresses below (put on lo by the test); prints "ready".
"""
import selectors
import socket
import struct
import sys

NAMES = {  # what the authoritative server knows
    "api.test.example": ["198.51.100.10"],
    "cdn.test.example": ["198.51.100.10"],
    "evil.test.example": ["198.51.100.20"],
    "rebind.test.example": ["169.254.169.254", "198.51.100.10"],
    "deep.a.wild.test.example": ["198.51.100.20"],
    "svc.ns1.svc.cluster.local": ["198.51.100.20"],
}
TCP = [("198.51.100.10", 443), ("198.51.100.10", 80), ("198.51.100.20", 443), ("198.51.100.20", 9000), ("169.254.169.254", 80)]
UDP = [("198.51.100.30", 7), ("198.51.100.10", 443)]
DNS = ("198.51.100.53", 53)


def qname(msg):
    labels, at = [], 12
    while msg[at]:
        labels.append(msg[at + 1:at + 1 + msg[at]].decode("latin1"))
        at += 1 + msg[at]
    return ".".join(labels).lower(), at + 1


def dns_reply(msg, log):
    name, end = qname(msg)
    qtype = struct.unpack(">H", msg[end:end + 2])[0]
    print(f"{name} {qtype}", file=log, flush=True)
    known = name in NAMES or name.endswith(".wild.test.example")
    ips = NAMES.get(name, ["198.51.100.20"] if known else []) if qtype == 1 else []
    head = msg[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else 3), 1, len(ips), 0, 0)
    answers = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(ip) for ip in ips)
    return head + msg[12:end + 4] + answers


def main(log_path):
    log = open(log_path, "a")
    select = selectors.DefaultSelector()
    for address in TCP:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(address)
        s.listen(128)
        select.register(s, selectors.EVENT_READ, "tcp")
    for address in UDP + [DNS]:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(address)
        select.register(s, selectors.EVENT_READ, "dns" if address == DNS else "udp")
    print("ready", flush=True)
    while True:
        for key, _ in select.select():
            s = key.fileobj
            if key.data == "tcp":
                c, _ = s.accept()
                print(f"tcp {s.getsockname()[0]}:{s.getsockname()[1]}", file=log, flush=True)
                try:
                    c.sendall(b"hello\n")
                except OSError:  # a client of the race test is gone already
                    c.close()
                    continue
                select.register(c, selectors.EVENT_READ, "echo")
            elif key.data == "echo":
                try:
                    data = s.recv(4096)
                except OSError:
                    data = b""
                if not data:
                    select.unregister(s)
                    s.close()
                else:
                    s.sendall(data)
            else:
                data, peer = s.recvfrom(4096)
                if key.data == "udp":
                    print(f"udp {s.getsockname()[0]}:{s.getsockname()[1]}", file=log, flush=True)
                s.sendto(dns_reply(data, log) if key.data == "dns" else data, peer)


main(sys.argv[1])
