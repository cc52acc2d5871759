"""Pause, resume and claims on a real kubelet, from the patch to the condition, as a client sees them.

    make bench-kubelet          a cluster of its own (hack/cluster), the controller and the node agent beside it

Prints the median and the worst of N (20); the load average stands beside them, for the machine may be busy.
"""
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time

D = os.environ["CLUSTER_DIR"]
N = int(os.environ.get("N", 20))
CORE, EXT = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/", "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/default/"


class Api:
    def __init__(self):
        c = ssl.create_default_context(cafile=D + "/pki/ca.crt")
        c.load_cert_chain(D + "/pki/admin.crt", D + "/pki/admin.key")
        self.c = http.client.HTTPSConnection("10.99.0.2", 6443, context=c, timeout=120)

    def call(self, method, path, body=None, kind="application/json"):
        self.c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": kind})
        a = self.c.getresponse()
        text = a.read()
        if a.status >= 300 and a.status not in (404, 409):
            raise SystemExit(f"{method} {path}: {a.status} {text[:300]}")
        return json.loads(text)

    def merge(self, path, body):
        return self.call("PATCH", path, body, "application/merge-patch+json")


class Watch(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.state, self.changed = path, {}, threading.Condition()
        self.start()
        time.sleep(0.3)

    def run(self):
        api = Api()
        api.c.request("GET", self.path + "?watch=1")
        for line in api.c.getresponse():
            o = json.loads(line)["object"]
            with self.changed:
                self.state[o["metadata"]["name"]] = dict({c["type"]: c["status"] for c in o.get("status", {}).get("conditions", [])}, at=time.time(), object=o)
                self.changed.notify_all()

    def until(self, name, fn, seconds=30):
        end = time.time() + seconds
        with self.changed:
            while not (name in self.state and fn(self.state[name])):
                if not self.changed.wait(max(0, end - time.time())) and time.time() > end:
                    raise SystemExit(f"{name}: not within {seconds} s: {json.dumps(self.state.get(name))[:1500]}")
            return self.state[name]["at"]


def spec(runtime="glovebox"):
    s = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "Never", "command": ["sleep", "1000000"]}]}
    if runtime:
        s["runtimeClassName"] = runtime
    return {"podTemplate": {"spec": s}}


def line(name, values, goal):
    values = sorted(v * 1000 for v in values)
    p50 = values[len(values) // 2]
    print(f"{name:44s} p50 {p50:8.1f} ms   max {values[-1]:8.1f} ms   (goal p50 <= {goal})" + ("" if p50 <= goal else "  MISSED"), flush=True)


def main():
    api = Api()
    print(f"load average {os.getloadavg()[0]:.1f}, {N} of each")
    boxes, claims = Watch(CORE + "sandboxes"), Watch(EXT + "sandboxclaims")
    t = time.time()
    api.call("POST", CORE + "sandboxes", {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": "s"}, "spec": spec()})
    line("create to Ready (one)", [boxes.until("s", lambda s: s.get("Ready") == "True") - t], 10000)
    took = {"pause": [], "resume": []}
    for _ in range(N):
        for what in ("pause", "resume"):
            time.sleep(0.3)
            t = time.time()
            api.merge(CORE + "sandboxes/s", {"spec": {"paused": what == "pause"}})
            want = (lambda s: s.get("Paused") == "True") if what == "pause" else (lambda s: s.get("Paused") == "False" and s.get("Ready") == "True")
            took[what].append(boxes.until("s", want) - t)
    line("patch to paused", took["pause"], 100)
    line("patch to resumed and Ready", took["resume"], 100)
    mem = boxes.state["s"]["object"]["status"].get("memory")
    print("    memory of the pod around a pause, bytes:", mem)
    api.call("POST", EXT + "sandboxtemplates", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate", "metadata": {"name": "t"}, "spec": spec()})
    for state in ("Paused", "Running"):
        pool = "p-" + state.lower()
        api.call("POST", EXT + "sandboxwarmpools", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "metadata": {"name": pool},
                                                    "spec": {"replicas": 5, "memberState": state, "sandboxTemplateRef": {"name": "t"}}})

        def full():
            s = api.call("GET", EXT + "sandboxwarmpools/" + pool).get("status", {})
            return s.get("readyReplicas") == 5 and s.get("pausedReplicas") == (5 if state == "Paused" else 0)
        took = []
        for i in range(N):
            end = time.time() + 120
            while not full():
                time.sleep(0.2)
                if time.time() > end:
                    raise SystemExit(f"pool {pool} is not filled: {api.call('GET', EXT + 'sandboxwarmpools/' + pool)}")
            time.sleep(0.5)
            name = f"{pool}-{i}"
            t = time.time()
            api.call("POST", EXT + "sandboxclaims", {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": name}, "spec": {"warmPoolRef": {"name": pool}}})
            took.append(claims.until(name, lambda s: s.get("Ready") == "True") - t)
            api.call("DELETE", EXT + "sandboxclaims/" + name)
        line(f"claim of a {state.lower()} member to Ready", took, 100)
        api.call("DELETE", EXT + "sandboxwarmpools/" + pool)


main()
