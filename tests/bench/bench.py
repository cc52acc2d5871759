#!/usr/bin/python3
"""bench.py [-n REPETITIONS] [-r RUNTIME,...] [-o FILE.json] [SECTION...]: glovebox beside its peers, measured in one run, in a rig.

Sections: work start oci exec pods memory calls growth.  Every figure stands beside the same figure of the other runtimes; repetitions go
round by round over the runtimes, so that a busy machine is busy for all.  Nothing fails for being slow; what cannot be measured
says why.  `make bench` runs it.
"""
import argparse
import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

TYPE = {"runc": "io.containerd.runc.v2", "runsc": "io.containerd.runsc.v1", "glovebox": "io.containerd.glovebox.v1"}
RUNSC = ["runsc", "-root", "/run/runsc", "-network", "none", "-ignore-cgroups"]
AGENT, BUSYBOX = "localhost/agent:1", "localhost/busybox:1"
TITLE = {
    "work": "Agent work, seconds (median)",
    "start": "`ctr run --rm` of /bin/true, milliseconds",
    "oci": "Create, start, exit, delete of /bin/true without containerd, milliseconds",
    "exec": "`ctr tasks exec` of /bin/true, milliseconds",
    "pods": "Pods: sandbox, container, started, removed, milliseconds",
    "memory": "An idle pod's own processes, PSS in MiB",
    "calls": "System calls, nanoseconds (median)",
    "growth": "100,000 connections: what the pod's own processes keep",
}


def run(*command, check=True, seconds=600, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)[:160]}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


def clock(*command):
    began = time.perf_counter()
    run(*command)
    return time.perf_counter() - began


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def bundle(image, command, name, plain=False):
    """An OCI bundle with the image as its (writable) root file system, for runtimes called without containerd."""
    folder = os.path.join(os.environ["RIG_DIR"], "bundle-" + name)
    os.makedirs(folder + "/rootfs")
    if plain:  # a folder, not a mount
        run("ctr", "images", "mount", image, "/mnt")
        run("cp", "-a", "/mnt/.", folder + "/rootfs")
        run("ctr", "images", "unmount", "--rm", "/mnt")
    else:
        run("ctr", "images", "mount", "--rw", image, folder + "/rootfs")
    run("runc", "spec", "-b", folder)
    with open(folder + "/config.json", encoding="ascii") as f:
        spec = json.load(f)
    spec["process"].update({"terminal": False, "args": list(command)})
    spec["root"]["readonly"] = False
    spec["linux"]["cgroupsPath"] = f"/{os.environ['RIG_NS']}/{name}"
    with open(folder + "/config.json", "w", encoding="ascii") as f:
        json.dump(spec, f)
    return folder


class Container:
    """A container in the background, for exec.  gVisor's containerd shim wants to lower its oom_score_adj, for which a machine like
    this one may lack the capability; runsc is then called directly, which spares it the shim."""

    count = 0

    def __init__(self, runtime, image, *command):
        Container.count += 1
        self.runtime, self.id = runtime, f"b{Container.count}"
        if runtime == "runsc":
            self.folder = bundle(image, command, self.id)
            with open(self.folder + "/log", "w", encoding="ascii") as log:
                subprocess.run([*RUNSC, "run", "-detach", "-bundle", self.folder, self.id], check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        else:
            run("ctr", "run", "-d", "--runtime", TYPE[runtime], image, self.id, *command)

    def exec_command(self, *command):
        if self.runtime == "runsc":
            return [*RUNSC, "exec", self.id, *command]
        Container.count += 1
        return ["ctr", "tasks", "exec", "--exec-id", f"x{Container.count}", self.id, *command]

    def exec(self, *command, seconds=600):
        return run(*self.exec_command(*command), seconds=seconds)

    def pid(self):
        if self.runtime == "runsc":
            return json.loads(run(*RUNSC, "state", self.id))["pid"]
        return next(int(line.split()[1]) for line in run("ctr", "tasks", "ls").splitlines()[1:] if line.split()[0] == self.id)

    def end(self):
        if self.runtime == "runsc":
            run(*RUNSC, "delete", "-force", self.id, check=False)
            run("ctr", "images", "unmount", "--rm", self.folder + "/rootfs", check=False)
            return
        run("ctr", "tasks", "rm", "-f", self.id, check=False)
        run("ctr", "containers", "rm", self.id, check=False)


def processes():
    """{pid: (parent, command line)} of everything in the rig."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as f:
                pid, parent = re.match(r"(\d+) \(.*\) \S (\d+)", f.read(), re.S).groups()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                found[int(pid)] = (int(parent), f.read().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def smaps(pid, key="Pss"):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith(key + ":"))
    except OSError:
        return 0


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


class Bench:
    def __init__(self, runtimes, repetitions):
        self.runtimes, self.n = list(runtimes), repetitions
        self.results, self.notes = {}, []

    def note(self, text):
        self.notes.append(text)
        print("note:", text, flush=True)

    def put(self, section, row, runtime, value):
        self.results.setdefault(section, {}).setdefault(row, {})[runtime] = value

    def each(self, section, what, rounds, measure, runtimes=None):
        """measure(runtime) -> seconds, `rounds` times for each runtime in turn; a runtime that fails drops out with a note."""
        values = {r: [] for r in self.runtimes if runtimes is None or r in runtimes}
        for _ in range(rounds):
            for runtime in list(values):
                try:
                    values[runtime].append(measure(runtime))
                except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as e:
                    self.note(f"{section}: {what} under {runtime}: {e}")
                    del values[runtime]
        return values

    # ---- sections

    def work(self):
        kinds = run("/usr/bin/python3", os.path.join(os.path.dirname(os.path.realpath(__file__)), "work.py"), "list").split()
        pods = self.containers("work", AGENT)
        for pod in pods.values():
            pod.exec("/usr/bin/python3", "/bench/work.py", "setup")

        def measure(kind, runtime):
            return float(pods[runtime].exec("/usr/bin/python3", "/bench/work.py", kind).split()[-1])
        for kind in kinds:
            values = self.each("work", kind, self.n, lambda r, k=kind: measure(k, r), pods)
            for runtime, v in values.items():
                self.put("work", kind, runtime, statistics.median(v))
            print("  " + kind + ": " + ", ".join(f"{r} {statistics.median(v):.3f}" for r, v in values.items()), flush=True)
        for pod in pods.values():
            pod.end()

    def start(self):
        """runsc's shim may be unable to run here, see Container; its line is then empty, and `oci` has the comparison."""
        def measure(runtime):
            Container.count += 1
            return clock("ctr", "run", "--rm", "--runtime", TYPE[runtime], BUSYBOX, f"s{Container.count}", "/bin/true")
        self.spread("start", self.each("start", "ctr run", 10 * self.n, measure))

    def oci(self):
        """What the runtimes themselves cost: `runc run`, `runsc run`, and the launcher and filter of glovebox by its test driver."""
        folder = bundle(BUSYBOX, ["/bin/true"], "oci", plain=True)
        driver = os.environ.get("LAUNCH_DRIVER", "")

        def measure(runtime):
            Container.count += 1
            name = f"o{Container.count}"
            if runtime == "runsc":
                return clock(*RUNSC, "run", "-bundle", folder, name)
            if runtime == "runc":
                return clock("runc", "--root", "/run/oci-runc", "run", "-b", folder, name)
            return clock(driver, "-b", folder + "/rootfs", "-c", f"/{os.environ['RIG_NS']}/{name}", folder)
        runtimes = self.runtimes
        if not os.access(driver, os.X_OK):
            self.note("oci: no launch driver; run make launch-driver")
            self.runtimes = [r for r in runtimes if r != "glovebox"]
        self.spread("oci", self.each("oci", "create, start, exit, delete", 6 * self.n, measure))
        self.runtimes = runtimes

    def containers(self, section, image):
        """One for each runtime that can."""
        found = {}
        for runtime in self.runtimes:
            try:
                found[runtime] = Container(runtime, image, "sleep", "100000")
            except (RuntimeError, subprocess.SubprocessError) as e:
                self.note(f"{section}: no container under {runtime}: {e}")
        return found

    def exec(self):
        pods = self.containers("exec", BUSYBOX)

        def measure(runtime):
            return clock(*pods[runtime].exec_command("/bin/true"))
        self.spread("exec", self.each("exec", "ctr exec", 10 * self.n, measure, pods))
        for pod in pods.values():
            pod.end()

    def spread(self, section, values):
        for runtime, v in values.items():
            for name, q in (("p50", .5), ("p90", .9), ("p99", .99)):
                self.put(section, name, runtime, 1000 * quantile(v, q))

    def pods(self):
        """200 one after another, then 20 at once; what stays behind makes the rig fail."""
        def measure(runtime):
            return clock(sys.executable, os.path.realpath(__file__), "-pod", runtime)
        for runtime in self.runtimes:
            try:
                one = [measure(runtime) for _ in range(40 * self.n)]
                began = time.perf_counter()
                crowd = [subprocess.Popen([sys.executable, os.path.realpath(__file__), "-pod", runtime]) for _ in range(20)]
                failed = sum(child.wait() != 0 for child in crowd)
                together = time.perf_counter() - began
                if failed:
                    raise RuntimeError(f"{failed} of 20 pods at once failed")
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                self.note(f"pods: under {runtime}: {e}")
                continue
            self.put("pods", f"one of {len(one)}, p50", runtime, 1000 * quantile(one, .5))
            self.put("pods", f"one of {len(one)}, p99", runtime, 1000 * quantile(one, .99))
            self.put("pods", "20 at once, all", runtime, 1000 * together)

    def idle(self, runtime, image=BUSYBOX):
        """A container, and the PIDs of the processes that came with it other than its own."""
        before = set(processes())
        pod = Container(runtime, image, "sleep", "100000")
        time.sleep(1.5)
        new = {pid: v for pid, v in processes().items() if pid not in before and (pid != pod.pid() or runtime == "runsc")}
        return pod, [pid for pid, (_, command) in new.items() if not command.startswith("sleep 100000")]

    def memory(self):
        for runtime in self.runtimes:
            try:
                pod, own = self.idle(runtime)
            except (RuntimeError, subprocess.SubprocessError) as e:
                self.note(f"memory: under {runtime}: {e}")
                continue
            self.put("memory", "all, PSS", runtime, sum(map(smaps, own)) / 1024)
            self.put("memory", "all, private", runtime, sum(smaps(p, "Private_Dirty") + smaps(p, "Private_Clean") for p in own) / 1024)
            self.put("memory", "processes", runtime, len(own))
            pod.end()

    def calls(self):
        pods = self.containers("calls", AGENT)
        for what, count in (("getpid", 200000), ("sysinfo", 20000), ("socket", 20000), ("connect", 5000)):
            values = self.each("calls", what, self.n, lambda r, w=what, c=count: float(pods[r].exec("/bench/probe", w, str(c)).split()[-1]), pods)
            for runtime, v in values.items():
                self.put("calls", what, runtime, statistics.median(v))
        for pod in pods.values():
            pod.end()

    def growth(self):
        for runtime in [r for r in self.runtimes if r != "runsc"]: # gVisor has its own network stack inside
            try:
                pod, own = self.idle(runtime, AGENT)
                pod.exec("/bench/probe", "connect", "2000")
                time.sleep(1)
                before = sum(map(smaps, own)), sum(map(descriptors, own))
                pod.exec("/bench/probe", "connect", "100000")
                time.sleep(1)
                after = sum(map(smaps, own)), sum(map(descriptors, own))
                pod.end()
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                self.note(f"growth: under {runtime}: {e}")
                continue
            self.put("growth", "PSS more, KiB", runtime, after[0] - before[0])
            self.put("growth", "descriptors more", runtime, after[1] - before[1])

    # ---- report

    def report(self):
        lines = []
        for section, rows in self.results.items():
            lines += ["", TITLE[section], ""]
            width = max(map(len, rows)) + 2
            peers = [r for r in self.runtimes if any(r in row for row in rows.values())]
            base = "runc" if "runc" in peers else peers[0]
            ratio = section not in ("growth",)
            lines.append(" " * width + "".join(f"{r:>12}" for r in peers) + ("".join(f"{r + '/' + base:>16}" for r in peers if r != base) if ratio else ""))
            for name, row in rows.items():
                text = f"{name:{width}}" + "".join(f"{row[r]:12.3f}" if r in row else f"{'-':>12}" for r in peers)
                if ratio:
                    text += "".join(f"{row[r] / row[base]:16.2f}" if r in row and row.get(base) else f"{'-':>16}" for r in peers if r != base)
                lines.append(text)
            if section == "work":
                for r in (p for p in peers if p != base):
                    ratios = [row[r] / row[base] for row in rows.values() if r in row and base in row]
                    if ratios:
                        lines.append(f"geometric mean of {len(ratios)} kinds, {r}/{base}: {math.exp(statistics.fmean(map(math.log, ratios))):.3f}; "
                                     f"highest {max(ratios):.2f}")
        return "\n".join(lines + [""] + [f"note: {n}" for n in self.notes])


def pod(runtime):
    """One pod through the CRI: what a kubelet does for it, without the kubelet."""
    name = f"p{os.getpid()}"
    folder = os.environ["RIG_DIR"]
    files = {}
    for what, body in (("pod", {"metadata": {"name": name, "namespace": "bench", "uid": name, "attempt": 0}, "linux": {}}),
                       ("container", {"metadata": {"name": "c"}, "image": {"image": BUSYBOX}, "command": ["sleep", "1000"], "linux": {}})):
        files[what] = f"{folder}/{name}.{what}.json"
        with open(files[what], "w", encoding="ascii") as f:
            json.dump(body, f)
    sandbox = run("crictl", "runp", "-r", runtime, files["pod"]).strip()
    container = run("crictl", "create", sandbox, files["container"], files["pod"]).strip()
    run("crictl", "start", container)
    run("crictl", "rmp", "-f", sandbox)
    for path in files.values():
        os.unlink(path)


def main():
    if sys.argv[1:2] == ["-pod"]:
        pod(sys.argv[2])
        return
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("-r", default="runc,glovebox,runsc")
    parser.add_argument("-o", default="")
    parser.add_argument("sections", nargs="*", default=[])
    options = parser.parse_args()
    bench = Bench(options.r.split(","), options.n)
    for section in options.sections or list(TITLE):
        began = time.monotonic()
        print(f"measuring: {TITLE[section]} ...", flush=True)
        try:
            getattr(bench, section)()
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            bench.note(f"{section}: {e}")
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    print(bench.report())
    run("umount", "/run/runsc/null-netns", check=False)  # runsc's own, for good
    if options.o:
        with open(options.o, "w", encoding="ascii") as f:
            json.dump({"machine": os.uname().release, "processors": os.cpu_count(), "repetitions": options.n, "results": bench.results,
                       "notes": bench.notes}, f, indent=1)


main()
