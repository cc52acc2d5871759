"""One line per attempt: what a program in the pod gets.  client.py: reads `tcp HOST PORT`, `udp HOST PORT`, `udpmsg`, `udpconnect`, `own PORT`, `race ...` lines."""
import socket
import sys
import threading


def tcp(host, port):
    with socket.create_connection((host, int(port)), 4) as s:
        return s.recv(16).decode().strip()


def udp(host, port, how):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    if how == "udpconnect":
        s.connect((host, int(port)))
        s.send(b"echo")
    elif how == "udpmsg":
        s.sendmsg([b"echo"], [], 0, (host, int(port)))
    else:
        s.sendto(b"echo", (host, int(port)))
    return s.recv(16).decode()


def own(port):
    """The pod's own loopback."""
    with socket.create_server(("127.0.0.1", int(port))) as server, socket.create_connection(("127.0.0.1", int(port)), 2) as c:
        server.accept()[0].sendall(b"own")
        return c.recv(3).decode()


def race(allowed, denied, port, tries):
    """Another thread writes the denied address into the struct all the time; every connection that comes up must go to the allowed one."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    sa = ctypes.create_string_buffer(16)

    def fill(ip):
        return socket.AF_INET.to_bytes(2, "little") + int(port).to_bytes(2, "big") + socket.inet_aton(ip) + bytes(8)

    good, bad, stop = fill(allowed), fill(denied), []
    good_ip, bad_ip = good[4:8], bad[4:8]

    def flip():
        while not stop:
            ctypes.memmove(ctypes.addressof(sa) + 4, bad_ip, 4)
            ctypes.memmove(ctypes.addressof(sa) + 4, good_ip, 4)

    ctypes.memmove(sa, good, 16)
    t = threading.Thread(target=flip)
    t.start()
    peers = {}
    for _ in range(int(tries)):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        if libc.connect(s.fileno(), sa, 16) == 0:
            peer = s.getpeername()[0]
            peers[peer] = peers.get(peer, 0) + 1
        s.close()
    stop.append(1)
    t.join()
    return ",".join(sorted(peers)) or "none"


for line in sys.stdin:
    what, *args = line.split()
    try:
        result = tcp(*args) if what == "tcp" else race(*args) if what == "race" else own(*args) if what == "own" else udp(*args, what)
    except socket.gaierror:
        result = "no such name"
    except OSError as e:
        result = e.strerror or "timed out"
    print(f"{line.strip()}: {result}", flush=True)
