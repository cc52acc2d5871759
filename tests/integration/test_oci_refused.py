#!/usr/bin/python3
# rig: 2.4 1.6
# timeout: 200
"""What the design refuses, and what is simply wrong: Create, Exec and Update answer with one sentence that names the field.

One shim takes a long row of bad configurations over its own socket, and must still run a good one between them; then the same
through ctr and crictl, as a user meets it.
"""
import copy
import json
import os
import re
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from launch_bundle import MOUNTS, Bundle as Rootfs  # noqa: E402
from ttrpc import CODES, Peer, Refused, bundle, message  # noqa: E402

NS, SOCK, RUNTIME, IMAGE, DIR = (os.environ[k] for k in ("RIG_NS", "RIG_SOCK", "RIG_RUNTIME", "RIG_IMAGE", "RIG_DIR"))
SHIM = os.path.join(DIR, "bin/containerd-shim-glovebox-v1")
KINDS = ("pid", "network", "ipc", "uts", "mount")
ADVICE = {"network": "set hostNetwork: false", "pid": "set hostPID: false", "ipc": "set hostIPC: false",
          "uts": "give it a uts namespace", "mount": "give it a mount namespace"}
FILE = {"network": "net", "pid": "pid", "ipc": "ipc", "uts": "uts"}


def base(root):
    return {
        "ociVersion": "1.1.0",
        "process": {"args": ["sleep", "1000"], "cwd": "/", "env": ["PATH=/bin"], "user": {"uid": 0, "gid": 0}},
        "root": {"path": root}, "hostname": "box", "mounts": copy.deepcopy(MOUNTS),
        "linux": {"namespaces": [{"type": k} for k in KINDS], "resources": {"devices": [{"allow": False, "access": "rwm"}]},
                  "cgroupsPath": f"/{NS}/refused"},
    }


def namespaces(without, **more):
    return [{"type": k} for k in KINDS if k != without] + ([{"type": without, **more}] if more else [])


BIND = {"destination": "/m", "type": "bind", "source": "/tmp"}
# (where, value, how the sentence goes on after "glovebox" and the like)
REFUSED = [
    *(("linux.namespaces", namespaces(k), f"linux.namespaces has no {k} entry: .*{ADVICE[k]}") for k in KINDS),
    *(("linux.namespaces", namespaces(k, path=f"/proc/1/ns/{f}"), f"linux.namespaces: the {k} path /proc/1/ns/{f} is the host's own: ") for k, f in FILE.items()),
    ("linux.namespaces", namespaces("mount", path="/proc/1/ns/mnt"), "linux.namespaces: the mount "),
    ("linux.namespaces", [{"type": k} for k in KINDS] + [{"type": "user", "path": "/proc/1/ns/user"}], "linux.namespaces: the user path /proc/1/ns/user is the host's own"),
    ("linux.uidMappings", [{"containerID": 0, "hostID": 0, "size": 65536}], "linux.uidMappings needs a user entry in linux.namespaces"),
    ("linux.resources.devices", [{"allow": True, "access": "rwm"}], r"linux.resources.devices\[0\] allows all devices of the host: .*set privileged: false"),
    ("linux.devices", [{"type": "c", "path": "/dev/fuse", "major": 10, "minor": 229}], r"linux.devices\[0\]: /dev/fuse \(c 10:229\) is a device of the host; a sandbox has null, zero"),
    ("linux.devices", [{"type": "b", "path": "/dev/vda", "major": 254, "minor": 0}], r"linux.devices\[0\]: /dev/vda \(b 254:0\) is a device of the host"),
    ("mounts", MOUNTS + [BIND | {"options": ["rbind", "rshared"]}], r"mounts\[7\].options: shared propagation of /m is refused: .*use mountPropagation None or HostToContainer"),
    ("mounts", MOUNTS + [{"destination": "/m", "type": "ext4", "source": "/dev/vda"}], r'mounts\[7\].type: a sandbox cannot mount "ext4" on /m; bind a directory of the host instead'),
    ("mounts", MOUNTS + [{"destination": "/m", "type": "bind"}], r"mounts\[7\].source is missing"),
    ("linux.rootfsPropagation", "shared", "linux.rootfsPropagation must not be shared: .*use private or slave"),
    ("linux.sysctl", {"kernel.core_pattern": "|/bin/sh"}, "linux.sysctl.kernel.core_pattern is not a setting of the sandbox's own namespaces: only net"),
    ("linux.sysctl", {"vm.overcommit_memory": "1"}, "linux.sysctl.vm.overcommit_memory is not a setting of the sandbox's own namespaces"),
    ("linux.sysctl", {"net/../kernel/core_pattern": "x"}, "linux.sysctl.net/../kernel/core_pattern is not a setting of the sandbox's own namespaces"),
    ("linux.intelRdt", {"closID": "a"}, "linux.intelRdt is not supported: leave the RDT class out"),
    ("linux.netDevices", {"eth1": {}}, "linux.netDevices is not supported"),
    ("linux.memoryPolicy", {"mode": "MPOL_BIND"}, "linux.memoryPolicy is not supported: use linux.resources.cpu.mems"),
    ("linux.timeOffsets", {"boottime": {"secs": 60}}, "linux.timeOffsets is not supported"),
    ("linux.seccomp", {"defaultAction": "SCMP_ACT_NOTIFY", "listenerPath": "/run/x"}, "linux.seccomp.listenerPath is not supported"),
]
WRONG = [
    ("ociVersion", "3.0", "ociVersion must be a version 1.x"),
    ("process.args", [], "process.args must have at least one element, the program"),
    ("process.args", "sh", "process.args must be an array of strings, not a string"),
    ("process.cwd", "tmp", 'process.cwd must be an absolute path, not "tmp"'),
    ("process.user.uid", -1, "process.user.uid must be between 0 and 4294967294, not -1"),
    ("process.rlimits", [{"type": "RLIMIT_TEA", "soft": 1, "hard": 1}], r'process.rlimits\[0\].type has the unknown value "RLIMIT_TEA"'),
    ("process.rlimits", [{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}] * 2, r"process.rlimits\[1\] sets RLIMIT_CORE a second time"),
    ("mounts", {}, "mounts must be an array, not an object"),
    ("hooks", {"prestart": [{"path": "x"}]}, r'hooks.prestart\[0\].path must be an absolute path, not "x"'),
    ("linux.namespaces", [{"type": "pid"}] * 2, r"linux.namespaces\[1\] names the pid namespace a second time"),
    ("linux.maskedPaths", ["proc/kcore"], r'linux.maskedPaths\[0\] must be an absolute path, not "proc/kcore"'),
    ("linux.cgroupsPath", "/a/../../b", r'linux.cgroupsPath must not contain "\.\."'),
    ("linux.cgroupsPath", "a:b:c", "linux.cgroupsPath must name a slice that ends in .slice"),
    ("linux.resources.cpu", {"quota": "1"}, "linux.resources.cpu.quota must be a whole number, not a string"),
    ("linux.resources.cpu", {"quota": 10}, "linux.resources.cpu.quota must be at least 1000, the kernel's minimum, not 10"),
    ("linux.resources.cpu", {"mems": "999"}, 'linux.resources.cpu.mems: the kernel refuses "999"'),
    ("linux.resources.memory", {"limit": 9000000, "swap": 8000000}, "linux.resources.memory.swap .* must not be less than memory.limit"),
    ("linux.resources.unified", {"../cgroup.procs": "1"}, "linux.resources.unified.*is not a file of a control group"),
]


def set_at(spec, where, value):
    *path, last = where.split(".")
    for key in path:
        spec = spec.setdefault(key, {})
    spec[last] = value


def cgroups(name="refused"):
    found = subprocess.run(["find", "/sys/fs/cgroup", "-type", "d", "-path", f"*{NS}/{name}*"], capture_output=True, text=True, check=False)
    return found.stdout.split()


class Shim:
    """A shim started by hand on a bundle whose configuration changes."""

    def __enter__(self):
        self.image = Rootfs("/run")
        self.path = bundle(NS, "refused")
        os.makedirs(self.path)
        self.good = base(self.image.root)
        self.write(self.good)
        done = subprocess.run([SHIM, "-namespace", NS, "-address", SOCK, "-publish-binary", "/bin/true", "-id", "refused", "start"],
                              cwd=self.path, capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=True)
        assert done.stdout, done.stderr
        with open(f"{self.path}/address", encoding="ascii") as f:
            self.peer = Peer(f.read(), timeout=20)
        return self

    def __exit__(self, *_):
        for method, request in (("Kill", message(_1="refused", _3=9)), ("Wait", message(_1="refused")), ("Delete", message(_1="refused")), ("Shutdown", message(_1="refused"))):
            try:
                self.peer.call(method, request)
            except (Refused, OSError, EOFError):
                pass
        self.peer.close()
        subprocess.run(["rm", "-rf", self.path, self.image.dir], check=False)

    def write(self, spec):
        with open(f"{self.path}/config.json", "w", encoding="utf-8") as f:
            json.dump(spec, f)

    def create(self):
        return self.peer.call("Create", message(_1="refused", _2=self.path))

    def runs_the_good_one(self):
        self.write(self.good)
        self.create()
        self.peer.call("Start", message(_1="refused"))
        self.peer.call("Kill", message(_1="refused", _3=9))
        status = self.peer.call("Wait", message(_1="refused"))
        assert status.get(1) == 137, status
        self.peer.call("Delete", message(_1="refused"))


def must_match(refusal, pattern):
    assert re.search(pattern, refusal.text), f"\"{refusal.text}\" does not match \"{pattern}\""
    assert "\n" not in refusal.text, f"more than one line: {refusal.text!r}"


def all_are_refused(shim, rows):
    bad = []
    for where, value, pattern in rows:
        spec = copy.deepcopy(shim.good)
        set_at(spec, where, value)
        shim.write(spec)
        try:
            shim.create()
            bad.append(f"{where} = {value}: not refused")
            shim.peer.call("Delete", message(_1="refused"))
        except Refused as r:
            try:
                must_match(r, pattern)
                assert r.code != CODES["unknown"], f"code {r.code} for \"{r.text}\""
            except AssertionError as why:
                bad.append(f"{where} = {value}: {why}")
        end = time.monotonic() + 5
        while cgroups() and time.monotonic() < end:
            time.sleep(0.02)
        if cgroups():
            bad.append(f"{where} = {value}: left {cgroups()}")
    assert not bad, "\n  ".join(["", *bad])


def what_the_design_refuses_is_refused_at_create():
    with Shim() as shim:
        shim.runs_the_good_one()
        all_are_refused(shim, REFUSED)
        shim.runs_the_good_one()


def what_is_wrong_is_refused_at_create():
    with Shim() as shim:
        all_are_refused(shim, WRONG)
        shim.runs_the_good_one()


def refused_call(peer, method, request, pattern):
    try:
        peer.call(method, request)
    except Refused as r:
        must_match(r, pattern)
        return
    raise AssertionError(f"{method} was not refused: {pattern}")


def any_of(value, kind):
    return message(_1=f"types.containerd.io/opencontainers/runtime-spec/1/{kind}", _2=json.dumps(value))


def exec_and_update_name_the_field_too():
    with Shim() as shim:
        shim.create()
        shim.peer.call("Start", message(_1="refused"))
        for spec, pattern in (({"args": ["ls"]}, "process.cwd is missing"), ({"args": [], "cwd": "/"}, "process.args must have at least one element"),
                              ({"args": ["ls"], "cwd": 7}, "process.cwd must be a string, not a number"), ([], "process must be an object, not an array"),
                              ({"args": ["ls"], "cwd": "/", "user": {"uid": "root"}}, "process.user.uid must be a whole number, not a string")):
            refused_call(shim.peer, "Exec", message(_1="refused", _2="x", _7=any_of(spec, "Process")), pattern)
        for resources, pattern in (({"cpu": {"quota": "1"}}, "linux.resources.cpu.quota must be a whole number, not a string"),
                                   ({"cpu": {"quota": 10}}, "linux.resources.cpu.quota must be at least 1000"),
                                   ({"pids": {"limit": 50}, "cpu": {"mems": "999"}}, 'linux.resources.cpu.mems: the kernel refuses "999"'),
                                   ([], "linux.resources must be an object, not an array")):
            refused_call(shim.peer, "Update", message(_1="refused", _2=any_of(resources, "LinuxResources")), pattern)
        for folder in cgroups():
            if os.path.exists(f"{folder}/pids.max"):
                with open(f"{folder}/pids.max", encoding="ascii") as f:
                    assert f.read() == "max\n", "a failed Update left its first half"
        shim.peer.call("Update", message(_1="refused", _2=any_of({"pids": {"limit": 50}, "cpu": {"shares": 200}}, "LinuxResources")))


# ---- as a user meets it -------------------------------------------------------------------------------------------------------

def run_refused(command, pattern):
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode != 0, f"not refused: {' '.join(command)}"
    assert re.search(pattern, said), f"{said!r} does not match \"{pattern}\""


def ctr_prints_the_sentence():
    for i, (flags, pattern) in enumerate(((["--net-host"], "linux.namespaces has no network entry: .*set hostNetwork: false"),
                                          (["--privileged"], "allows all devices of the host: .*set privileged: false"),
                                          (["--device", "/dev/loop-control"], "/dev/loop-control .* is a device of the host"),
                                          (["--mount", "type=bind,src=/tmp,dst=/m,options=rbind:rshared"], "shared propagation of /m is refused"))):
        name = f"user{i}"
        try:
            run_refused(["ctr", "run", "--rm", "--runtime", RUNTIME, *flags, IMAGE, name, "true"], pattern)
        finally:
            subprocess.run(["ctr", "containers", "rm", name], capture_output=True, check=False)


def pod_file(name, **linux):
    path = f"{DIR}/{name}.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"metadata": {"name": name, "uid": name, "namespace": "default"}, "log_directory": DIR, "linux": linux}, f)
    return path


def kubelet_gets_the_sentence():
    handler = os.environ["RIG_HANDLER"]
    for i, (options, pattern) in enumerate((({"network": 2}, "set hostNetwork: false"), ({"pid": 2}, "set hostPID: false"), ({"ipc": 2}, "set hostIPC: false"))):
        run_refused(["crictl", "runp", "-r", handler, pod_file(f"host{i}", security_context={"namespace_options": options})], pattern)
    pod = pod_file("privileged", security_context={"privileged": True})
    pod_id = subprocess.run(["crictl", "runp", "-r", handler, pod], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    container = f"{DIR}/container.json"
    for linux, mounts, pattern in (({"security_context": {"privileged": True}}, [], "set privileged: false"),
                                   ({}, [{"host_path": "/dev/loop-control", "container_path": "/dev/x"}], None)):
        with open(container, "w", encoding="utf-8") as f:
            json.dump({"metadata": {"name": "c"}, "image": {"image": IMAGE}, "command": ["sleep", "9"], "log_path": "c.log", "linux": linux,
                       "devices": mounts and [{"host_path": "/dev/loop-control", "container_path": "/dev/x", "permissions": "r"}]}, f)
        made = subprocess.run(["crictl", "create", pod_id, container, pod], capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        run_refused(["crictl", "start", made], pattern or "/dev/x .* is a device of the host")
        subprocess.run(["crictl", "rm", "-f", made], capture_output=True, check=False)
    subprocess.run(["crictl", "rmp", "-f", pod_id], capture_output=True, check=True)


CASES = [what_the_design_refuses_is_refused_at_create, what_is_wrong_is_refused_at_create, exec_and_update_name_the_field_too,
         ctr_prints_the_sentence, kubelet_gets_the_sentence]


def main():
    if os.environ["RIG_HANDLER"] != "glovebox":
        print("skip what is refused: other runtimes allow most of it")
        return 0
    failed = 0
    for case in CASES:
        name = case.__name__.replace("_", " ")
        if os.environ.get("CASES", "") not in name:
            continue
        try:
            case()
            print(f"ok {name}", flush=True)
        except Exception as e:  # a broken case must not hide the others
            traceback.print_exc()
            print(f"FAIL {name}: {e}", flush=True)
            failed += 1
    return 1 if failed else 0


sys.exit(main())
