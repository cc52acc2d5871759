#!/usr/bin/python3
# rig: 2.4 1.6
# timeout: 600
# slow: kill -9 of shim, sentry and containerd at random moments of a container's life, with a look for leaks after each
"""kill -9 at any moment: every command still ends, and nothing is left.  ROUNDS (default 50), SEED (printed) for the same moments again."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

NS, RUNTIME, IMAGE = (os.environ[k] for k in ("RIG_NS", "RIG_RUNTIME", "RIG_IMAGE"))
ROUNDS = int(os.environ.get("ROUNDS", "50"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 30))))
PATIENCE = 40  # seconds that one command may take while things die around it


def run(*command, patience=PATIENCE):
    """The exit status; killing things makes commands fail, but none may hang."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=patience, check=False)
    except subprocess.TimeoutExpired as e:
        raise AssertionError(f"hangs: {' '.join(command)}") from e


def processes():
    """(pid, name, arguments) of everything in the rig."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/comm", encoding="ascii") as f:
                comm = f.read().strip()
            with open(f"/proc/{name}/cmdline", "rb") as f:
                args = f.read().split(b"\0")
        except OSError:
            continue
        yield int(name), comm, args


def kill_shim():
    return [pid for pid, _, args in processes() if b"containerd-shim" in args[0] and b"delete" not in args and os.getsid(pid) == pid]


def kill_any_of_ours():
    """Shim, sentry, launcher and its helpers, a delete: whatever exists at that moment."""
    return [pid for pid, _, args in processes() if b"containerd-shim" in args[0]]


def kill_sentry():
    return [pid for pid, comm, _ in processes() if comm == "glovebox-sentry"]


def kill_containerd():
    with open(os.path.join(os.environ["RIG_DIR"], "containerd.pid"), encoding="ascii") as f:
        return [int(f.read())]


def kill_shim_and_containerd():
    return kill_containerd() + kill_shim()


VICTIMS = [kill_shim, kill_sentry, kill_containerd, kill_shim_and_containerd, kill_any_of_ours]


BUSY = ["sh", "-c", "sleep 1000 & while :; do echo x; sleep .01; done"]


class Life(threading.Thread):
    """One container's life, from the outside."""

    def __init__(self, name):
        super().__init__()
        self.name, self.hung, self.ended = name, None, False

    def run(self):
        try:
            self.live(self.name)
        except AssertionError as e:
            self.hung = str(e)

    def live(self, n):
        run("ctr", "run", "-d", "--runtime", RUNTIME, IMAGE, n, *BUSY)
        while not self.ended:
            run("ctr", "tasks", "exec", "--exec-id", f"x{time.monotonic_ns()}", n, "true")
            run("ctr", "tasks", "pause", n)
            run("ctr", "tasks", "resume", n)
            run("ctr", "tasks", "kill", "-s", "TERM", n)
            run("ctr", "tasks", "rm", "-f", n)
            run("ctr", "containers", "rm", n)
            run("ctr", "run", "-d", "--runtime", RUNTIME, IMAGE, n, "sleep", "1000")


class PodLife(Life):
    """A pod's with two containers."""

    def live(self, n):
        pod, container = f"{os.environ['RIG_DIR']}/{n}-pod.json", f"{os.environ['RIG_DIR']}/{n}-container.json"
        metadata = {"name": n, "namespace": "default", "uid": n}
        with open(pod, "w", encoding="ascii") as f:
            json.dump({"metadata": metadata, "linux": {"security_context": {"namespace_options": {"pid": 1}}}}, f)
        while not self.ended:
            p = self.first("crictl", "runp", "-r", os.environ["RIG_HANDLER"], pod)
            for member in ("a", "b") if p else ():
                with open(container, "w", encoding="ascii") as f:
                    json.dump({"metadata": {"name": member}, "image": {"image": IMAGE}, "command": BUSY, "linux": {}}, f)
                c = self.first("crictl", "create", p, container, pod)
                if c:
                    run("crictl", "start", c)
                    run("crictl", "exec", "-s", c, "true")
            if p:
                run("crictl", "stopp", p)
                run("crictl", "rmp", "-f", p)

    @staticmethod
    def first(*command):
        """The id that the command prints as its last word; nothing when it failed."""
        done = run(*command)
        return done.stdout.decode().split()[-1] if done.returncode == 0 else None


def kill(find):
    victims = find()
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return victims


def answers():
    return subprocess.run(["ctr", "version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


KNOWN = set()  # so that one leak is told once
# CRI makes these before it has noted the pod that they are for: killed in between, containerd itself forgets them, under any runtime.
CONTAINERDS_OWN = re.compile(r"^(mount|network namespace) (/run/netns/cni-\S+|/run/containerd/io\.containerd\.grpc\.v1\.cri/sandboxes/\w+/shm)$")


def leaks(containerd_was_killed):
    lines = set(run("rig", "leaks", patience=200).stdout.decode().splitlines()) - KNOWN
    return {line for line in lines if not (containerd_was_killed and CONTAINERDS_OWN.match(line))}


def one_round(number, rng):
    find = VICTIMS[number % len(VICTIMS)]
    life = (PodLife if number // len(VICTIMS) % 2 else Life)(f"k{number}")
    life.start()
    # A whole life takes about a second; half the moments fall into the first tenth of it.
    time.sleep(rng.uniform(0, 0.12) if rng.random() < 0.5 else rng.uniform(0, 1.2))
    victims = kill(find)
    life.ended = True
    if find in (kill_containerd, kill_shim_and_containerd):
        time.sleep(rng.uniform(0, 0.2))
        run("rig", "stop")
        run("rig", "start")
        assert answers(), "containerd does not start again"
    life.join(6 * PATIENCE)
    assert not life.is_alive() and not life.hung, life.hung or "the life of the container does not end"
    for _ in range(3):  # CRI refuses to remove what it still works on; kubelet, too, asks again
        run("rig", "clean")
        left = leaks(find in (kill_containerd, kill_shim_and_containerd))
        if not left:
            break
        print(f"  round {number}, {find.__name__}: cleaned again for " + "; ".join(sorted(left)), flush=True)
    KNOWN.update(left)
    assert not left, f"{find.__name__} ({len(victims)} killed) left: " + "; ".join(sorted(left))


def main():
    rng = random.Random(SEED)
    failed = 0
    print(f"  {ROUNDS} rounds, SEED={SEED}", flush=True)
    for number in range(ROUNDS):
        try:
            one_round(number, rng)
        except AssertionError as e:
            failed += 1
            print(f"FAIL round {number}: {e}", flush=True)
            for pid, _, args in list(processes()):
                if b"containerd-shim" in args[0]:
                    os.kill(pid, signal.SIGKILL)
            run("rig", "clean")
    if not failed:
        print("ok nothing hangs and nothing is left after kill 9 at any moment")
    return 1 if failed else 0


sys.exit(main())
