"""See test_controller.sh."""
import base64
import http.server
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_rig import *  # noqa: E402,F403
from control_rig import Ns, Failed, check, until, kubectl, manager, hollow, garbage_collector, connect, box, pod_spec, GLOVEBOX, audit_writes, TOP, DIR, Program  # noqa: E402

API = connect()
RIG = {}
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


GUIDE = """
apiVersion: sandbox.k8s.io/v1alpha1
kind: Sandbox
metadata: {name: my-agent-sandbox}
spec:
  template:
    spec:
      runtimeClassName: gvisor
      containers:
      - name: executor
        image: python:3.11-slim
        command: ["sleep", "infinity"]
      volumes:                      # "persistent storage" in the guide
      - {name: workspace, emptyDir: {}}
      resources:                    # at pod level in the guide
        limits: {memory: "1Gi", cpu: "1"}
"""

# ---- the two surfaces ------------------------------------------------------------------------------------------


@case
def the_guides_yaml_and_its_patch_lines_work_as_printed(n):
    kubectl("apply", "-n", n.name, "-f", "-", stdin=GUIDE)
    n.wait("fsandbox", "my-agent-sandbox", "Ready", "True")
    pod = n.get("pod", "my-agent-sandbox")
    check(pod["spec"]["resources"]["limits"] == {"memory": "1Gi", "cpu": "1"}, pod["spec"].get("resources"))
    check(pod["spec"]["runtimeClassName"] == "gvisor")
    for paused in ("true", "true", "false", "false", "true", "false"):
        kubectl("patch", "-n", n.name, "sandbox", "my-agent-sandbox", "--type=merge", "-p", '{"spec":{"paused":%s}}' % paused)
        for kind in ("sandbox", "fsandbox"):
            n.wait(kind, "my-agent-sandbox", "Paused", "True" if paused == "true" else "False/NotPaused")
            until(lambda: n.get(kind, "my-agent-sandbox")["spec"].get("paused", False) == (paused == "true"), 5, kind + ".spec.paused follows")
    kubectl("wait", "-n", n.name, "sandbox", "my-agent-sandbox", "--for=condition=Ready", "--timeout=5s")
    kubectl("wait", "-n", n.name, "sandboxes.sandbox.k8s.io", "my-agent-sandbox", "--for=condition=Ready", "--timeout=5s")
    check(n.get("pod", "my-agent-sandbox")["metadata"]["uid"] == pod["metadata"]["uid"], "the pod was replaced")
    check({"SandboxPaused", "SandboxResumed"} <= set(n.events("my-agent-sandbox")), n.events("my-agent-sandbox"))
    status = n.get("fsandbox", "my-agent-sandbox")["status"]
    check(status["memory"] == {"beforePause": 314572800, "afterPause": 8388608}, status.get("memory"))
    check(n.get("svc", "my-agent-sandbox")["spec"]["clusterIP"] == "None")
    n.delete("fsandbox", "my-agent-sandbox")
    for kind in ("sandbox", "pod", "svc"):
        n.gone(kind, "my-agent-sandbox")


@case
def columns_tell_what_people_ask(n):
    n.make("sandbox", "s", dict(GLOVEBOX, paused=True))
    n.wait("sandbox", "s", "Paused", "True")
    text = kubectl("get", "-n", n.name, "sandbox", "s")
    check(text.split()[:6] == ["NAME", "READY", "REASON", "PAUSED", "SINCE", "NODE"], text)
    check(["s", "False", "SandboxPaused", "True"] == text.splitlines()[1].split()[:4], text)
    check("PausedInPlace" in kubectl("describe", "-n", n.name, "sandbox", "s"))
    for short in ("sandbox", "sandboxes", "sandboxclaim", "sandboxtemplate", "swp"):
        kubectl("get", "-n", n.name, short)


@case
def wrong_fields_are_refused_with_words_that_help(n):
    for kind, spec, words in (
            ("sandbox", {}, "spec.podTemplate: Required value"),
            ("sandbox", {"podTemplate": {"spec": {}}}, "spec.podTemplate.spec.containers: Required value"),
            ("sandbox", {"podTemplate": {"spec": {"containers": []}}}, "should have at least 1 items"),
            ("sandbox", box(operatingMode="Asleep"), 'supported values: "Running", "Suspended"'),
            ("sandbox", box(pausePolicy={"mode": "Never"}), 'supported values: "Auto", "InPlace", "Delete"'),
            ("sandbox", box(shutdownTime="tomorrow"), "date-time"),
            ("fsandbox", {"podTemplate": {}}, "spec.template: Required value"),
            ("fclaim", {}, "name either warmPoolRef or sandboxTemplateRef, and not both"),
            ("fclaim", {"warmPoolRef": {"name": "a"}, "sandboxTemplateRef": {"name": "b"}}, "and not both"),
            ("claim", {}, "spec.warmPoolRef: Required value"),
            ("claim", {"warmPoolRef": {"name": "p"}, "lifecycle": {"ttlSecondsAfterFinished": -1}}, "greater than or equal to 0"),
            ("pool", {"sandboxTemplateRef": {"name": "t"}, "replicas": -1}, "greater than or equal to 0"),
            ("pool", {"sandboxTemplateRef": {"name": "t"}, "memberState": "Frozen"}, 'supported values: "Running", "Paused"')):
        try:
            n.make(kind, "x", spec)
        except AssertionError as e:
            check(words in str(e).replace('\\"', '"'), kind, spec, "->", e)
        else:
            raise Failed(f"{kind} {spec} was accepted")
    try:
        n.make("sandbox", "x" * 70, box(service=True))
    except AssertionError as e:
        check("at most 63 characters" in str(e), e)
    else:
        raise Failed("a name too long for its Service was accepted")


@case
def volume_claim_templates_cannot_change(n):
    vct = [{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]
    n.make("sandbox", "with", box(volumeClaimTemplates=vct))
    n.make("sandbox", "without", box())
    for name, change in (("with", None), ("with", []), ("without", vct)):
        status, body = API.call("PATCH", n.path("sandbox", name), {"spec": {"volumeClaimTemplates": change}}, "application/merge-patch+json")
        check(status == 422 and "volumeClaimTemplates is immutable" in body["message"], status, body)
    n.wait("sandbox", "with", "Ready", "True")
    pvc = until(lambda: n.get("pvc", "v-with"))
    check(pvc["metadata"]["ownerReferences"][0]["name"] == "with")
    check({"name": "v", "persistentVolumeClaim": {"claimName": "v-with"}} in n.get("pod", "with")["spec"]["volumes"])


# ---- a sandbox's life --------------------------------------------------------------------------------------------


@case
def suspend_and_resume_four_times_keep_service_and_volume(n):
    n.make("sandbox", "s", box(service=True, volumeClaimTemplates=[{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]))
    n.wait("sandbox", "s", "Ready", "True")
    kept = {k: n.get(k, name)["metadata"]["uid"] for k, name in (("svc", "s"), ("pvc", "v-s"))}
    check(n.get("sandbox", "s")["status"]["serviceFQDN"] == f"s.{n.name}.svc.cluster.local")
    for _ in range(4):
        pod = n.get("pod", "s")["metadata"]["uid"]
        n.patch("sandbox", "s", {"spec": {"operatingMode": "Suspended"}})
        n.wait("sandbox", "s", "Suspended", "True/PodTerminated")
        check(n.get("pod", "s") is None)
        check(n.condition("sandbox", "s")["reason"] == "SandboxSuspended")
        check("podIPs" not in n.get("sandbox", "s")["status"])
        n.patch("sandbox", "s", {"spec": {"operatingMode": "Running"}})
        n.wait("sandbox", "s", "Ready", "True")
        check(n.get("pod", "s")["metadata"]["uid"] != pod)
    check(kept == {k: n.get(k, name)["metadata"]["uid"] for k, name in (("svc", "s"), ("pvc", "v-s"))})


@case
def a_pod_that_will_not_go_is_told_as_terminating(n):
    n.make("sandbox", "s", box())
    n.wait("sandbox", "s", "Ready", "True")
    n.patch("pod", "s", {"metadata": {"finalizers": ["example.com/hold"]}})
    n.patch("sandbox", "s", {"spec": {"operatingMode": "Suspended"}})
    first = n.wait("sandbox", "s", "Suspended", "False/PodTerminating")
    time.sleep(1.5)
    check(n.condition("sandbox", "s", "Suspended") == first, "the condition moved")
    n.patch("pod", "s", {"metadata": {"finalizers": None}})
    n.wait("sandbox", "s", "Suspended", "True")


@case
def pause_without_glovebox_deletes_the_pod_and_in_place_refuses(n):
    n.make("sandbox", "auto", box(paused=True))
    n.wait("sandbox", "auto", "Paused", "True/PodDeleted")
    check(n.get("pod", "auto") is None)
    n.patch("sandbox", "auto", {"spec": {"paused": False}})
    n.wait("sandbox", "auto", "Ready", "True")
    n.make("sandbox", "strict", box(paused=True, pausePolicy={"mode": "InPlace"}))
    c = n.wait("sandbox", "strict", "Paused", "False/PauseRefused")
    check("runtimeClassName" in c["message"], c)
    n.wait("sandbox", "strict", "Ready", "True")


@case
def a_pod_deleted_by_others_comes_back(n):
    n.make("sandbox", "s", box())
    n.wait("sandbox", "s", "Ready", "True")
    for _ in range(3):
        uid = n.get("pod", "s")["metadata"]["uid"]
        n.delete("pod", "s")
        until(lambda: n.get("pod", "s")["metadata"]["uid"] != uid)
        n.wait("sandbox", "s", "Ready", "True")
        check(n.condition("sandbox", "s", "Suspended")["status"] == "False")


@case
def strangers_of_the_same_name_are_never_touched(n):
    n.make("pod", "p", pod_spec())
    n.make("svc", "v", {"ports": [{"port": 80}]})
    n.make("pvc", "d-w", {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
    before = [n.get(k, name) for k, name in (("pod", "p"), ("svc", "v"), ("pvc", "d-w"))]
    n.make("sandbox", "p", box())
    n.make("sandbox", "v", box(service=True))
    n.make("sandbox", "w", box(volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]))
    for name, word in (("p", 'pods "p" exists'), ("v", 'services "v" exists'), ("w", 'persistentvolumeclaims "d-w" exists')):
        c = n.wait("sandbox", name, "Ready", "False/ReconcilerError")
        check(word in c["message"], c)
    n.patch("sandbox", "p", {"spec": {"operatingMode": "Suspended"}})
    time.sleep(1)
    for was, (kind, name) in zip(before, (("pod", "p"), ("svc", "v"), ("pvc", "d-w"))):
        now = n.get(kind, name)
        check(now["metadata"]["uid"] == was["metadata"]["uid"] and now["metadata"].get("labels") == was["metadata"].get("labels") and "ownerReferences" not in now["metadata"], kind, now["metadata"])
    for name in ("p", "v", "w"):
        n.delete("sandbox", name)
        n.gone("sandbox", name)
    check(n.get("pod", "p") and n.get("svc", "v") and n.get("pvc", "d-w"))


@case
def what_is_marked_adoptable_is_taken_over(n):
    n.make("pod", "s", pod_spec(), labels={"agents.x-k8s.io/adoptable": "true"})
    n.make("svc", "s", {"clusterIP": "None", "selector": {"app": "old"}, "ports": [{"port": 80}]}, labels={"agents.x-k8s.io/adoptable": "true"})
    uid = n.get("pod", "s")["metadata"]["uid"]
    n.make("sandbox", "s", box(service=True))
    n.wait("sandbox", "s", "Ready", "True")
    pod = n.get("pod", "s")
    check(pod["metadata"]["uid"] == uid and pod["metadata"]["ownerReferences"][0]["kind"] == "Sandbox")
    check(n.get("svc", "s")["metadata"]["ownerReferences"][0]["name"] == "s")


@case
def a_shutdown_time_ends_it_and_a_later_one_revives_it(n):
    def at(seconds):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
    n.make("sandbox", "keep", box(shutdownTime=at(3), service=True))
    n.make("sandbox", "drop", box(shutdownTime=at(3), shutdownPolicy="Delete"))
    n.wait("sandbox", "keep", "Ready", "True")
    n.wait("sandbox", "keep", "Ready", "False/SandboxExpired")
    n.gone("sandbox", "drop")
    n.gone("pod", "drop")
    n.gone("pod", "keep")
    n.gone("svc", "keep")
    check("selector" not in n.get("sandbox", "keep")["status"])
    n.patch("sandbox", "keep", {"spec": {"shutdownTime": at(3600)}})
    n.wait("sandbox", "keep", "Ready", "True")


@case
def what_the_api_server_says_of_a_pod_becomes_the_condition(n):
    n.make("sandbox", "s", {"podTemplate": {"spec": {"containers": [{"name": "c", "image": "busybox", "ports": [{"containerPort": 99999}]}]}}})
    c = n.wait("sandbox", "s", "Ready", "False/ReconcilerError")
    check("must be between 1 and 65535" in c["message"], c)
    check("SandboxNotReady" in until(lambda: n.events("s")))
    n.patch("sandbox", "s", {"spec": box()})
    n.wait("sandbox", "s", "Ready", "True")
    n.make("sandbox", "class", {"podTemplate": {"spec": pod_spec(runtimeClassName="nothing")}})
    c = n.wait("sandbox", "class", "Ready", "False/ReconcilerError")
    check("nothing" in c["message"], c)
    at = os.path.getsize(os.path.join(DIR, "audit.log"))
    time.sleep(3)
    writes, _ = audit_writes(at, n.name)
    check(len([w for w in writes if w.endswith(" class")]) <= 1, "hot loop:", writes)
    check([p["metadata"]["name"] for p in n.all("pod")] == ["s"])


@case
def metadata_of_the_template_follows_to_the_pod(n):
    n.make("sandbox", "s", {"podTemplate": {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "1"}}, "spec": pod_spec()}})
    n.wait("sandbox", "s", "Ready", "True")
    n.patch("pod", "s", {"metadata": {"labels": {"mine": "stays"}}})
    n.patch("sandbox", "s", {"spec": {"podTemplate": {"metadata": {"labels": {"a": "9", "b": None}, "annotations": {"x": None, "y": "2"}}}}})
    def look():
        m = n.get("pod", "s")["metadata"]
        return m["labels"].get("a") == "9" and "b" not in m["labels"] and m["labels"]["mine"] == "stays" and m["annotations"].get("y") == "2" and "x" not in m["annotations"]
    until(look)


@case
def a_deleted_sandbox_leaves_nothing(n):
    n.make("sandbox", "s", box(service=True, volumeClaimTemplates=[{"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]))
    n.wait("sandbox", "s", "Ready", "True")
    n.delete("sandbox", "s")
    for kind, name in (("sandbox", "s"), ("pod", "s"), ("svc", "s")):
        n.gone(kind, name)
    until(lambda: (n.get("pvc", "v-s") or {"metadata": {"deletionTimestamp": 1}})["metadata"].get("deletionTimestamp"), 10, "the volume stays")


# ---- pools and claims ------------------------------------------------------------------------------------------------


def pool(n, name="p", replicas=2, spec=None, **more):
    n.make("template", "t-" + name, spec or box())
    n.make("pool", name, dict({"sandboxTemplateRef": {"name": "t-" + name}, "replicas": replicas}, **more))
    if replicas:
        until(lambda: n.get("pool", name)["status"]["readyReplicas"] == replicas, 20, "the pool is filled")


def claim(n, name, pool_name="p", **spec):
    n.make("claim", name, dict({"warmPoolRef": {"name": pool_name}}, **spec))


def owner(o):
    return o["metadata"].get("ownerReferences", [{"kind": "", "name": ""}])[0]


def members(n, name="p"):
    return [s for s in n.all("sandbox") if owner(s)["kind"] == "SandboxWarmPool" and owner(s)["name"] == name and "deletionTimestamp" not in s["metadata"]]


@case
def a_claim_takes_a_member_and_the_pool_is_refilled(n):
    pool(n)
    names = {m["metadata"]["name"] for m in members(n)}
    claim(n, "c")
    n.wait("claim", "c", "Ready", "True")
    status = n.get("claim", "c")["status"]
    check(status["sandbox"]["name"] in names and status["sandbox"]["podIPs"], status)
    s = n.get("sandbox", status["sandbox"]["name"])
    check(s["metadata"]["labels"]["agents.x-k8s.io/launch-type"] == "warm" and "agents.x-k8s.io/warm-pool-sandbox" not in s["metadata"]["labels"])
    check(s["metadata"]["annotations"]["agents.x-k8s.io/pod-name"] == s["metadata"]["name"])
    uid = n.get("claim", "c")["metadata"]["uid"]
    def pod_follows():
        m = n.get("pod", s["metadata"]["name"])["metadata"]
        return m["labels"].get("agents.x-k8s.io/claim-uid") == uid and "agents.x-k8s.io/warm-pool-sandbox" not in m["labels"] and "cluster-autoscaler.kubernetes.io/safe-to-evict" not in m.get("annotations", {})
    until(pod_follows)
    until(lambda: len(members(n)) == 2)
    check(n.get("pod", s["metadata"]["name"])["spec"]["automountServiceAccountToken"] is False)
    n.delete("claim", "c")
    n.gone("sandbox", s["metadata"]["name"])
    n.gone("pod", s["metadata"]["name"])


@case
def an_empty_pool_starts_cold_and_env_does_too(n):
    pool(n, "empty", 0, dict(box(), envVarsInjectionPolicy="Allowed"))
    claim(n, "cold", "empty", env=[{"name": "A", "value": "b"}])
    n.wait("claim", "cold", "Ready", "True")
    check(n.get("claim", "cold")["status"]["sandbox"]["name"] == "cold")
    check(n.get("pod", "cold")["spec"]["containers"][0]["env"] == [{"name": "A", "value": "b"}])
    pool(n, "full", 1)
    claim(n, "refused", "full", env=[{"name": "A", "value": "b"}])
    n.wait("claim", "refused", "Ready", "False/EnvVarsInjectionRejected")
    check(n.get("sandbox", "refused") is None)


@case
def what_is_missing_is_said_and_comes_later(n):
    claim(n, "c", "later")
    c = n.wait("claim", "c", "Ready", "False/WarmPoolNotFound")
    check(c["message"] == 'SandboxWarmPool "later" not found', c)
    n.make("pool", "later", {"sandboxTemplateRef": {"name": "tt"}, "replicas": 1})
    n.wait("claim", "c", "Ready", "False/TemplateNotFound")
    n.wait("pool", "later", "Progressing", "False/SandboxTemplateError")
    n.make("template", "tt", box())
    n.wait("claim", "c", "Ready", "True")
    n.wait("pool", "later", "Progressing", "True")


@case
def claims_made_together_with_their_pool_never_hear_that_it_is_missing(n):
    seen = []
    def watch():
        api = connect()
        api.call("GET", "/version")
        api.connection.request("GET", n.path("claim") + "?watch=1&timeoutSeconds=6")
        for line in api.connection.getresponse():
            seen.extend(c["reason"] for c in json.loads(line)["object"].get("status", {}).get("conditions", []))
    w = threading.Thread(target=watch)
    w.start()
    time.sleep(0.3)
    for i in range(20):
        n.make("template", f"t{i}", box())
        n.make("pool", f"p{i}", {"sandboxTemplateRef": {"name": f"t{i}"}, "replicas": 0})
        claim(n, f"c{i}", f"p{i}")
    for i in range(20):
        n.wait("claim", f"c{i}", "Ready", "True", 20)
    w.join()
    check(not {"WarmPoolNotFound", "TemplateNotFound"} & set(seen), set(seen))


@case
def twenty_claims_on_a_pool_of_five_all_get_one_of_their_own(n):
    pool(n, "p", 5)
    for i in range(20):
        claim(n, f"c{i}")
    for i in range(20):
        n.wait("claim", f"c{i}", "Ready", "True", 30)
    names = [n.get("claim", f"c{i}")["status"]["sandbox"]["name"] for i in range(20)]
    check(len(set(names)) == 20, names)
    until(lambda: n.get("pool", "p")["status"]["readyReplicas"] == 5, 20)
    check(len(n.all("sandbox")) == 25, len(n.all("sandbox")))


@case
def a_pool_is_scaled_and_rolled_out(n):
    pool(n, "p", 3)
    kubectl("scale", "-n", n.name, "swp", "p", "--replicas=5")
    until(lambda: n.get("pool", "p")["status"]["readyReplicas"] == 5)
    kubectl("scale", "-n", n.name, "swp", "p", "--replicas=1")
    until(lambda: n.get("pool", "p")["status"]["replicas"] == 1)
    until(lambda: len(members(n)) == 1)
    old = members(n)[0]["metadata"]["name"]
    n.patch("template", "t-p", {"spec": {"podTemplate": {"metadata": {"labels": {"x": "y"}}}}})
    time.sleep(0.5)
    check(members(n)[0]["metadata"]["name"] == old, "a label made members stale")
    n.patch("template", "t-p", {"spec": {"podTemplate": {"spec": {"hostname": "new"}}}})
    time.sleep(0.5)
    check(members(n)[0]["metadata"]["name"] == old, "OnReplenish replaced a member")
    n.patch("pool", "p", {"spec": {"updateStrategy": {"type": "Recreate"}}})
    until(lambda: [m["metadata"]["name"] for m in members(n)] != [old] and len(members(n)) == 1)
    check(members(n)[0]["spec"]["podTemplate"]["spec"]["hostname"] == "new")


@case
def broken_members_are_replaced(n):
    pool(n, "p", 2)
    victim = members(n)[0]["metadata"]["name"]
    API.merge(n.path("pod", victim) + "/status", {"status": {"phase": "Failed"}})
    n.gone("sandbox", victim)
    until(lambda: len(members(n)) == 2)
    victim = members(n)[0]["metadata"]["name"]
    n.delete("sandbox", victim)
    n.gone("pod", victim)
    until(lambda: n.get("pool", "p")["status"]["readyReplicas"] == 2 and len(members(n)) == 2)


@case
def a_pool_of_a_template_that_cannot_work_says_so_and_recovers(n):
    n.make("template", "t", {"podTemplate": {"spec": pod_spec(runtimeClassName="nothing")}})
    n.make("pool", "p", {"sandboxTemplateRef": {"name": "t"}, "replicas": 2})
    n.wait("pool", "p", "Progressing", "False/WarmPoolNotProgressing")
    claim(n, "c")
    c = n.wait("claim", "c", "Ready", "False/ReconcilerError")
    check("nothing" in c["message"], c)
    time.sleep(1)
    check(len(members(n)) == 2, len(members(n)))
    n.patch("template", "t", {"spec": {"podTemplate": {"spec": {"runtimeClassName": None}}}})
    until(lambda: n.get("pool", "p")["status"]["readyReplicas"] == 2, 15)
    n.wait("pool", "p", "Progressing", "True")


@case
def a_planted_sandbox_is_no_member(n):
    pool(n, "p", 1)
    label = members(n)[0]["metadata"]["labels"]["agents.x-k8s.io/warm-pool-sandbox"]
    n.make("sandbox", "evil", box(), labels={"agents.x-k8s.io/warm-pool-sandbox": label})
    n.wait("sandbox", "evil", "Ready", "True")
    for i in range(3):
        claim(n, f"c{i}")
        n.wait("claim", f"c{i}", "Ready", "True")
        check(n.get("claim", f"c{i}")["status"]["sandbox"]["name"] != "evil")
    check("ownerReferences" not in n.get("sandbox", "evil")["metadata"])


@case
def members_wait_paused_and_a_claim_resumes_one(n):
    pool(n, "p", 2, GLOVEBOX)
    until(lambda: n.get("pool", "p")["status"].get("pausedReplicas") == 2, 10, "members are paused")
    check(all(s["status"]["conditions"][0]["reason"] == "PausedInPlace" for s in members(n)))
    claim(n, "c")
    n.wait("claim", "c", "Ready", "True")
    s = n.get("claim", "c")["status"]["sandbox"]["name"]
    n.wait("sandbox", s, "Ready", "True")
    n.wait("sandbox", s, "Paused", "False")
    until(lambda: n.get("pool", "p")["status"].get("pausedReplicas") == 2)
    n.patch("pool", "p", {"spec": {"memberState": "Running"}})
    until(lambda: n.get("pool", "p")["status"].get("pausedReplicas") == 0, 10, "members run")
    n.patch("pool", "p", {"spec": {"memberState": "Paused"}})
    until(lambda: n.get("pool", "p")["status"].get("pausedReplicas") == 2, 10, "members are paused again")


@case
def a_claim_ends_by_time_or_when_it_has_finished(n):
    pool(n, "p", 3)
    claim(n, "ttl", lifecycle={"ttlSecondsAfterFinished": 1, "shutdownPolicy": "DeleteForeground"})
    claim(n, "keep", lifecycle={"ttlSecondsAfterFinished": 0})
    claim(n, "never")
    for name in ("ttl", "keep", "never"):
        n.wait("claim", name, "Ready", "True")
        API.merge(n.path("pod", n.get("claim", name)["status"]["sandbox"]["name"]) + "/status", {"status": {"phase": "Succeeded"}})
    n.wait("claim", "never", "Finished", "True/PodSucceeded")
    n.gone("claim", "ttl")
    n.wait("claim", "keep", "Ready", "False/ClaimExpired")
    check(n.condition("claim", "keep", "Finished")["status"] == "True")
    n.gone("sandbox", n.get("claim", "keep")["status"]["sandbox"]["name"])
    check(n.get("claim", "never") and n.get("sandbox", n.get("claim", "never")["status"]["sandbox"]["name"]))


@case
def metadata_of_a_claim_reaches_the_pod(n):
    pool(n, "p", 1)
    claim(n, "c", additionalPodMetadata={"labels": {"sandbox.users.io/team": "a"}, "annotations": {"note": "b"}})
    n.wait("claim", "c", "Ready", "True")
    s = n.get("claim", "c")["status"]["sandbox"]["name"]
    until(lambda: n.get("pod", s)["metadata"]["labels"].get("sandbox.users.io/team") == "a" and n.get("pod", s)["metadata"]["annotations"].get("note") == "b")
    claim(n, "bad", additionalPodMetadata={"labels": {"team": "a"}})
    n.wait("claim", "bad", "Ready", "False/InvalidMetadata")
    status, body = API.call("PATCH", n.path("claim", "c"), {"spec": {"warmPoolRef": {"name": "other"}}}, "application/merge-patch+json")
    check(status == 422 and "make a new claim" in body["message"], status, body)


@case
def network_policies_follow_their_templates(n):
    n.make("template", "t", box())
    policy = until(lambda: n.get("policy", "t-network-policy"))
    uid, spec = policy["metadata"]["uid"], policy["spec"]
    n.patch("policy", "t-network-policy", {"spec": {"egress": None}})
    until(lambda: n.get("policy", "t-network-policy")["spec"] == spec)
    n.patch("template", "t", {"spec": {"networkPolicy": {"egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}}})
    until(lambda: n.get("policy", "t-network-policy")["spec"]["egress"] == [{"ports": [{"port": 53, "protocol": "UDP"}]}] and "ingress" not in n.get("policy", "t-network-policy")["spec"])
    check(n.get("policy", "t-network-policy")["metadata"]["uid"] == uid)
    n.patch("template", "t", {"spec": {"networkPolicyManagement": "Unmanaged"}})
    n.gone("policy", "t-network-policy")
    n.make("policy", "u-network-policy", {"podSelector": {}})
    n.make("template", "u", box())
    time.sleep(0.5)
    check(n.get("policy", "u-network-policy")["spec"]["podSelector"] == {})


@case
def the_short_api_has_templates_pools_and_claims_too(n):
    n.make("ftemplate", "t", {"template": {"spec": pod_spec(runtimeClassName="gvisor")}})
    n.make("fpool", "p", {"replicas": 2, "sandboxTemplateRef": {"name": "t"}})
    until(lambda: n.get("fpool", "p")["status"]["readyReplicas"] == 2 and n.get("fpool", "p")["status"]["pausedReplicas"] == 2, 15)
    n.make("fclaim", "c", {"sandboxTemplateRef": {"name": "t"}})
    n.wait("fclaim", "c", "Ready", "True")
    check(n.get("fclaim", "c")["status"]["sandbox"]["name"].startswith("p-"))
    n.make("ftemplate", "lonely", {"template": {"spec": pod_spec()}})
    n.make("fclaim", "d", {"sandboxTemplateRef": {"name": "lonely"}})
    n.wait("fclaim", "d", "Ready", "True")
    check(n.get("pool", "shadow-pool-lonely")["spec"]["replicas"] == 0)
    n.make("fclaim", "e", {"sandboxTemplateRef": {"name": "missing"}})
    n.wait("fclaim", "e", "Ready", "False/TemplateNotFound")
    kubectl("scale", "-n", n.name, "swp", "p", "--replicas=3")
    until(lambda: n.get("fpool", "p")["spec"]["replicas"] == 3)
    kubectl("scale", "-n", n.name, "sandboxwarmpools.sandbox.k8s.io", "p", "--replicas=1")
    until(lambda: n.get("pool", "p")["spec"]["replicas"] == 1 and len(members(n)) == 1)
    for kind, name in (("fclaim", "c"), ("fclaim", "d"), ("fpool", "p"), ("ftemplate", "t"), ("ftemplate", "lonely")):
        n.delete(kind, name)
    for kind in ("claim", "pool", "template", "sandbox", "pod"):
        until(lambda: [o["metadata"]["name"] for o in n.all(kind) if o["metadata"]["name"] != "e"] == [], 30, kind + " left")


@case
def a_stranger_of_a_fronts_name_is_not_driven(n):
    n.make("sandbox", "s", box())
    n.make("fsandbox", "s", {"template": {"spec": pod_spec()}, "paused": True})
    c = n.wait("fsandbox", "s", "Ready", "False/ReconcilerError")
    check("exists and is not driven by this object" in c["message"], c)
    time.sleep(0.5)
    check("paused" not in n.get("sandbox", "s")["spec"])


# ---- clients ------------------------------------------------------------------------------------------------------


SDK = '''
import sys, time
from kubernetes import config
config.load_kube_config()
from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig
from k8s_agent_sandbox.exceptions import SandboxWarmPoolNotFoundError, SandboxTemplateNotFoundError
ns = sys.argv[1]
client = SandboxClient(connection_config=SandboxDirectConnectionConfig(api_url="http://127.0.0.1:9"))
t = time.time()
s = client.create_sandbox("p", namespace=ns, sandbox_ready_timeout=20)
print("ready in %.0f ms" % ((time.time() - t) * 1000))
assert s.get_pod_name(), "pod name"
assert s.get_pod_ip(), "pod ip"
assert len(s.get_sandbox_name_hash()) == 8
print("status", s.status())
assert s.status()[0] == "SandboxReady", s.status()
name = s.claim_name
assert name in client.list_all_sandboxes(namespace=ns), client.list_all_sandboxes(namespace=ns)
assert (ns, name) in client.list_active_sandboxes(), client.list_active_sandboxes()
again = client.get_sandbox(name, namespace=ns)
assert again.get_pod_name() == s.get_pod_name()
cold = client.create_sandbox("p", namespace=ns, sandbox_ready_timeout=20, shutdown_after_seconds=3600, pod_labels={"sandbox.users.io/a": "b"}, pod_annotations={"x": "y"})
assert cold.status()[0] == "SandboxReady"
for pool, error in (("nothing", SandboxWarmPoolNotFoundError), ("no-template", SandboxTemplateNotFoundError)):
    try:
        client.create_sandbox(pool, namespace=ns, sandbox_ready_timeout=20)
    except error as e:
        print("refused:", e)
    else:
        raise SystemExit("%s was not refused" % pool)
client.delete_sandbox(name, namespace=ns)
cold.terminate()
end = time.time() + 10
while client.list_all_sandboxes(namespace=ns):
    assert time.time() < end, client.list_all_sandboxes(namespace=ns)
    time.sleep(0.1)
print("done")
'''


@case
def the_unmodified_python_sdk_creates_waits_reads_lists_and_deletes(n):
    python = os.environ.get("SDK_PYTHON")
    if not python:
        return "SDK_PYTHON names no python that has k8s-agent-sandbox"
    pool(n, "p", 2)
    n.make("pool", "no-template", {"sandboxTemplateRef": {"name": "zz"}, "replicas": 0})
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(SDK)
        f.flush()
        r = subprocess.run([python, f.name, n.name], capture_output=True, text=True, timeout=120)
    check(r.returncode == 0 and "done" in r.stdout, r.stdout, r.stderr[-3000:])
    print("   ", r.stdout.strip().replace("\n", "; "))


# ---- trouble ----------------------------------------------------------------------------------------------------------


@case
def killed_at_fifty_moments_of_200_claims_nothing_is_lost_or_bound_twice(n):
    pool(n, "p", 20, GLOVEBOX)
    stop = threading.Event()
    kills = [0]

    def killer():
        while not stop.is_set() and kills[0] < 50:
            time.sleep(random.uniform(0.05, 0.6))
            RIG["controller"].stop(signal.SIGKILL)
            kills[0] += 1
            RIG["controller"].start()

    k = threading.Thread(target=killer)
    k.start()
    for i in range(200):
        claim(n, f"c{i}")
        time.sleep(0.05)
    k.join(60)
    stop.set()
    k.join()
    for i in range(200):
        n.wait("claim", f"c{i}", "Ready", "True", 120)
    boxes = [n.get("claim", f"c{i}")["status"]["sandbox"]["name"] for i in range(200)]
    check(len(set(boxes)) == 200, "two claims have one sandbox")
    owned = [s for s in n.all("sandbox") if s["metadata"]["ownerReferences"][0]["kind"] == "SandboxClaim"]
    check(len(owned) == 200, f"{len(owned)} sandboxes for 200 claims")
    by_claim = {s["metadata"]["ownerReferences"][0]["name"]: s["metadata"]["name"] for s in owned}
    check(all(by_claim[f"c{i}"] == boxes[i] for i in range(200)), "status and owner differ")
    until(lambda: n.get("pool", "p")["status"]["readyReplicas"] == 20 and len(members(n)) == 20, 60, "the pool is filled again")
    until(lambda: len(n.all("pod")) == 220, 30, "pods and sandboxes agree")
    for i in range(200):
        n.delete("claim", f"c{i}")
    until(lambda: len(n.all("sandbox")) == 20 and len(n.all("pod")) == 20, 120, "all is collected")
    print(f"    {kills[0]} kills")


@case
def of_two_replicas_one_works_and_the_other_takes_over(n):
    RIG["controller"].stop()
    flags = ("--leader-elect=true", "--leader-election-namespace", n.name)
    a, b = manager("replica-a", *flags), manager("replica-b", *flags)
    try:
        n.make("sandbox", "one", box())
        n.wait("sandbox", "one", "Ready", "True", 30)
        holder = API.ok("GET", f"/apis/coordination.k8s.io/v1/namespaces/{n.name}/leases/a3317529.agent-sandbox.x-k8s.io")["spec"]["holderIdentity"]
        leader, other = (a, b) if b"\"leading\"" in open(os.path.join(DIR, "replica-a.log"), "rb").read() else (b, a)
        leader.stop(signal.SIGKILL)
        t = time.time()
        n.make("sandbox", "two", box())
        n.wait("sandbox", "two", "Ready", "True", 40)
        print(f"    killed leader replaced after {time.time() - t:.1f} s; was {holder}")
        leader.start()
        time.sleep(2)
        t = time.time()
        other.stop()
        n.make("sandbox", "three", box())
        n.wait("sandbox", "three", "Ready", "True", 10)
        print(f"    stopped leader replaced after {time.time() - t:.1f} s")
    finally:
        for p in (a, b):
            if p.p.poll() is None:
                p.stop()
        RIG["controller"].start()


@case
def an_api_server_that_goes_away_for_a_while_is_survived(n):
    n.make("sandbox", "s", box())
    n.wait("sandbox", "s", "Ready", "True")
    script = os.path.join(TOP, "tests", "integration", "apiserver.sh")
    subprocess.run([script, "kill", DIR, "api"], check=True)
    time.sleep(3)
    subprocess.run([script, "start", DIR, "api"], check=True, env=dict(os.environ, API_AUDIT="1"))
    until(lambda: API.call("GET", "/readyz")[0] == 200, 60) if False else time.sleep(8)
    n.make("sandbox", "t", box())
    n.wait("sandbox", "t", "Ready", "True", 60)


@case
def a_slow_webhook_for_pods_does_not_hold_up_claims_elsewhere(n):
    """Forty pods hang in an admission webhook; a claim of a ready member in another namespace is served all the same."""
    pool(n, "p", 2)
    slow = Ns(API, n.name + "-slow")
    API.merge("/api/v1/namespaces/" + slow.name, {"metadata": {"labels": {"slow": "yes"}}})
    seen = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(1)
            time.sleep(8)
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": review["request"]["uid"], "allowed": True}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DIR + "/api.crt", DIR + "/api.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ca = base64.b64encode(open(DIR + "/ca.crt", "rb").read()).decode()
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    API.ok("POST", path, {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "slow"}, "webhooks": [{
        "name": "slow.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10, "failurePolicy": "Ignore",
        "clientConfig": {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": ca}, "namespaceSelector": {"matchLabels": {"slow": "yes"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]})
    try:
        time.sleep(1.5)
        for i in range(40):
            slow.make("sandbox", f"s{i}", box())
        until(lambda: seen, 5, "the webhook is asked")
        time.sleep(0.3)
        t = time.time()
        claim(n, "c")
        n.wait("claim", "c", "Ready", "True", 6)
        print(f"    claim Ready after {time.time() - t:.2f} s while {len(seen)} pods hang")
        for i in range(40):
            slow.wait("sandbox", f"s{i}", "Ready", "True", 40)
    finally:
        API.call("DELETE", path + "/slow")
        server.shutdown()


@case
def random_actions_of_users_end_in_what_the_spec_asks(n):
    """Sandboxes and claims are made, patched and deleted at random; at the end each is what its spec says."""
    seed = int(os.environ.get("SEED", time.time()))
    rnd = random.Random(seed)
    pool(n, "p", 3, GLOVEBOX)
    print(f"    SEED={seed}")
    for step in range(int(os.environ.get("STEPS", 150))):
        name = f"s{rnd.randrange(6)}"
        what = rnd.choice(["make", "make", "pause", "resume", "suspend", "run", "delete", "delete-pod", "claim", "unclaim", "scale", "service"])
        if what == "make":
            API.call("POST", n.path("sandbox"), {"apiVersion": "agents.x-k8s.io/v1beta1", "kind": "Sandbox", "metadata": {"name": name},
                                                 "spec": dict(rnd.choice([GLOVEBOX, box()]), paused=rnd.random() < 0.3, pausePolicy={"mode": rnd.choice(["Auto", "Delete"])})})
        elif what in ("pause", "resume", "suspend", "run", "service"):
            change = {"pause": {"paused": True}, "resume": {"paused": False}, "suspend": {"operatingMode": "Suspended"}, "run": {"operatingMode": "Running"},
                      "service": {"service": rnd.choice([True, False, None])}}[what]
            API.call("PATCH", n.path("sandbox", name), {"spec": change}, "application/merge-patch+json")
        elif what == "delete":
            n.delete("sandbox", name)
        elif what == "delete-pod":
            n.delete("pod", name)
        elif what == "claim":
            API.call("POST", n.path("claim"), {"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim", "metadata": {"name": "c" + name}, "spec": {"warmPoolRef": {"name": "p"}}})
        elif what == "unclaim":
            n.delete("claim", "c" + name)
        elif what == "scale":
            n.patch("pool", "p", {"spec": {"replicas": rnd.randrange(5)}})
        time.sleep(rnd.choice([0, 0, 0.02, 0.2]))

    def settled():
        want_pods = set()
        for s in n.all("sandbox"):
            name, spec = s["metadata"]["name"], s["spec"]
            c = {x["type"]: x for x in s.get("status", {}).get("conditions", [])}
            in_place = spec["podTemplate"]["spec"].get("runtimeClassName") == "glovebox"
            member = s["metadata"].get("ownerReferences", [{}])[0].get("kind") == "SandboxWarmPool"
            gone = spec["operatingMode"] == "Suspended" or (spec.get("paused") and (not in_place or spec.get("pausePolicy", {}).get("mode") == "Delete"))
            paused = bool(spec.get("paused")) or (member and spec["operatingMode"] != "Suspended")
            if not gone:
                want_pods.add(name)
            have = (c["Suspended"]["status"], c["Paused"]["status"], c["Ready"]["status"])
            assert have == (str(bool(gone)), str(paused), str(not gone and not paused)), f"{name}: {have}, spec {spec}"
            assert all(x["observedGeneration"] == s["metadata"]["generation"] for x in c.values()), name + ": stale generation"
            svc = n.get("svc", name)
            assert (svc is not None) == bool(spec.get("service")) or spec.get("service") is None, f"{name}: service {svc}"
        pods = {p["metadata"]["name"] for p in n.all("pod")}
        assert pods == want_pods, f"pods {pods}, wanted {want_pods}"
        for c in n.all("claim"):
            ready = [x for x in c.get("status", {}).get("conditions", []) if x["type"] == "Ready"]
            assert ready and ready[0]["status"] == "True", f"claim {c}"
        assert len(members(n)) == n.get("pool", "p")["spec"]["replicas"], f"{len(members(n))} members"
        return True

    until(settled, 60)


@case
def a_quiet_cluster_is_not_written_to(n):
    pool(n, "p", 3, GLOVEBOX)
    n.make("sandbox", "s", box(service=True))
    n.wait("sandbox", "s", "Ready", "True")
    n.make("sandbox", "image", box())
    time.sleep(3)
    size = os.path.getsize(os.path.join(DIR, "audit.log"))
    time.sleep(10)
    writes, _ = audit_writes(size, n.name)
    check([w for w in writes if "/status" in w or not w.startswith("get")] == [], writes)


# ---- the run ------------------------------------------------------------------------------------------------------------


def main():
    kubectl("apply", "--server-side", "-f", os.path.join(TOP, "crds"))
    for name in ("glovebox", "gvisor"):
        API.ok("POST", "/apis/node.k8s.io/v1/runtimeclasses", {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "glovebox"})
    until(lambda: all(API.call("GET", f"/apis/{g}/{p}")[0] == 200 for g, p in (("agents.x-k8s.io/v1beta1", "sandboxes"), ("extensions.agents.x-k8s.io/v1beta1", "sandboxclaims"),
                                                                              ("sandbox.k8s.io/v1alpha1", "sandboxwarmpools"))), 30)
    RIG["controller"], RIG["hollow"], RIG["gc"] = manager(), hollow(), garbage_collector()
    failed = 0
    for i, fn in enumerate(c for c in CASES if not sys.argv[1:] or any(w in c.__name__ for w in sys.argv[1:])):
        sentence, t = fn.__name__.replace("_", " "), time.time()
        try:
            why = fn(Ns(API, f"n{i}"))
            print(f"skip {sentence}: {why}" if why else f"ok {sentence} ({time.time() - t:.1f} s)", flush=True)
        except (Failed, AssertionError, KeyError, OSError, subprocess.TimeoutExpired) as e:
            failed += 1
            print(f"FAIL {sentence}: {type(e).__name__} {str(e)[:1500]}", flush=True)
        kinds = ["sandboxclaims.extensions.agents.x-k8s.io", "sandboxwarmpools.extensions.agents.x-k8s.io", "sandboxes.agents.x-k8s.io"]
        if RIG["controller"].p.poll() is not None:
            print("FAIL the controller ended:", RIG["controller"].p.returncode, flush=True)
            failed += 1
            RIG["controller"].start()
        if not os.environ.get("KEEP"):
            subprocess.run(["kubectl", "delete", "ns", f"n{i}", "--wait=false"], capture_output=True)
    code = RIG["controller"].stop()
    if code != 0:
        print(f"FAIL the controller's exit status is {code}")
        failed += 1
    RIG["hollow"].stop()
    RIG["gc"].stop(signal.SIGKILL)
    if failed and os.environ.get("LOGS"):
        os.system(f"tail -n 60 {DIR}/controller.log")
    sys.exit(1 if failed else 0)


main()
