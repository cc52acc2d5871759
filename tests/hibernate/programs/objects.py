"""Objects and a large buffer, checked until SIGUSR1."""
import hashlib
import os
import signal
import sys
import time

stop = []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
data = os.urandom(64 << 20)
want = hashlib.sha1(data).hexdigest()
table = {str(i): i * 3 for i in range(200_000)}
total = sum(table.values())
rounds = 0
while not stop or rounds % 50:
    time.sleep(0.005)
    rounds += 1
    if rounds % 50 == 0 and (hashlib.sha1(data).hexdigest() != want or sum(table.values()) != total):
        print("WRONG", flush=True)
        sys.exit(9)
print(f"right after {rounds} rounds")
