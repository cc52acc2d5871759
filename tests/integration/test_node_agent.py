#!/usr/bin/env python3
"""The node agent with the real kubelet, containerd and shim.  Run by test_node_agent.sh inside a cluster; needs CLUSTER_DIR and CONTROLLER."""
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

from api import Api

D = os.environ["CLUSTER_DIR"]
CONTROLLER = os.environ["CONTROLLER"]
ROUNDS = int(os.environ.get("NODE_ROUNDS", "20"))
KILLS = int(os.environ.get("NODE_KILLS", "20"))
api = Api(os.path.join(D, "pki"), 6443, "10.99.0.2")
PODS = "/api/v1/namespaces/default/pods"
COND = "glovebox.dev/Paused"


class Agent:
    def __init__(self):
        self.log = open(os.path.join(D, "node-agent.log"), "a")
        self.p = subprocess.Popen([CONTROLLER, "node", "--kubeconfig", os.path.join(D, "admin.conf"), "--node", "node1"], stderr=self.log)

    def kill(self, sig=signal.SIGKILL):
        self.p.send_signal(sig)
        self.p.wait(timeout=10)
        self.log.close()


def pod(name, runtime="glovebox", command='i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.01; done', **container):
    c = {"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "Never", "command": ["sh", "-c", command], **container}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"runtimeClassName": runtime, "terminationGracePeriodSeconds": 2, "containers": [c]}}


def get(name):
    status, o = api.call("GET", f"{PODS}/{name}")
    return o if status == 200 else None


def condition(name, kind=COND):
    o = get(name)
    return next((c for c in (o or {}).get("status", {}).get("conditions", []) if c["type"] == kind), None)


def until(what, seconds, fn):
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if fn():
            return time.monotonic() - start
        time.sleep(0.005)
    raise AssertionError(f"not within {seconds} s: {what}")


def make(name, *args, **kw):
    api.ok("POST", PODS, pod(name, *args, **kw))
    until(f"{name} is Ready", 60, lambda: (condition(name, "Ready") or {}).get("status") == "True")


def wish(name, paused):
    api.merge(f"{PODS}/{name}", {"metadata": {"annotations": {"glovebox.dev/pause": "true" if paused else "false"}}})


def says(name, status, reason=None):
    c = condition(name)
    return c is not None and c["status"] == status and (reason is None or c["reason"] == reason)


def remove(*names, grace=0):
    for n in names:
        api.call("DELETE", f"{PODS}/{n}?gracePeriodSeconds={grace}")
    until("pods are gone", 60, lambda: all(get(n) is None for n in names))


def counter(name):
    """The number that the pod's loop has reached; None while nobody can ask it."""
    r = subprocess.run(["kubectl", "exec", name, "--", "cat", "/tmp/n"], capture_output=True, text=True, timeout=20, check=False)
    return int(r.stdout) if r.returncode == 0 and r.stdout.strip() else None


def restarts(name):
    return get(name)["status"]["containerStatuses"][0]["restartCount"]


def median(times):
    return sorted(times)[len(times) // 2]


# ---- cases ----

def case_a_pod_pauses_and_goes_on_where_it_was():
    agent = Agent()
    make("a")
    pauses, resumes = [], []
    for _ in range(ROUNDS):
        start = time.monotonic()
        wish("a", True)
        until("paused", 20, lambda: says("a", "True", "Paused"))
        pauses.append((time.monotonic() - start) * 1000)
        start = time.monotonic()
        wish("a", False)
        until("resumed", 20, lambda: says("a", "False", "Running"))
        resumes.append((time.monotonic() - start) * 1000)
    print(f"  patch to paused p50 {median(pauses):.0f} max {max(pauses):.0f} ms, patch to resumed p50 {median(resumes):.0f} max {max(resumes):.0f} ms, of {ROUNDS}")
    c = condition("a")
    assert c["message"].startswith("took "), c
    first = until_counter("a")
    assert first > 0 and restarts("a") == 0
    until("it counts on", 10, lambda: (counter("a") or 0) > first)
    remove("a")
    agent.kill(signal.SIGTERM)


def until_counter(name):
    value = []
    until("the counter can be read", 20, lambda: value.append(counter(name)) or value[-1] is not None)
    return value[-1]


def case_the_condition_tells_the_memory_before_and_after():
    agent = Agent()
    make("m", command="dd if=/dev/zero bs=1M count=24 2>/dev/null > /dev/shm/x; echo 1 > /tmp/n; sleep 1000000")
    until_counter("m")
    wish("m", True)
    until("paused", 20, lambda: says("m", "True", "Paused"))
    words = condition("m")["message"].split()
    assert words[:2] == ["memory", "before"] and words[3] == "after", words
    print("  " + condition("m")["message"])
    remove("m")
    agent.kill(signal.SIGTERM)


def case_a_pod_of_another_runtime_is_refused_in_words():
    agent = Agent()
    make("r", "runc")
    wish("r", True)
    until("refused", 20, lambda: says("r", "False", "Refused"))

    def written():
        return [f["time"] for f in get("r")["metadata"]["managedFields"] if f["manager"].startswith("glovebox")]

    before = written()
    time.sleep(3)
    assert before and written() == before, (before, written())  # no write is repeated
    remove("r")
    agent.kill(signal.SIGTERM)


def case_a_wish_from_before_the_start_is_done_when_the_pod_is_ready():
    agent = Agent()
    o = pod("w")
    o["metadata"]["annotations"] = {"glovebox.dev/pause": "true"}
    api.ok("POST", PODS, o)
    until("paused", 60, lambda: says("w", "True", "Paused"))
    remove("w")
    agent.kill(signal.SIGTERM)


def case_a_paused_pod_can_be_deleted_and_leaves_nothing():
    agent = Agent()
    make("d")
    wish("d", True)
    until("paused", 20, lambda: says("d", "True", "Paused"))
    start = time.monotonic()
    remove("d", grace=2)
    print(f"  gone {time.monotonic() - start:.1f} s after a delete with 2 s of grace")
    until("no shim is left", 20, lambda: not os.path.isdir("/run/glovebox/pods") or not os.listdir("/run/glovebox/pods"))
    agent.kill(signal.SIGTERM)


def case_wishes_that_change_while_the_agent_is_away_are_kept():
    agent = Agent()
    make("x")
    make("y")
    wish("x", True)
    until("paused", 20, lambda: says("x", "True", "Paused"))
    agent.kill()
    wish("x", False)
    wish("y", True)
    agent = Agent()
    until("x resumed", 20, lambda: says("x", "False", "Running"))
    until("y paused", 20, lambda: says("y", "True", "Paused"))
    remove("x", "y")
    agent.kill(signal.SIGTERM)


def case_the_agent_is_killed_at_random_moments_and_the_last_wish_holds():
    names = ["k0", "k1", "k2"]
    agent = Agent()
    for n in names:
        make(n)
    wishes = {n: False for n in names}
    for i in range(KILLS):
        n = random.choice(names)
        wishes[n] = not wishes[n]
        wish(n, wishes[n])
        time.sleep(random.random() * 0.15)
        agent.kill()
        agent = Agent()
        if i % 5 == 4:
            for m in names:
                until(f"{m} as wished after {i + 1} kills", 30, lambda m=m: says(m, "True", "Paused") if wishes[m] else not condition(m) or says(m, "False", "Running"))
    for n in names:
        wish(n, False)
    for n in names:
        until(f"{n} runs", 30, lambda n=n: not condition(n) or says(n, "False", "Running"))
        first = until_counter(n)
        until(f"{n} counts on", 10, lambda n=n, first=first: (counter(n) or 0) > first)
        assert restarts(n) == 0, n
    remove(*names)
    agent.kill(signal.SIGTERM)


def case_an_exec_probe_does_not_restart_a_paused_pod():
    agent = Agent()
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 1}
    make("e", livenessProbe=probe)
    wish("e", True)
    until("paused", 20, lambda: says("e", "True", "Paused"))
    time.sleep(6)
    assert restarts("e") == 0
    assert says("e", "True", "Paused")
    wish("e", False)
    until("resumed", 20, lambda: says("e", "False", "Running"))
    time.sleep(3)
    assert restarts("e") == 0
    remove("e")
    agent.kill(signal.SIGTERM)


def probed(name, kind, **spec):
    """A pod whose liveness probe would restart it soon.  Not at the first failure: a probe that is under way when the pod freezes does fail."""
    probe = {kind: spec, "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 2, "initialDelaySeconds": 1}
    make(name, command="mkdir /w; echo hello > /w/index.html; httpd -p 8080 -h /w; i=0; while :; do i=$((i+1)); echo $i > /tmp/n; sleep 0.01; done",
         livenessProbe=probe, readinessProbe=probe)


def case_probes_by_http_and_tcp_do_not_restart_a_paused_pod():
    agent = Agent()
    probed("h", "httpGet", port=8080, path="/")
    probed("t", "tcpSocket", port=8080)
    for n in ("h", "t"):
        wish(n, True)
    for n in ("h", "t"):
        until("paused", 20, lambda n=n: says(n, "True", "Paused"))
    ip = get("h")["status"]["podIP"]
    time.sleep(9)
    for n in ("h", "t"):
        assert restarts(n) == 0, n
        assert condition(n, "Ready")["status"] == "True", n  # it keeps the readiness that it had
    status = subprocess.run(["curl", "-s", "-m", "2", "-o", "/dev/null", "-w", "%{http_code}", f"http://{ip}:8080/"], capture_output=True, text=True, check=False).stdout
    assert status == "503", status  # a client of the node that is no probe is told the truth
    for n in ("h", "t"):
        wish(n, False)
    for n in ("h", "t"):
        until("resumed", 20, lambda n=n: says(n, "False", "Running"))
    assert subprocess.run(["curl", "-s", "-m", "2", f"http://{ip}:8080/"], capture_output=True, text=True, check=False).stdout == "hello\n"
    time.sleep(4)
    for n in ("h", "t"):
        assert restarts(n) == 0, n
    remove("h", "t")
    agent.kill(signal.SIGTERM)


def case_a_probe_by_grpc_is_answered_as_serving():
    """There is no server in the pod, so every success is the shim's; the first probe comes after the pause."""
    agent = Agent()
    probe = {"grpc": {"port": 9000, "service": "any"}, "periodSeconds": 1, "failureThreshold": 3, "timeoutSeconds": 3, "initialDelaySeconds": 5}
    make("g", livenessProbe=probe)
    wish("g", True)
    until("paused", 20, lambda: says("g", "True", "Paused"))
    time.sleep(15)  # time for ten probes
    assert restarts("g") == 0
    wish("g", False)
    until("without the shim's answer the probe fails", 20, lambda: restarts("g") > 0)
    remove("g")
    agent.kill(signal.SIGTERM)


POLICIES = "/apis/glovebox.dev/v1alpha1/namespaces/default/egresspolicies"
FLOORS = "/apis/glovebox.dev/v1alpha1/clusteregresspolicies"


def reaches(name, port):
    r = subprocess.run(["kubectl", "exec", name, "--", "sh", "-c", f"nc -w 2 10.99.0.2 {port} </dev/null"], capture_output=True, text=True, timeout=20, check=False)
    return "hello" in r.stdout


def greet(port):
    """A server on the node that says hello to everybody."""
    server = socket.create_server(("10.99.0.2", port))

    def serve():
        while True:
            try:
                c = server.accept()[0]
                c.sendall(b"hello\n")
                c.close()
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    return server


def policy_rules(*ports):
    return {"spec": {"rules": [{"name": "node", "cidrs": ["10.99.0.2"], "ports": list(ports)}]}}


def case_an_egress_policy_reaches_running_pods_changes_and_goes():
    crds = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../crds")
    for kind in ("egresspolicies", "clusteregresspolicies"):
        subprocess.run(["kubectl", "apply", "--server-side", "-f", f"{crds}/glovebox.dev_{kind}.yaml"], check=True, capture_output=True)
    subprocess.run(["kubectl", "wait", "--for=condition=Established", "crd/egresspolicies.glovebox.dev", "crd/clusteregresspolicies.glovebox.dev"], check=True, capture_output=True)
    servers = [greet(8088), greet(8089)]
    agent = Agent()
    meta = {"apiVersion": "glovebox.dev/v1alpha1", "metadata": {"name": "agent"}}
    o = pod("g", command="sleep 1000")
    o["metadata"]["annotations"] = {"glovebox.dev/egress": "agent"}
    api.ok("POST", PODS, o)
    until("g is Ready", 60, lambda: (condition("g", "Ready") or {}).get("status") == "True")
    assert not reaches("g", 8088), "without the policy everything is denied"
    api.ok("POST", POLICIES, {**meta, "kind": "EgressPolicy", **policy_rules(8088)})
    until("the policy is there", 5, lambda: reaches("g", 8088))
    assert not reaches("g", 8089)
    api.merge(f"{POLICIES}/agent", policy_rules(8089))
    took = until("the change is there", 5, lambda: reaches("g", 8089))
    print(f"  a change is in force after at most {took * 1000:.0f} ms, kubectl exec included")
    assert not reaches("g", 8088)
    api.ok("POST", FLOORS, {**meta, "kind": "ClusterEgressPolicy", "metadata": {"name": "node"}, "spec": {"hardDeny": ["10.99.0.0/16"]}})
    until("the floor is there", 5, lambda: not reaches("g", 8089))
    api.ok("DELETE", f"{FLOORS}/node")
    until("the floor is gone", 5, lambda: reaches("g", 8089))
    agent.kill()
    assert reaches("g", 8089), "the last policy holds while the agent is away"
    agent = Agent()
    api.ok("DELETE", f"{POLICIES}/agent")
    until("a deleted policy denies", 5, lambda: not reaches("g", 8089))
    remove("g")
    agent.kill(signal.SIGTERM)
    for s in servers:
        s.close()


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
            print(*open(os.path.join(D, "node-agent.log")).read().splitlines()[-8:], sep="\n", flush=True)
            subprocess.run(["pkill", "-P", str(os.getpid())], check=False)  # only our own children
            for o in api.list(PODS):
                api.call("DELETE", f"{PODS}/{o['metadata']['name']}?gracePeriodSeconds=0")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
