#!/usr/bin/env python3
"""bench_pause.py [MIB [CYCLES]]: what a pause gives back and what a resume costs, in a rig, beside runc's freezer in the same run.

Times are the kernel's monotonic clock, which the program inside writes to a shared file. Prints figures; never fails on one.
"""
import mmap
import os
import statistics
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
from ttrpc import Peer  # noqa: E402

WORK = os.path.join(os.environ["RIG_DIR"], "pause")
CONTROL = "glovebox.shim.v1.Control"
MIB = 1 << 20


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Box:
    """A container that holds memory; its words are in a file that both sides map."""

    def __init__(self, name, runtime, mib):
        self.name, self.runtime = name, runtime
        path = os.path.join(WORK, name)
        with open(path, "wb") as f:
            f.write(bytes(4096))
        os.chmod(path, 0o666)
        self.file = open(path, "r+b")
        self.shared = mmap.mmap(self.file.fileno(), 4096)
        run("ctr", "run", "-d", "--runtime", runtime, "--mount", f"type=bind,src={WORK},dst=/w,options=rbind:rw", os.environ["RIG_IMAGE"], name,
            "/w/hold", str(mib), f"/w/{name}")
        self.wait(lambda: self.word(0) > 0, 60)

    def word(self, i):
        return struct.unpack_from("<q", self.shared, i * 8)[0]

    def set(self, i, value):
        struct.pack_into("<q", self.shared, i * 8, value)

    @staticmethod
    def wait(condition, seconds):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.0001)

    def memory(self):
        for base in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
            for file in ("memory.usage_in_bytes", "memory.current"):
                path = f"{base}/{os.environ['RIG_NS']}/{self.name}/{file}"
                if os.path.exists(path):
                    return int(open(path).read())
        raise FileNotFoundError("memory of the container's cgroup")

    def call(self, method):
        """The shim itself, without containerd's client in between."""
        if self.runtime.endswith("runc.v2"):
            run("ctr", "tasks", method.lower(), self.name)
            return
        peer = Peer(f"/run/glovebox/pods/{self.name}.sock", timeout=60)
        peer.call(method, service=CONTROL)
        peer.close()

    def cycle(self):
        before = self.memory()
        t0 = time.monotonic_ns()
        self.call("Pause")
        paused_ms = (time.monotonic_ns() - t0) / 1e6
        after = self.memory()
        time.sleep(0.3)
        t0 = time.monotonic_ns()
        self.call("Resume")
        self.wait(lambda: self.word(0) > t0, 10)
        first_ms = (self.word(0) - t0) / 1e6
        self.set(2, 0)
        t0 = time.monotonic_ns()
        self.set(1, 64)
        self.wait(lambda: self.word(2) > 0, 30)
        touch_ms = (self.word(2) - t0) / 1e6
        self.wait(lambda: self.memory() > before * 0.95, 60)
        return before, after, paused_ms, first_ms, touch_ms

    def end(self):
        subprocess.run(["ctr", "tasks", "rm", "-f", self.name], capture_output=True)
        subprocess.run(["ctr", "containers", "rm", self.name], capture_output=True)


def main(mib=512, cycles=5):
    os.makedirs(WORK)
    os.chmod(WORK, 0o777)
    run("gcc", "-O1", "-static", "-o", f"{WORK}/hold", f"{HERE}/hold.c")
    print(f"{mib} MiB of random data, {cycles} cycles, medians\n")
    print(f"{'':10} {'charged MiB':>12} {'paused MiB':>11} {'given back':>11} {'pause ms':>9} {'first instruction ms':>21} {'64 MiB touched ms':>18}")
    for name, runtime in (("glovebox", os.environ["RIG_RUNTIME"]), ("runc", "io.containerd.runc.v2")):
        box = Box(name, runtime, mib)
        rows = [box.cycle() for _ in range(cycles)]
        before, after, pause, first, touch = (statistics.median(column) for column in zip(*rows))
        print(f"{name:10} {before / MIB:12.1f} {after / MIB:11.1f} {100 * (1 - after / before):10.1f}% {pause:9.1f} {first:21.2f} {touch:18.1f}", flush=True)
        box.end()
    print("\nrunc: the freezer alone, through `ctr tasks pause`, whose own start is some 20 ms of each time. Limits aimed at: 95 % back, 1000 ms per GiB, 5 ms, 250 ms.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
