"""What the controller's tests share: programs, waiting, objects in short."""
import json
import os
import signal
import subprocess
import time

from api import Api

DIR = os.environ["API_DIR"]
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
EXTG, COREG, FRONTG = "extensions.agents.x-k8s.io/v1beta1", "agents.x-k8s.io/v1beta1", "sandbox.k8s.io/v1alpha1"


class Failed(Exception):
    pass


def check(ok, *what):
    if not ok:
        raise Failed(" ".join(str(w) for w in what))


def until(fn, seconds=10, what=""):
    """The first true answer of fn."""
    end = time.time() + seconds
    while True:
        try:
            got = fn()
            if got:
                return got
        except (KeyError, IndexError, TypeError, AssertionError) as e:
            got = e
        if time.time() > end:
            raise Failed(f"not within {seconds} s: {what or got}")
        time.sleep(0.03)


def kubectl(*argv, stdin=None, fails=False):
    r = subprocess.run(("kubectl",) + argv, input=stdin, capture_output=True, text=True, timeout=120)
    check((r.returncode != 0) == fails, "kubectl", *argv, "->", r.returncode, r.stdout, r.stderr)
    return r.stdout + r.stderr


class Program:
    def __init__(self, name, *argv):
        self.name, self.argv, self.p = name, argv, None
        self.start()

    def start(self):
        self.log = open(os.path.join(DIR, self.name + ".log"), "ab")
        self.p = subprocess.Popen(self.argv, stdout=self.log, stderr=self.log)

    def stop(self, how=signal.SIGTERM):
        self.p.send_signal(how)
        return self.p.wait(20)


def manager(name="controller", *flags):
    return Program(name, os.environ["GLOVEBOX_CONTROLLER"], "manager", "--kubeconfig", os.environ["KUBECONFIG"], "--metrics-bind-address", "0",
                   "--health-probe-bind-address", "0", *(flags or ("--leader-elect=false",)))


def hollow():
    return Program("hollow", os.environ["HOLLOW"], os.environ["KUBECONFIG"])


def garbage_collector():
    """The real one: owner references end in deletions as on a cluster."""
    return Program("gc", "kube-controller-manager", "--kubeconfig", os.environ["KUBECONFIG"], "--controllers=garbage-collector-controller,namespace-controller",
                   "--leader-elect=false", "--secure-port=0", "--concurrent-gc-syncs=5")


class Ns:
    """A namespace and short ways to its objects."""

    def __init__(self, api, name):
        self.api, self.name = api, name
        api.ok("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def path(self, kind, name=""):
        group, plural = {
            "pod": ("/api/v1", "pods"), "svc": ("/api/v1", "services"), "pvc": ("/api/v1", "persistentvolumeclaims"), "event": ("/api/v1", "events"),
            "quota": ("/api/v1", "resourcequotas"),
            "policy": ("/apis/networking.k8s.io/v1", "networkpolicies"), "sandbox": ("/apis/" + COREG, "sandboxes"), "claim": ("/apis/" + EXTG, "sandboxclaims"),
            "template": ("/apis/" + EXTG, "sandboxtemplates"), "pool": ("/apis/" + EXTG, "sandboxwarmpools"), "fsandbox": ("/apis/" + FRONTG, "sandboxes"),
            "fclaim": ("/apis/" + FRONTG, "sandboxclaims"), "ftemplate": ("/apis/" + FRONTG, "sandboxtemplates"), "fpool": ("/apis/" + FRONTG, "sandboxwarmpools")}[kind]
        return f"{group}/namespaces/{self.name}/{plural}" + ("/" + name if name else "")

    def make(self, kind, name, spec=None, **meta):
        api, k = {"pod": ("v1", "Pod"), "svc": ("v1", "Service"), "pvc": ("v1", "PersistentVolumeClaim"), "policy": ("networking.k8s.io/v1", "NetworkPolicy"),
                  "quota": ("v1", "ResourceQuota"),
                  "sandbox": (COREG, "Sandbox"), "claim": (EXTG, "SandboxClaim"), "template": (EXTG, "SandboxTemplate"), "pool": (EXTG, "SandboxWarmPool"),
                  "fsandbox": (FRONTG, "Sandbox"), "fclaim": (FRONTG, "SandboxClaim"), "ftemplate": (FRONTG, "SandboxTemplate"), "fpool": (FRONTG, "SandboxWarmPool")}[kind]
        return self.api.ok("POST", self.path(kind), {"apiVersion": api, "kind": k, "metadata": dict(meta, name=name), "spec": spec or {}})

    def get(self, kind, name):
        status, body = self.api.call("GET", self.path(kind, name))
        return body if status == 200 else None

    def all(self, kind):
        return self.api.list(self.path(kind))

    def patch(self, kind, name, body):
        return self.api.merge(self.path(kind, name), body)

    def delete(self, kind, name):
        return self.api.call("DELETE", self.path(kind, name))

    def condition(self, kind, name, type_="Ready"):
        for c in (self.get(kind, name) or {}).get("status", {}).get("conditions", []):
            if c["type"] == type_:
                return c
        return {}

    def wait(self, kind, name, type_, want, seconds=10):
        """want: "True" or "False/Reason"."""
        def look():
            c = self.condition(kind, name, type_)
            return c if c and (c["status"] + "/" + c["reason"]).startswith(want) else None
        return until(look, seconds, f"{kind} {name} {type_}={want}, is {self.condition(kind, name, type_)}")

    def gone(self, kind, name, seconds=20):
        until(lambda: self.get(kind, name) is None, seconds, f"{kind} {name} is still there")

    def events(self, name):
        return [e["reason"] for e in self.all("event") if e["involvedObject"]["name"] == name]


def pod_spec(**more):
    return dict({"containers": [{"name": "c", "image": "busybox"}]}, **more)


def box(**more):
    spec = {"podTemplate": {"spec": pod_spec()}}
    spec.update(more)
    return spec


GLOVEBOX = {"podTemplate": {"spec": pod_spec(runtimeClassName="glovebox")}}


def audit_writes(since, ns, agent="glovebox-controller"):
    """Requests of the controller about a namespace in the audit log beyond byte `since`; (list of "verb resource name", new offset)."""
    path = os.path.join(DIR, "audit.log")
    with open(path) as f:
        f.seek(since)
        text = f.read()
    out = []
    for line in text.splitlines():
        try:
            a = json.loads(line)
        except ValueError:
            continue
        if agent in a.get("userAgent", "") and a["verb"] not in ("watch", "list"):
            o = a["objectRef"]
            if o.get("namespace") != ns:
                continue
            out.append(f"{a['verb']} {o['resource']}{'/' + o['subresource'] if 'subresource' in o else ''} {o.get('name', '')}")
    return out, since + len(text.encode())


def connect():
    return Api(DIR)
