#!/usr/bin/env python3
"""oracle.py SWEEP_COMMAND...: what the host's kernel really ran of a sweep, against what the table declares.

The observer is the raw_syscalls:sys_enter tracepoint: the kernel fires it after seccomp has let a call through, also for
FLAG_CONTINUE (kernel/entry/common.c).  Equality is asked for: a call that ran and is not declared native fails, and so does a
call that is declared native and did not run.  JUDGE names the program that knows the table.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

# The event filter already takes only the sweep; the name that a line shows is from a cache and may be a later one.
EVENT = re.compile(r"sys_enter: NR (-?\d+) \(([0-9a-f]+), ([0-9a-f]+), ([0-9a-f]+), ([0-9a-f]+), ([0-9a-f]+), ([0-9a-f]+)\)")


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


class Tracer:
    def __init__(self):
        self.mount = tempfile.mkdtemp(prefix="tracefs.")
        subprocess.run(["mount", "-t", "tracefs", "tracefs", self.mount], check=True)
        self.dir = f"{self.mount}/instances/glovebox-{os.getpid()}"
        os.mkdir(self.dir)
        write(f"{self.dir}/buffer_size_kb", "65536")
        write(f"{self.dir}/events/raw_syscalls/sys_enter/filter", 'comm == "gbsweep"')
        write(f"{self.dir}/events/raw_syscalls/sys_enter/enable", "1")

    def stop(self):
        write(f"{self.dir}/events/raw_syscalls/sys_enter/enable", "0")
        with open(f"{self.dir}/trace", errors="replace") as f:
            seen = {(int(m[1]), tuple(int(m[i], 16) for i in range(2, 8))) for m in map(EVENT.search, f) if m}
        lost = [open(f"{self.dir}/per_cpu/{c}/stats").read() for c in os.listdir(f"{self.dir}/per_cpu")]
        self.close()
        overrun = sum(int(re.search(r"overrun: (\d+)", s)[1]) for s in lost)
        if overrun:
            sys.exit(f"the trace lost {overrun} events; nothing can be said")
        return seen

    def close(self):
        os.rmdir(self.dir)
        subprocess.run(["umount", self.mount], check=True)
        os.rmdir(self.mount)


def main(command):
    tracer = Tracer()
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    except BaseException:
        tracer.stop()
        raise
    seen = tracer.stop()
    lines = [l for l in output.splitlines() if re.match(r"\d+ ", l)]
    for l in output.splitlines():
        if l.startswith("#"):
            print(l)
    attempts = [(int(l.split()[0]), tuple(int(a, 16) for a in l.split()[1:7])) for l in lines]
    declared = subprocess.run([os.environ["JUDGE"]], input=output, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")
    failed = collections.defaultdict(list)
    for attempt, verdict, line in zip(attempts, declared, lines):
        ran = attempt in seen
        if ran != (verdict == "native"):
            failed[f"{verdict}, but the kernel {'ran' if ran else 'did not run'} it"].append(line)
    for why, bad in failed.items():
        print(f"{why}: {len(bad)}")
        for line in bad[:40]:
            print(f"  {line}")
    n_failed = sum(map(len, failed.values()))
    ran = sum(a in seen for a in attempts)
    print(f"{len(attempts)} attempts, the kernel ran {ran} of them")
    if ran < 100:
        sys.exit("the observer saw next to nothing: the trace is broken, so this proves nothing")
    print(f"{len(attempts) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
