#!/usr/bin/python3
# timeout: 300
"""Programs under the filter and the sentry, without containerd and launcher (tests/integration/sentry_driver.c)."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PROFILE = os.environ.get("PROFILE", "debug")
FAILED = 0


def build():
    if os.environ.get("SENTRY_DRIVER"):
        return os.environ["SENTRY_DRIVER"]
    subprocess.run(["make", "-s", "-C", TOP, f"PROFILE={PROFILE}", "sentry-driver"], check=True)
    return os.path.join(TOP, "build", PROFILE, "tests", "integration", "sentry_driver")


def say(name, ok, why=""):
    global FAILED
    FAILED += not ok
    print(f"ok {name}" if ok else f"FAIL {name}: {why}", flush=True)


class Run:
    """One program under the driver; audit lines are collected."""

    def __init__(self, *args, limit=60, sigpending=None):
        audit = tempfile.TemporaryFile()
        few = ["prlimit", f"--sigpending={sigpending}"] if sigpending is not None else []
        p = subprocess.run([*few, DRIVER, *args], capture_output=True, text=True, errors="replace", timeout=limit, cwd=WORK,
                           preexec_fn=lambda: os.dup2(audit.fileno(), 9), pass_fds=(9,))
        audit.seek(0)
        self.code, self.out, self.err = p.returncode, p.stdout, p.stderr
        self.audit = [json.loads(line) for line in audit.read().splitlines()]


def python(*args, options=(), limit=90, **more):
    return Run(*options, "--", "/usr/bin/python3", *args, limit=limit, **more)


def relay(run, lines_wanted):
    """The program's own lines are cases of ours."""
    global FAILED
    lines = re.findall(r"^(ok|FAIL) (.*)$", run.out, re.M)
    for verdict, text in lines:
        FAILED += verdict == "FAIL"
        print(verdict, text, flush=True)
    say(f"the program ran to its end ({len(lines)} cases)", len(lines) >= lines_wanted and run.code == 0, f"status {run.code}: {run.err[-500:]}")


def programs():
    relay(python(WORK + "/sockets.py"), 14)
    relay(python(WORK + "/blocked.py", "signals"), 5)
    relay(python(WORK + "/blocked.py", "storm"), 2)
    relay(python(WORK + "/blocked.py", "storm", sigpending=0), 2)  # as when the pod has used up the timers
    r = python(WORK + "/blocked.py", "pause", options=["-P", "500:800"])
    relay(r, 3)
    say("the cgroup freezes though calls were blocked", "NOT FROZEN" not in r.err and "frozen" in r.err, r.err[-300:])


def limits():
    r = Run("-c", "1000", "-m", str(256 << 20), "--", "sh", "-c", "nproc; python3 -c 'import os; print(len(os.sched_getaffinity(0)))'; free -b | awk '/Mem/{print $2}'")
    say("nproc and the affinity are the pod's CPUs", r.out.split()[:2] == ["1", "1"], r.out)


def attack():
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", WORK + "/race", HERE + "/sentry/race.c", "-lpthread"], check=True)
    r = Run("-d", "127.0.0.2/32", "--", WORK + "/race")
    m = re.match(r"(\d+) attempts, (\d+) caught, (\d+) arrived", r.out)
    say("a descriptor exchanged under the sentry's eyes gains nothing", m and m[3] == "0", r.out + r.err)
    if os.cpu_count() == 1 or (m and m[2] == "0"):
        print("skip the guard was hit by the exchange: the threads never met in time on this machine")
    else:
        say("the exchange really met the guard", m and int(m[2]) > 0, r.out)
    say("a denied destination is on record", any(a["call"] == "sendto" and "127.0.0.2" in a.get("detail", "") and a["error"] == "EACCES"
                                                 for a in r.audit), r.audit[:2])


def storm():
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-o", WORK + "/storm", HERE + "/sentry/storm.c", "-lpthread"], check=True)
    r = Run("--", WORK + "/storm", "6", str(int(time.time())))
    say("random arguments to every call that it answers do not hurt the sentry", r.out.strip() == "alive" and "died" not in r.err, r.out + r.err)


def records():
    code = "import ctypes; l=ctypes.CDLL(None,use_errno=True); print(l.syscall(321,0,0,0), ctypes.get_errno(), l.syscall(308,-1,0), ctypes.get_errno())"
    r = python("-c", code)
    say("bpf is refused and recorded, setns is refused by the filter alone", r.out.split() == ["-1", "1", "-1", "1"] and
        [a["call"] for a in r.audit] == ["bpf"], (r.out, r.audit))
    r = python("-c", code, options=["-D"])
    say("with debug every refusal is recorded", r.out.split() == ["-1", "1", "-1", "1"] and {"bpf", "setns"} <= {a["call"] for a in r.audit}, (r.out, r.audit))


def fail_closed():
    p = subprocess.Popen([DRIVER, "--", "sleep", "30"], stderr=subprocess.PIPE, text=True)
    for _ in range(100):
        time.sleep(0.05)
        children = subprocess.run(["ps", "--ppid", str(p.pid), "-o", "pid=,comm="], capture_output=True, text=True).stdout
        m, s = re.search(r"(\d+) glovebox-sentry", children), re.search(r"(\d+) sleep", children)
        if m and s:
            break
    os.kill(int(m[1]), signal.SIGKILL)
    _out, err = p.communicate(timeout=10)
    say("the death of the sentry is reported and ends the program", p.returncode == 137 and "the sentry died" in err, (p.returncode, err))
    say("nothing is left of the guard's cgroup", not os.path.exists(f"/sys/fs/cgroup/unified/glovebox/driver-{p.pid}"))


def costs():
    code = """
import socket, struct, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(64)
for i in range(int(sys.argv[1])):
    c = socket.create_connection(s.getsockname()); a = s.accept()[0]
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); c.close(); a.close()
"""
    def measure(n):
        r = python("-c", code, str(n), options=["-r"], limit=120)
        return tuple(int(x) for x in re.search(r"Pss: (\d+) kB.*fds: (\d+)", r.out).groups())
    few, many = measure(10), measure(20000)
    say("20,000 connections leave neither memory nor descriptors behind", many[0] - few[0] < 300 and many[1] - few[1] < 8, (few, many))
    say("an idle sentry is below 1 MiB", few[0] < 1024 or PROFILE != "release", few)


if os.geteuid() != 0:
    print("skip everything: needs root")
    sys.exit(77)
DRIVER = build()
WORK = tempfile.mkdtemp(prefix="sentry.", dir="/tmp")
os.chmod(WORK, 0o755)
for name in ("sockets.py", "blocked.py"):
    shutil.copy(os.path.join(HERE, "sentry", name), WORK)
try:
    for part in (programs, limits, attack, storm, records, fail_closed, costs):
        part()
finally:
    shutil.rmtree(WORK)
sys.exit(1 if FAILED else 0)
