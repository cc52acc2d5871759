"""hold.py HOST:PORT...: keeps a connection to each (port 7: UDP) and sends now and then; says when one ends."""
import socket
import sys
import threading
import time


def hold(where):
    host, port = where.split(":")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if port == "7" else socket.SOCK_STREAM)
    s.connect((host, int(port)))
    print(where, "holding", flush=True)
    try:
        while True:
            s.send(b"x")
            if not s.recv(100):
                break
            time.sleep(0.05)
    except OSError:
        pass
    print(where, "ended", flush=True)


for t in [threading.Thread(target=hold, args=(a,)) for a in sys.argv[1:]]:
    t.start()
