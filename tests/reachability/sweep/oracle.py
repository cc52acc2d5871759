#!/usr/bin/env python3
"""oracle.py SWEEP_COMMAND...: what the host's kernel really ran of a sweep, against what the table declares.

Equality is asked for: a call that ran and is not declared native fails, and so does a
call that is declared native and did not run.  JUDGE names the program that knows the table.
"""
import collections
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from tracer import Tracer  # noqa: E402


def main(command):
    tracer = Tracer("gbsweep")
    try:
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    except BaseException:
        tracer.stop()
        raise
    seen = set(tracer.stop())
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
