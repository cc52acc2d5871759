"""Benchmarks of the controller beside a real API server with hollow pods.

    make bench-controller                     all of them
    make bench-controller CASES='claims rate'  only some: cycle claims rate empty memory restart quiet

Requests are counted from the API server's audit log by user agent; CPU and memory from /proc.  Prints one line per figure:
NAME VALUE UNIT (goal GOAL) and, at the end, what misses its goal; the exit status is 0 all the same: the machine may be busy,
so the load average is printed, too.  GLOVEBOX_CONTROLLER and HOLLOW say which programs.
"""
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from api import Api  # noqa: E402

DIR = os.environ["API_DIR"]
CORE = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/"
EXT = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/"
TICK = os.sysconf("SC_CLK_TCK")
MISSES = []


def say(name, value, unit="", goal=None, below=True):
    missed = goal is not None and (value > goal if below else value < goal)
    if missed:
        MISSES.append(f"{name}: {value:.4g} {unit}, goal {goal}")
    print(f"{name:58s} {value:10.4g} {unit:6s}" + (f" (goal {'<=' if below else '>='} {goal})" if goal is not None else "") + (" MISSED" if missed else ""), flush=True)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")


class Program:
    """The controller or the hollow kubelet."""

    def __init__(self, name, *argv):
        self.log = open(os.path.join(DIR, name + ".log"), "ab")
        self.p = subprocess.Popen(argv, stderr=self.log, stdout=self.log)

    def cpu_ms(self):
        f = open(f"/proc/{self.p.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) * 1000 / TICK

    def rss_mib(self):
        for line in open(f"/proc/{self.p.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def stop(self, how=signal.SIGTERM):
        self.p.send_signal(how)
        self.p.wait()


def controller():
    c = Program("controller", os.environ["GLOVEBOX_CONTROLLER"], "manager", "--kubeconfig", os.environ["KUBECONFIG"], "--leader-elect=false",
                "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
    return c


class Audit:
    """Requests since the last look, by user agent."""

    def __init__(self):
        self.f = open(os.path.join(DIR, "audit.log"))
        self.f.seek(0, 2)

    def take(self, agent="glovebox-controller"):
        time.sleep(0.3)
        rows = {}
        for line in self.f:
            try:
                a = json.loads(line)
            except ValueError:
                continue
            if agent in a.get("userAgent", "") and a["verb"] not in ("watch", "list"):
                o = a["objectRef"]
                key = f"{a['verb']} {o['resource']}{'/' + o['subresource'] if 'subresource' in o else ''}"
                rows[key] = rows.get(key, 0) + 1
        return rows


class Watch(threading.Thread):
    """Times at which claims (or sandboxes) reach a condition."""

    def __init__(self, path, kind="Ready"):
        super().__init__(daemon=True)
        self.path, self.kind, self.api, self.ready, self.warm, self.changed = path, kind, Api(DIR), {}, {}, threading.Condition()
        self.states = {}
        self.start()
        time.sleep(0.2)

    def run(self):
        try:
            self.read()
        except (OSError, ValueError):
            pass  # nothing came for a minute: the case that wanted it is over

    def read(self):
        api = self.api
        api.call("GET", "/version")
        api.connection.request("GET", self.path + "?watch=1")
        for line in api.connection.getresponse():
            e = json.loads(line)
            o = e["object"]
            now = time.time()
            states = {c["type"]: c["status"] for c in o.get("status", {}).get("conditions", [])}
            with self.changed:
                name = o["metadata"]["name"]
                self.states[name] = dict(states, deleted=e["type"] == "DELETED")
                if states.get("Ready") == "True" and name not in self.ready:
                    self.ready[name] = now
                    self.warm[name] = o["status"].get("sandbox", {}).get("name") != name
                self.changed.notify_all()

    def until(self, fn, seconds):
        end = time.time() + seconds
        with self.changed:
            while not fn():
                left = end - time.time()
                if left <= 0:
                    return False
                self.changed.wait(left)
        return True


def wait(fn, seconds=60, step=0.1):
    end = time.time() + seconds
    while not fn():
        if time.time() > end:
            raise SystemExit("bench: gave up waiting: " + str(fn))
        time.sleep(step)


API = Api(DIR)


def template(name="t"):
    API.call("POST", EXT + "sandboxtemplates", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate", "metadata": {"name": name},
                                                "spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}}})


def pool(name, replicas):
    template()
    API.ok("POST", EXT + "sandboxwarmpools", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": name},
                                              "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "t"}}})
    wait(lambda: API.ok("GET", EXT + "sandboxwarmpools/" + name).get("status", {}).get("readyReplicas", 0) >= replicas, 120)
    time.sleep(1)


def claim(name, pool_name, api=API):
    return api.ok("POST", EXT + "sandboxclaims", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": name},
                                                  "spec": {"warmPoolRef": {"name": pool_name}}})


def clean():
    """Everything away; nobody collects garbage here."""
    for path in (EXT + "sandboxclaims", EXT + "sandboxwarmpools", CORE + "sandboxes", "/api/v1/namespaces/default/pods"):
        API.call("DELETE", path + "?gracePeriodSeconds=0")
    time.sleep(1)


def sandbox(name, **spec):
    return {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name},
            "spec": dict({"podTemplate": {"spec": {"runtimeClassName": "glovebox", "containers": [{"name": "c", "image": "busybox"}]}}}, **spec)}


def bench_cycle(c):
    """create, pause in place, resume, delete."""
    n, audit, watch = 30, Audit(), Watch(CORE + "sandboxes")
    took = {"create": [], "pause": [], "resume": []}
    for i in range(n):
        name, t = f"cycle{i}", time.time()
        API.ok("POST", CORE + "sandboxes", sandbox(name))
        assert watch.until(lambda: watch.states.get(name, {}).get("Ready") == "True", 10)
        took["create"].append(time.time() - t)
        for what, want in (("pause", "True"), ("resume", "False")):
            t = time.time()
            API.merge(CORE + "sandboxes/" + name, {"spec": {"paused": what == "pause"}})
            assert watch.until(lambda: watch.states[name].get("Paused") == want and (want == "True" or watch.states[name]["Ready"] == "True"), 10)
            took[what].append(time.time() - t)
        API.ok("DELETE", CORE + "sandboxes/" + name)
    time.sleep(2)
    rows = audit.take()
    for what in took:
        say(f"sandbox {what} p50", percentile(took[what], 50) * 1000, "ms", 100)
    say("requests a cycle create, pause, resume, delete", sum(rows.values()) / n, "", 8)
    print("   ", {k: round(v / n, 2) for k, v in sorted(rows.items())})
    clean()


def bench_claims(c):
    """One after another, full pool of 10."""
    pool("serial", 10)
    n, audit, watch, cpu, took = 100, Audit(), Watch(EXT + "sandboxclaims"), c.cpu_ms(), []
    for i in range(n):
        name, t = f"serial-claim{i}", time.time()
        claim(name, "serial")
        assert watch.until(lambda: name in watch.ready, 10)
        took.append(watch.ready[name] - t)
        time.sleep(0.05)
    time.sleep(2)
    rows = audit.take()
    say("claims one after another p50", percentile(took, 50) * 1000, "ms", 45)
    say("claims one after another p99", percentile(took, 99) * 1000, "ms", 107)
    say("claims that got a member", sum(watch.warm.values()) * 100 / n, "%", 100, below=False)
    say("requests a warm claim with the refill", sum(rows.values()) / n, "", 8)
    say("controller CPU a claim", (c.cpu_ms() - cpu) / n, "ms", 3)
    print("   ", {k: round(v / n, 2) for k, v in sorted(rows.items())})
    clean()


def open_loop(c, rate, seconds, replicas, goals):
    pool(f"r{rate}", replicas)
    n, audit, watch, cpu = int(rate * seconds), Audit(), Watch(EXT + "sandboxclaims"), c.cpu_ms()
    sent, todo = {}, queue.Queue()

    def send():
        api = Api(DIR)
        while True:
            name = todo.get()
            if name is None:
                return
            claim(name, f"r{rate}", api)

    workers = [threading.Thread(target=send, daemon=True) for _ in range(8)]
    for w in workers:
        w.start()
    start = time.time()
    for i in range(n):
        time.sleep(max(0, start + i / rate - time.time()))
        sent[f"r{rate}-claim{i}"] = start + i / rate
        todo.put(f"r{rate}-claim{i}")
    done = watch.until(lambda: len(watch.ready) >= n, 30)
    behind = time.time() - sent[f"r{rate}-claim{n - 1}"]
    took = [watch.ready[k] - sent[k] for k in sent if k in watch.ready]
    for w in workers:
        todo.put(None)
    time.sleep(2)
    rows = audit.take()
    say(f"open loop {rate}/s p50", percentile(took, 50) * 1000, "ms", goals[0])
    say(f"open loop {rate}/s p99", percentile(took, 99) * 1000, "ms", goals[1])
    say(f"open loop {rate}/s not Ready", n - len(took), "", 0)
    say(f"open loop {rate}/s got a member", sum(watch.warm.values()) * 100 / n, "%", 100, below=False)
    say(f"open loop {rate}/s last claim Ready after its time", behind, "s", 2)
    say(f"open loop {rate}/s requests a claim", sum(rows.values()) / n, "", 8)
    say(f"open loop {rate}/s controller CPU a claim", (c.cpu_ms() - cpu) / n, "ms", 3)
    print("   ", {k: round(v / n, 2) for k, v in sorted(rows.items())}, "" if done else "TIMED OUT")
    clean()


def bench_rate(c):
    open_loop(c, 10, 20, 20, (25, 100))
    open_loop(c, 20, 20, 40, (40, 200))
    open_loop(c, 45, int(os.environ.get("LONG", 60)), 200, (None, None))


def bench_empty(c):
    """A pool of nothing: every claim starts its own, and none is made twice."""
    template()
    API.ok("POST", EXT + "sandboxwarmpools", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": "empty"},
                                              "spec": {"replicas": 0, "sandboxTemplateRef": {"name": "t"}}})
    n, audit, watch = 200, Audit(), Watch(EXT + "sandboxclaims")
    for i in range(n):
        claim(f"cold{i}", "empty")
    assert watch.until(lambda: len(watch.ready) >= n, 60)
    time.sleep(2)
    rows = audit.take()
    say("empty pool: useless creates of sandboxes", rows.get("create sandboxes", 0) - n, "", 0)
    say("empty pool: useless creates of pods", rows.get("create pods", 0) - n, "", 0)
    say("empty pool: requests a cold claim", sum(rows.values()) / n, "")
    print("   ", {k: round(v / n, 2) for k, v in sorted(rows.items())})
    clean()


def fill(total, have=0):
    """Bare sandboxes by several connections."""
    todo = iter(range(have, total))
    lock = threading.Lock()

    def work():
        api = Api(DIR)
        while True:
            with lock:
                i = next(todo, None)
            if i is None:
                return
            api.ok("POST", CORE + "sandboxes", sandbox(f"bulk{i}"))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def ready_count():
    # Names and conditions only: a whole list of 10,000 would be measured here instead of the controller.
    out = subprocess.run(["kubectl", "get", "sandboxes.agents.x-k8s.io", "-o", "custom-columns=R:.status.conditions[?(@.type=='Ready')].status", "--no-headers"],
                         capture_output=True, text=True)
    return out.stdout.split().count("True")


def bench_memory(c):
    for total, goal in ((5000, 40), (10000, 60)):
        t = time.time()
        fill(total, 0 if total == 5000 else 5000)
        wait(lambda: ready_count() >= total, 400, 2)
        say(f"{total} sandboxes made and Ready in", time.time() - t, "s")
        say(f"RSS with {total} sandboxes, grown", c.rss_mib(), "MiB", goal)
        c.stop()
        c.__init__("controller", *c.p.args)
        time.sleep(8)
        say(f"RSS with {total} sandboxes, fresh process", c.rss_mib(), "MiB", goal)


def bench_restart(c):
    if ready_count() < 10000:
        fill(10000)
        wait(lambda: ready_count() >= 10000, 400, 2)
    c.stop()
    log = os.path.join(DIR, "controller.log")
    size = os.path.getsize(log)
    audit, t = Audit(), time.time()
    c.__init__("controller", *c.p.args)
    wait(lambda: b"caches are filled" in open(log, "rb").read()[size:], 60, 0.05)
    say("restart with 10000 sandboxes: caches filled", time.time() - t, "s", 5)
    idle = c.cpu_ms()
    while True:
        time.sleep(0.5)
        now = c.cpu_ms()
        if now - idle < 20:
            break
        idle = now
    say("restart with 10000 sandboxes: all looked at", time.time() - t - 0.5, "s", 5)
    say("restart with 10000 sandboxes: writes", sum(audit.take().values()), "", 0)
    say("restart with 10000 sandboxes: controller CPU", c.cpu_ms(), "ms")


def bench_quiet(c):
    """Ten minutes of nothing (QUIET=seconds to make it shorter)."""
    pool("quiet", 5)
    time.sleep(3)
    audit, cpu, seconds = Audit(), c.cpu_ms(), int(os.environ.get("QUIET", 600))
    time.sleep(seconds)
    rows = audit.take()
    say(f"quiet cluster, requests in {seconds} s", sum(rows.values()), "", 0)
    say(f"quiet cluster, controller CPU in {seconds} s", c.cpu_ms() - cpu, "ms")
    print("   ", rows)
    clean()


def main():
    cases = sys.argv[1:] or ["cycle", "claims", "rate", "empty", "quiet", "memory", "restart"]
    crds = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "crds")
    subprocess.run(["kubectl", "apply", "--server-side", "-f", crds], check=True, stdout=subprocess.DEVNULL)
    for n in ("glovebox", "gvisor"):
        API.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": n}, "handler": "glovebox"})
    wait(lambda: API.call("GET", EXT + "sandboxclaims")[0] == 200 and API.call("GET", CORE + "sandboxes")[0] == 200, 30)
    c, h = controller(), Program("hollow", os.environ["HOLLOW"], os.environ["KUBECONFIG"])
    time.sleep(2)
    say("RSS at start", c.rss_mib(), "MiB")
    for name in cases:
        print(f"-- {name}; load average {os.getloadavg()[0]:.1f}", flush=True)
        globals()["bench_" + name](c)
    c.stop()
    h.stop()
    print("\nmissed:" if MISSES else "\nevery goal is met", *MISSES, sep="\n  ")


main()
