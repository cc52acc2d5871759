"""A shim without containerd: started by hand in bundles of our own, with a receiver for its events.  Used by test_task*.py.

Inside hack/rig.sh, which makes /run private and tells what was left behind.
"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from ttrpc import Peer, Refused, decode, field, message  # noqa: E402,F401

NS = os.environ["RIG_NS"]
SHIM = os.environ.get("TASK_SHIM") or shutil.which("containerd-shim-glovebox-v1")
TOP = "/run/hand"
STATUS = {1: "CREATED", 2: "RUNNING", 3: "STOPPED", 4: "PAUSED", 5: "PAUSING"}
EVENT_ID = {"TaskExit": 2, "TaskExecAdded": 2, "TaskExecStarted": 2}
PROCESS = "types.containerd.io/opencontainers/runtime-spec/1/Process"
RESOURCES = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"


def eventually(condition, what, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)


def same(actual, wanted, what="value"):
    assert actual == wanted, f"{what} is {actual!r}, expected {wanted!r}"


def refused(code, words, function, *args, **more):
    try:
        function(*args, **more)
    except Refused as r:
        assert r.code == code and words in r.text, f"code {r.code} \"{r.text}\", expected code {code} with \"{words}\""
        return r.text
    raise AssertionError(f"not refused: {args}")


def rootfs():
    """A root of busybox; made once."""
    path = os.path.join(os.environ["RIG_DIR"], "hand-rootfs")
    if not os.path.isdir(path):
        for d in ("bin", "etc", "dev", "proc", "sys", "tmp", "root"):
            os.makedirs(os.path.join(path, d))
        os.chmod(os.path.join(path, "tmp"), 0o1777)
        shutil.copy("/bin/busybox", os.path.join(path, "bin/busybox"))
        for name in subprocess.run(["/bin/busybox", "--list"], stdout=subprocess.PIPE, check=True).stdout.decode().split():
            if name != "busybox":
                os.symlink("busybox", os.path.join(path, "bin", name))
        with open(os.path.join(path, "etc/passwd"), "w", encoding="ascii") as f:
            f.write("root:x:0:0:root:/root:/bin/sh\n")
    return path


class Events:
    """Stands in for containerd's events service: answers every Forward, keeps (topic, container, exec, pid, status)."""

    def __init__(self, path):
        self.path, self.all, self.lock = path, [], threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        stream = peer.makefile("rb")
        while True:
            try:
                head = stream.read(10)
            except OSError:
                return
            if len(head) < 10:
                return
            size, number, _, _ = struct.unpack(">IIBB", head)
            self.keep(decode(stream.read(size)))
            try:
                peer.sendall(struct.pack(">IIBB", 0, number, 2, 0))
            except OSError:
                return  # the shim was killed

    def keep(self, request):
        envelope = decode(decode(request[3])[1])
        any_ = decode(envelope[4])
        kind = any_[1].decode().rpartition(".")[2]
        e = decode(any_.get(2, b""))
        text = lambda n: e.get(n, b"").decode() if isinstance(e.get(n, b""), bytes) else ""  # noqa: E731
        pid = {"TaskCreate": 6, "TaskStart": 2, "TaskExit": 3, "TaskDelete": 2, "TaskExecStarted": 3}.get(kind)
        status = {"TaskExit": 4, "TaskDelete": 3}.get(kind)
        item = (envelope[3].decode(), text(1), text(EVENT_ID[kind]) if kind in EVENT_ID else "", e.get(pid, 0), e.get(status, 0))
        with self.lock:
            self.all.append(item)
            self.lock.notify_all()

    def of(self, container):
        with self.lock:
            return [e for e in self.all if e[1] == container]

    def topics(self, container):
        return [e[0].rpartition("/")[2] for e in self.of(container)]


class Shim:
    """One shim; containers made by create() join it through the group annotation."""

    count = 0

    def __init__(self, group=None):
        Shim.count += 1
        self.dir = f"{TOP}/{Shim.count}"
        os.makedirs(self.dir, exist_ok=True)
        self.group = group or f"g{os.getpid()}-{Shim.count}"
        self.events = Events(f"{self.dir}/c.sock.ttrpc")
        self.address, self.peer, self.specs = None, None, {}
        self.log = open(f"{self.dir}/log.txt", "wb")
        self.spawned = threading.Lock()

    def environment(self):
        return {"PATH": os.environ["PATH"], "TTRPC_ADDRESS": f"{self.dir}/c.sock.ttrpc"}

    def argv(self, container, *rest):
        return [SHIM, "-namespace", NS, "-address", f"{self.dir}/c.sock", "-publish-binary", "/bin/true", "-id", container, *rest]

    def bundle(self, container):
        return f"{self.dir}/{container}"

    def prepare(self, container, args, **changes):
        """A bundle with a config.json; changes: process=..., linux=... are merged into it."""
        b = self.bundle(container)
        os.makedirs(f"{b}/rootfs", exist_ok=True)
        if not os.path.exists(f"{b}/log"):
            os.mkfifo(f"{b}/log")
        caps = ["CAP_KILL", "CAP_CHOWN", "CAP_SETUID", "CAP_SETGID"]
        spec = {
            "ociVersion": "1.0.2", "hostname": container[:60],
            "process": {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}, "noNewPrivileges": True,
                        "capabilities": {k: caps for k in ("bounding", "effective", "permitted")}},
            "root": {"path": rootfs()},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=64k"]},
                       {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
                       {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}],
            "linux": {"cgroupsPath": f"/{NS}/{container}", "resources": {},
                      "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")]},
            "annotations": {"io.containerd.runc.v2.group": self.group},
        }
        for key, value in changes.items():
            if isinstance(value, dict):
                spec.setdefault(key, {}).update(value)
            else:
                spec[key] = value
        with open(f"{b}/config.json", "w", encoding="ascii") as f:
            json.dump(spec, f)
        return b

    def start_shim(self, container):
        b = self.bundle(container)
        log = os.open(f"{b}/log", os.O_RDWR | os.O_NONBLOCK)
        threading.Thread(target=self.copy_log, args=(log,), daemon=True).start()
        done = subprocess.run(self.argv(container, "-debug", "start"), cwd=b, env=self.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, preexec_fn=os.setpgrp)
        assert done.returncode == 0, done.stdout
        self.address = done.stdout.decode().strip()
        return self.address

    def copy_log(self, fd):
        os.set_blocking(fd, True)
        while True:
            data = os.read(fd, 65536)
            if not data:
                return
            self.log.write(data)
            self.log.flush()

    def connect(self, timeout=20):
        return Peer(self.address, timeout)

    def call(self, method, payload=b"", **more):
        if not self.peer:
            self.peer = self.connect()
        return self.peer.call(method, payload, **more)

    def create_payload(self, container, terminal=False, stdin="", stdout="", stderr="", checkpoint=""):
        return message(_1=container, _2=self.bundle(container), _4=terminal, _5=stdin, _6=stdout, _7=stderr, _8=checkpoint)

    def create(self, container, args, stdio=None, peer=None, **changes):
        self.prepare(container, args, **changes)
        with self.spawned:
            self.start_shim(container)
        call = peer.call if peer else self.call
        return call("Create", self.create_payload(container, **(stdio or {}))).get(1, 0)

    def run(self, container, args, **more):
        pid = self.create(container, args, **more)
        same(self.start(container), pid, "pid of Start")
        return pid

    def start(self, container, exec_id=""):
        return self.call("Start", message(_1=container, _2=exec_id)).get(1, 0)

    def wait(self, container, exec_id="", peer=None):
        return (peer.call if peer else self.call)("Wait", message(_1=container, _2=exec_id)).get(1, 0)

    def delete(self, container, exec_id=""):
        return self.call("Delete", message(_1=container, _2=exec_id)).get(2, 0)

    def kill(self, container, signal=9, exec_id="", everyone=False):
        self.call("Kill", message(_1=container, _2=exec_id, _3=signal, _4=everyone))

    def exec_(self, container, exec_id, args, terminal=False, stdin="", stdout="", stderr="", peer=None, **more):
        process = {"args": args, "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}, "terminal": terminal, **more}
        spec = message(_1=PROCESS, _2=json.dumps(process))
        return (peer.call if peer else self.call)(
            "Exec", message(_1=container, _2=exec_id, _3=terminal, _4=stdin, _5=stdout, _6=stderr, _7=spec))

    def status(self, container, exec_id=""):
        return STATUS.get(self.call("State", message(_1=container, _2=exec_id)).get(4, 0), "UNKNOWN")

    def pid(self):
        return self.call("Connect", message(_1="any"))[1]

    def fifo(self, name):
        path = f"{self.dir}/{name}"
        if not os.path.exists(path):
            os.mkfifo(path, 0o700)
        return path

    def delete_binary(self, container):
        """The stateless clean-up: (pid, status) as containerd would get them."""
        done = subprocess.run(self.argv(container, "-bundle", self.bundle(container), "delete"), cwd=self.bundle(container),
                              env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=20)
        assert done.returncode == 0, done.stderr.decode()
        answer = decode(done.stdout)
        return answer.get(1, 0), answer.get(2, 0)

    def shutdown(self):
        """As containerd: Shutdown, the connection ends, delete."""
        pid = self.pid()
        self.call("Shutdown", message(_1="any"))
        eventually(lambda: not os.path.exists(f"/proc/{pid}") or is_zombie(pid), "the shim ends after Shutdown", 5)
        same(os.path.exists(self.address.removeprefix("unix://")), False, "the socket is there after Shutdown")
        self.peer.close()
        self.peer = None


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def alive(pid):
    return os.path.exists(f"/proc/{pid}") and not is_zombie(pid)


def cgroup_of(container):
    """Directories of the container's cgroup that exist."""
    found = []
    for base, dirs, _ in os.walk("/sys/fs/cgroup"):
        if base.count("/") > 5:
            dirs.clear()
        if os.path.basename(base) in (container, f"{container}.sentry") and f"/{NS}/" in base:
            found.append(base)
    return found


def nothing_left(containers):
    """Of these containers, once their shim is gone."""
    def left():
        out = [c for name in containers for c in cgroup_of(name)]
        out += [f"/run/glovebox/{NS}/{name}" for name in containers if os.path.exists(f"/run/glovebox/{NS}/{name}")]
        return out
    eventually(lambda: not left(), "cgroups and state are removed", 6)


def main(cases):
    only, failed = os.environ.get("CASES", ""), False
    os.makedirs(TOP, exist_ok=True)
    for case in cases:
        name = case.__name__.replace("_", " ")
        if not any(part in name for part in only.split("|")):
            continue
        begin = time.monotonic()
        try:
            case()
            print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception as e:  # every failure of a case is its report
            import traceback
            traceback.print_exc()
            print(f"FAIL {name}: {type(e).__name__}: {str(e)[:300]}", flush=True)
            failed = True
    os._exit(1 if failed else 0)
