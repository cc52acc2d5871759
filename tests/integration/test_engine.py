#!/usr/bin/env python3
"""The engine against a real API server, with everything that breaks.  Run by test_engine.sh beside apiserver.sh; needs API_DIR and ENGINE_PROBE."""
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

from api import Api

D = os.environ["API_DIR"]
PROBE = os.environ["ENGINE_PROBE"]
ME = os.path.dirname(os.path.abspath(__file__))
N = int(os.environ.get("ENGINE_OBJECTS", "2000"))
BIG = int(os.environ.get("ENGINE_BIG", "10000"))
api = Api(D)
NS = "/api/v1/namespaces"


def apiserver(*args):
    subprocess.run([os.path.join(ME, "apiserver.sh"), *args], check=True)


every = []


class Probe:
    """One engine_probe process."""

    def __init__(self, *args, config=None):
        self.log = tempfile.TemporaryFile(mode="w+")
        every.append(self)
        self.p = subprocess.Popen([PROBE, config or os.path.join(D, "admin.conf"), *args], stdout=subprocess.PIPE, stderr=self.log, text=True)
        until("started", 10, lambda: any('"started"' in x for x in self.lines()))  # before that SIGUSR1 would end it

    def numbers(self):
        self.p.send_signal(signal.SIGUSR1)
        return json.loads(self.p.stdout.readline())

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        out, _ = self.p.communicate(timeout=20)
        assert self.p.returncode == 0, (self.p.returncode, self.lines()[-5:])
        return json.loads(out.splitlines()[-1])

    def kill(self):
        self.p.kill()
        self.p.wait()

    def lines(self):
        self.log.seek(0)
        return self.log.read().splitlines()


class Proxy:
    """TCP between the engine and the API server: can cut every connection after a number of bytes, swallow, or refuse."""

    def __init__(self):
        self.cut_after = None
        self.mute = False
        self.links = []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            a, _ = self.server.accept()
            try:
                b = socket.create_connection(("127.0.0.1", api.port))
            except OSError:
                a.close()
                continue
            link = {"a": a, "b": b, "left": self.cut_after() if self.cut_after else None}
            self.links.append(link)
            threading.Thread(target=self.pump, args=(link, a, b, False), daemon=True).start()
            threading.Thread(target=self.pump, args=(link, b, a, True), daemon=True).start()

    def pump(self, link, source, sink, counted):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                while self.mute:
                    time.sleep(0.05)
                if counted and link["left"] is not None:
                    if link["left"] <= len(data):
                        sink.sendall(data[: link["left"]])
                        self.cuts += 1
                        break
                    link["left"] -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        self.close(link)

    def close(self, link):
        for s in (link["a"], link["b"]):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def cut_all(self):
        for link in self.links:
            self.close(link)
        self.links = []

    def config(self):
        path = os.path.join(D, f"proxy{self.port}.conf")
        text = open(os.path.join(D, "admin.conf")).read()
        open(path, "w").write(text.replace(f"127.0.0.1:{api.port}", f"127.0.0.1:{self.port}"))
        return path


def parent(name, value):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"probe": "parent"}}, "data": {"value": value}}


def make(ns, names, value="v"):
    for name in names:
        api.ok("POST", f"{NS}/{ns}/configmaps", parent(name, value))


def new_ns(name):
    for o in api.list(NS):  # objects of earlier cases would be listed and watched too
        api.ok("DELETE", f"{NS}/{o['metadata']['name']}/configmaps?labelSelector=probe")
    api.ok("POST", NS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def world(ns):
    items = api.list(f"{NS}/{ns}/configmaps")
    parents = {o["metadata"]["name"]: o for o in items if o["metadata"].get("labels", {}).get("probe") == "parent"}
    children = {o["metadata"]["name"]: o for o in items if o["metadata"].get("labels", {}).get("probe") == "child"}
    return parents, children


def settled(ns):
    """Every parent has its child with its data and says so; no child is without its parent."""
    parents, children = world(ns)
    if set(children) != {f"{p}-child" for p in parents}:
        return False
    return all(
        children[f"{n}-child"].get("data") == o.get("data") and o["metadata"].get("annotations", {}).get("probe/seen") == o["data"]["value"]
        and children[f"{n}-child"]["metadata"]["ownerReferences"][0]["uid"] == o["metadata"]["uid"]
        for n, o in parents.items())


def until(what, seconds, fn, *args):
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if fn(*args):
            return time.monotonic() - start
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what}")


# ---- cases ----

def case_many_objects_are_made_once_and_then_it_is_quiet():
    ns = new_ns("many")
    probe = Probe()
    make(ns, [f"p{i}" for i in range(N)])
    took = until("all children", 60, settled, ns)
    before = probe.numbers()
    time.sleep(3)
    after = probe.numbers()
    assert before["creates"] == N, before
    assert before["patches"] == N, before
    assert before["failed"] == 0, before
    assert {k: before[k] for k in ("passes", "creates", "patches", "lists")} == {k: after[k] for k in ("passes", "creates", "patches", "lists")}, (before, after)
    print(f"  {N} parents settled {took:.1f} s after the last was made; probe used {after['cpu_ms']} ms of CPU, {after['rss_kib']} KiB")
    assert after["lists"] == 2, after
    probe.stop()


def case_a_child_deleted_or_changed_by_others_is_made_right():
    ns = new_ns("meddle")
    probe = Probe()
    make(ns, ["a", "b"])
    until("settled", 10, settled, ns)
    api.ok("DELETE", f"{NS}/{ns}/configmaps/a-child")
    api.merge(f"{NS}/{ns}/configmaps/b-child", {"data": {"value": "meddled"}})
    until("right again", 10, settled, ns)
    api.ok("DELETE", f"{NS}/{ns}/configmaps/a")
    api.ok("POST", f"{NS}/{ns}/configmaps", parent("a", "second"))  # same name, other uid
    until("the child belongs to the new parent", 10, settled, ns)
    probe.stop()


def case_the_api_server_is_killed_and_comes_back():
    ns = new_ns("restart")
    probe = Probe()
    make(ns, [f"p{i}" for i in range(50)])
    until("settled", 20, settled, ns)
    lists = probe.numbers()["lists"]
    apiserver("kill", D, "api")
    time.sleep(3)
    apiserver("start", D, "api")
    apiserver("ready", D)
    make(ns, [f"q{i}" for i in range(50)])
    took = until("settled after the restart", 40, settled, ns)
    n = probe.numbers()
    print(f"  settled {took:.1f} s after the API server was ready; lists {lists} -> {n['lists']}")
    assert n["creates"] <= 100 + 2, n
    probe.stop()


def case_etcd_stops_for_a_minute():
    ns = new_ns("etcd")
    probe = Probe()
    make(ns, [f"p{i}" for i in range(20)])
    until("settled", 20, settled, ns)
    apiserver("stop", D, "etcd")
    time.sleep(float(os.environ.get("ENGINE_ETCD_PAUSE", "60")))
    apiserver("cont", D, "etcd")
    apiserver("ready", D)
    until("writes work", 60, lambda: api.call("POST", f"{NS}/{ns}/configmaps", parent("after", "v"))[0] == 201)
    took = until("settled", 60, settled, ns)
    print(f"  settled {took:.1f} s after etcd was back")
    assert probe.numbers()["children"] >= 21
    probe.stop()


def case_connections_are_cut_in_the_middle_of_objects():
    ns = new_ns("cuts")
    proxy = Proxy()
    proxy.cut_after = lambda: random.randint(5000, 150000)
    probe = Probe(config=proxy.config())
    make(ns, [f"p{i}" for i in range(300)], "x" * 200)
    until("settled in spite of cuts", 120, settled, ns)
    assert proxy.cuts >= 5, proxy.cuts
    n = probe.numbers()
    proxy.cut_after = None
    proxy.cut_all()
    print(f"  {proxy.cuts} cuts, {n['lists']} lists, {n['watches']} watches, {n['creates']} creates for 300 objects")
    probe.stop()


def case_deletions_that_nobody_saw_are_found_by_the_next_list():
    ns = new_ns("gap")
    proxy = Proxy()
    probe = Probe(config=proxy.config())
    make(ns, [f"p{i}" for i in range(40)])
    until("settled", 20, settled, ns)
    lists = probe.numbers()["lists"]
    probe.p.send_signal(signal.SIGSTOP)
    proxy.cut_all()
    for i in range(20):
        api.ok("DELETE", f"{NS}/{ns}/configmaps/p{i}")
    apiserver("kill", D, "api")  # with its memory of old versions
    revision = int(api_revision_compact())
    assert revision > 0
    apiserver("start", D, "api")
    apiserver("ready", D)
    probe.p.send_signal(signal.SIGCONT)
    until("children of lost parents are gone", 60, settled, ns)
    n = probe.numbers()
    assert n["lists"] > lists, (n, lists)
    _, children = world(ns)
    assert len(children) == 20
    probe.stop()


def api_revision_compact():
    """Forget old revisions in etcd, so that a watch from one of them gets 410."""
    ports = dict(p.split("=") for p in open(os.path.join(D, "ports")).read().split())
    base = f"http://127.0.0.1:{ports['CLIENT']}/v3"

    def post(path, body):
        req = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(req, timeout=10).read())

    revision = post("/kv/range", {"key": "YQ=="})["header"]["revision"]
    post("/kv/compaction", {"revision": revision, "physical": True})
    return revision


def case_a_peer_that_is_silent_does_not_stop_it_for_ever():
    ns = new_ns("mute")
    proxy = Proxy()
    probe = Probe(config=proxy.config())
    make(ns, ["a"])
    until("settled", 10, settled, ns)
    proxy.mute = True
    make(ns, ["b"])
    time.sleep(2)
    assert not settled(ns)
    proxy.mute = False
    until("settled", 40, settled, ns)
    probe.stop()


def case_two_replicas_and_the_leader_is_killed():
    ns = new_ns("lease")
    a, b = Probe("lease", "probe"), Probe("lease", "probe")
    until("one leads", 10, lambda: a.numbers()["leading"] != b.numbers()["leading"])
    make(ns, [f"p{i}" for i in range(30)])
    until("settled", 20, settled, ns)
    for round_ in range(3):
        leader, other = (a, b) if a.numbers()["leading"] else (b, a)
        assert other.numbers()["creates"] == 0 or round_ > 0
        make(ns, [f"r{round_}x{i}" for i in range(30)])
        time.sleep(random.random() * 0.2)
        leader.kill()
        took = until("the other takes over", 15, lambda: other.numbers()["leading"])
        until("settled", 20, settled, ns)
        print(f"  the other leads {took:.1f} s after kill -9 (lease 4 s)")
        a, b = other, Probe("lease", "probe")
    leader, other = (a, b) if a.numbers()["leading"] else (b, a)
    leader.stop()
    took = until("graceful release", 3, lambda: other.numbers()["leading"])
    print(f"  the other leads {took:.1f} s after a graceful stop")
    other.stop()


def case_health_answers_and_is_bounded():
    s = socket.create_server(("127.0.0.1", 0))
    port = s.getsockname()[1]
    s.close()
    probe = Probe("health", f"127.0.0.1:{port}")
    base = f"http://127.0.0.1:{port}"

    def status(path, method="GET"):
        try:
            return urllib.request.urlopen(urllib.request.Request(base + path, method=method), timeout=5).status
        except urllib.error.HTTPError as e:
            return e.code
        except urllib.error.URLError:
            return 0

    until("ready", 10, lambda: status("/readyz") == 200)
    assert status("/healthz") == 200
    assert status("/healthz", "HEAD") == 200
    assert status("/nothing") == 404
    assert status("/healthz", "POST") == 405
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    assert status("/healthz") == 200
    for junk in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"A" * 10000, b"GET /\0 HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=7) as c:
            c.sendall(junk)
            try:
                c.recv(4096)
            except ConnectionResetError:
                pass
    assert status("/healthz") == 200
    del idle
    probe.stop()


def case_ten_thousand_objects_are_listed_in_time():
    ns = new_ns("big")
    filler = {"value": "v", "text": "x" * 300}
    done = threading.Semaphore(0)

    def maker(k):
        mine = Api(D)
        for i in range(k, BIG, 4):
            o = parent(f"big{i}", "v")
            o["metadata"]["labels"] = {"probe": "child", "parent": f"nobody{i}"}
            o["data"] = filler
            mine.ok("POST", f"{NS}/{ns}/configmaps", o)
        done.release()

    for k in range(4):
        threading.Thread(target=maker, args=(k,), daemon=True).start()
    for _ in range(4):
        done.acquire()
    probe = Probe("lease", "never")  # a standby that is not yet leading: nothing is deleted meanwhile
    n = {}

    def synced():
        n.update(probe.numbers())
        return n["synced_ms"] >= 0

    until("synced", 30, synced)
    print(f"  {BIG} objects listed and cached in {n['synced_ms']} ms, {n['cpu_ms']} ms of CPU, RSS {n['rss_kib']} KiB")
    assert n["synced_ms"] <= 5000, n
    probe.kill()
    api.ok("DELETE", f"{NS}/{ns}/configmaps")


def main():
    names = [n for n in globals() if n.startswith("case_")]
    wanted = sys.argv[1:]
    failed = 0
    for name in names:
        if wanted and not any(w in name for w in wanted):
            continue
        title = name[5:].replace("_", " ")
        start = time.monotonic()
        try:
            globals()[name]()
            print(f"ok   {title} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception as e:  # a case that fails must not hide the others
            failed += 1
            print(f"FAIL {title}: {type(e).__name__}: {e}", flush=True)
            for p in every:
                print(f"  log of {p.p.args[2:]}, status {p.p.poll()}:", *p.lines()[-int(os.environ.get("ENGINE_LINES", "12")):], sep="\n    ", flush=True)
        for p in every:
            if p.p.poll() is None:
                p.kill()
        every.clear()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
