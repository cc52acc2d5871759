"""Bundles for launch-driver: a busybox root, a configuration as containerd writes it, and a way to run them."""
import copy
import json
import os
import shutil
import subprocess
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
DRIVER = os.environ.get("LAUNCH_DRIVER") or os.path.join(TOP, "build", os.environ.get("PROFILE", "debug"), "tests", "launch-driver")
BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")
CAPS = ["CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE",
        "SYS_CHROOT", "KILL", "AUDIT_WRITE"]
ALL_CAPS = ["CAP_" + c for c in """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
    SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP
    MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE""".split()]
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
    {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
     "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]},
    {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
    {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
]


def all_caps(spec):
    spec["process"]["capabilities"] = {k: ALL_CAPS for k in ("bounding", "effective", "permitted", "inheritable")}


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"status {self.code}, stdout {self.out!r}, stderr {self.err!r}"


class Bundle:
    """with Bundle() as b: b.root is the image, b.spec the configuration; b.run(args) gives a Result."""

    def __init__(self, base=None):
        self.dir = tempfile.mkdtemp(prefix="gb-launch.", dir=base or os.environ.get("LAUNCH_DIR", "/var/tmp"))
        os.chmod(self.dir, 0o711)
        self.root = os.path.join(self.dir, "rootfs")
        self.state = os.path.join(self.dir, "state")
        os.makedirs(os.path.join(self.root, "bin"))
        os.makedirs(os.path.join(self.root, "etc"))
        shutil.copy(BUSYBOX, os.path.join(self.root, "bin/busybox"))
        for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                os.symlink("busybox", os.path.join(self.root, "bin", name))
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
        caps = ["CAP_" + c for c in CAPS]
        self.spec = {
            "ociVersion": "1.1.0",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": ["PATH=/bin:/usr/bin"], "cwd": "/",
                        "capabilities": {k: caps for k in ("bounding", "effective", "permitted")},
                        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}], "noNewPrivileges": True},
            "root": {"path": "rootfs"}, "hostname": "box", "mounts": copy.deepcopy(MOUNTS),
            "linux": {"resources": {}, "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network", "cgroup")],
                      "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"],
                      "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]}}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir, ignore_errors=True)

    def write(self, path, text, mode=0o644):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as f:
            f.write(text)
        os.chmod(full, mode)

    def volume(self, name):
        full = os.path.join(self.dir, name)
        os.makedirs(full)
        return full

    def bind(self, source, destination, *options):
        self.spec["mounts"].append({"destination": destination, "type": "bind", "source": source, "options": ["rbind"] + list(options)})

    def prepare(self):
        with open(os.path.join(self.dir, "config.json"), "w") as f:
            json.dump(self.spec, f)

    def command(self, options=()):
        return [DRIVER, "-S", self.state, *options, self.dir]

    def run(self, *args, options=(), stdin="", timeout=30):
        if args:
            self.spec["process"]["args"] = list(args)
        self.prepare()
        p = subprocess.run(self.command(options), input=stdin, capture_output=True, text=True, timeout=timeout, errors="replace")
        return Result(p.returncode, p.stdout, p.stderr)

    def sh(self, script, **kw):
        return self.run("sh", "-c", script, **kw)

    def exec(self, process, *args, options=(), timeout=30):
        """Runs `sleep` as the init and process (a dict, or a shell text) beside it."""
        if isinstance(process, str):
            process = dict(self.spec["process"], args=["sh", "-c", process])
        path = os.path.join(self.dir, "exec.json")
        with open(path, "w") as f:
            json.dump(process, f)
        return self.run(*(args or ("sleep", "100")), options=["-x", path, *options], timeout=timeout)
