#!/usr/bin/python3
# rig: 2.4
# timeout: 300
"""The Task service of a real shim with real containers, driven call by call: states, order of events, exits, races."""
import os
import random
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from shimrig import (RESOURCES, Refused, Shim, alive, cgroup_of, decode, eventually, main, message, nothing_left,  # noqa: E402
                     refused, same)

SLEEP = ["sleep", "1000"]


def a_container_lives_from_create_to_shutdown():
    s = Shim()
    pid = s.create("life", ["sh", "-c", "exit 7"])
    assert pid > 0 and alive(pid)
    same(s.status("life"), "CREATED")
    waiting = s.connect()
    stream = waiting.send("Wait", message(_1="life"))
    same(s.start("life"), pid)
    same(waiting.receive(stream).get(1), 7, "exit status")
    same(s.status("life"), "STOPPED")
    same(s.delete("life"), 7)
    refused(5, "not created", s.delete, "life")
    s.shutdown()
    same([e[0] for e in s.events.of("life")], ["/tasks/create", "/tasks/start", "/tasks/exit", "/tasks/delete"])
    same({e[3] for e in s.events.of("life")}, {pid}, "pids in the events")
    same(s.delete_binary("life"), (0, 137))
    nothing_left(["life"])


def a_thousand_fast_exits_keep_their_codes_and_their_order():
    s = Shim()
    s.run("anchor", SLEEP)
    fds = len(os.listdir(f"/proc/{s.pid()}/fd"))
    wrong, lock, todo = [], threading.Lock(), list(range(1000))

    def work():
        peer = s.connect(60)
        while True:
            with lock:
                if not todo:
                    return
                n = todo.pop()
            name, want = f"fast{n}", n % 256
            s.prepare(name, ["sh", "-c", f"exit {want}"])
            try:
                peer.call("Create", s.create_payload(name))
                stream = peer.send("Wait", message(_1=name))
                peer.call("Start", message(_1=name))
                got = peer.receive(stream).get(1, 0)
                deleted = peer.call("Delete", message(_1=name)).get(2, 0)
                if (got, deleted) != (want, want):
                    wrong.append(f"{name}: Wait {got}, Delete {deleted}, expected {want}")
            except Exception as e:
                wrong.append(f"{name}: {e}")
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(wrong, [])
    eventually(lambda: all(s.events.topics(f"fast{n}")[-1:] == ["delete"] for n in range(1000)), "all events", 20)
    for n in range(1000):
        same(s.events.topics(f"fast{n}"), ["create", "start", "exit", "delete"], f"events of {n}")
        same(s.events.of(f"fast{n}")[2][4], n % 256, f"status in the event of {n}")
    eventually(lambda: len(os.listdir(f"/proc/{s.pid()}/fd")) <= fds + 4, "descriptors are closed", 3)
    s.kill("anchor")
    s.wait("anchor")
    s.delete("anchor")
    s.shutdown()
    nothing_left(["anchor"] + [f"fast{n}" for n in range(0, 1000, 97)])


def five_hundred_execs_while_the_init_is_killed_lose_no_exit():
    s = Shim()
    s.run("top", SLEEP)
    started, lock, todo, failures = [], threading.Lock(), list(range(500)), []

    def work():
        peer = s.connect(60)
        while True:
            with lock:
                if not todo:
                    return
                n = todo.pop()
            try:
                s.exec_("top", f"e{n}", ["date"], peer=peer)
                stream = peer.send("Wait", message(_1="top", _2=f"e{n}"))
                peer.call("Start", message(_1="top", _2=f"e{n}"))
                started.append(f"e{n}")
                peer.receive(stream)
            except Refused as r:
                if r.code not in (2, 5, 9):
                    failures.append(f"e{n}: {r}")
            except Exception as e:
                failures.append(f"e{n}: {type(e).__name__} {e}")
    threads = [threading.Thread(target=work) for _ in range(8)]
    waiting = s.connect(60)
    stream = waiting.send("Wait", message(_1="top"))
    for t in threads:
        t.start()
    eventually(lambda: len(started) > 100, "execs run", 30)
    s.kill("top")
    same(waiting.receive(stream).get(1), 137, "status of the init")
    for t in threads:
        t.join()
    same(failures, [])
    eventually(lambda: s.events.topics("top")[-1:] == ["exit"] and s.events.of("top")[-1][2] == "top", "the init's exit is the last event")
    events = s.events.of("top")
    exits = [e[2] for e in events if e[0] == "/tasks/exit"]
    starts = [e[2] for e in events if e[0] == "/tasks/exec-started"]
    same(sorted(exits), sorted(starts + ["top"]), "one exit for each start")
    same(sorted(set(exits)), sorted(exits), "no exit twice")
    same(s.delete("top"), 137)
    s.shutdown()
    nothing_left(["top"])


def every_call_answers_as_the_table_says():
    s = Shim()
    s.create("st", SLEEP)
    refused(2, "cannot pause task in created state", s.call, "Pause", message(_1="st"))
    refused(2, "cannot resume", s.call, "Resume", message(_1="st"))
    refused(6, "already exists", s.call, "Create", s.create_payload("st"))
    refused(12, "checkpoint", s.call, "Create", s.create_payload("other", checkpoint="/x"))
    refused(12, "not supported", s.call, "Checkpoint", message(_1="st"))
    s.start("st")
    refused(2, "cannot start a running process", s.start, "st")
    refused(2, "cannot delete a running process", s.delete, "st")
    refused(2, "cannot resume a running process", s.call, "Resume", message(_1="st"))
    s.exec_("st", "e", ["sh", "-c", "exit 3"])
    refused(6, "already exists", s.exec_, "st", "e", ["true"])
    refused(9, "process not created", s.kill, "st", 9, "e")
    refused(5, "does not exist", s.start, "st", "nobody")
    s.start("st", "e")
    same(s.wait("st", "e"), 3)
    refused(5, "process already finished", s.kill, "st", 9, "e")
    same(s.delete("st", "e"), 3)
    refused(5, "does not exist", s.delete, "st", "e")
    for method in ("State", "Start", "Delete", "Pids", "Kill", "Wait", "Stats", "Update", "Pause", "Resume", "CloseIO", "ResizePty"):
        refused(5, "not created", s.call, method, message(_1="nobody"))
    refused(3, "", s.kill, "st", 1000)
    s.call("ResizePty", message(_1="st", _3=80, _4=25))
    s.call("CloseIO", message(_1="st", _3=True))
    s.call("Shutdown", message(_1="st", _2=True))  # ignored while a container exists
    same(s.status("st"), "RUNNING")
    s.kill("st")
    same(s.wait("st"), 137)
    refused(2, "cannot start a stopped process", s.start, "st")
    refused(2, "cannot exec in a stopped state", s.exec_, "st", "late", ["true"])
    refused(2, "cannot pause a stopped container", s.call, "Pause", message(_1="st"))
    refused(5, "process already finished", s.kill, "st")
    refused(2, "cannot update a stopped container", s.call, "Update", message(_1="st", _2=message(_1=RESOURCES, _2="{}")))
    s.delete("st")
    s.shutdown()


def a_missing_program_fails_the_start_with_its_name():
    s = Shim()
    s.run("some", SLEEP)
    # At Create already, where a relative name can be looked up; the last word is exec's, at Start.
    assert "executable file not found in $PATH" in refused(2, "nowhere", s.create, "none", ["nowhere"])
    refused(5, "not created", s.status, "none")
    s.exec_("some", "n", ["nowhere"])
    assert "executable file not found in $PATH" in refused(2, "nowhere", s.start, "some", "n")
    same(s.status("some", "n"), "STOPPED")
    assert s.wait("some", "n") != 0
    s.delete("some", "n")
    s.exec_("some", "e", ["/etc/passwd"])
    assert "permission denied" in refused(2, "/etc/passwd", s.start, "some", "e").lower()
    s.delete("some", "e")
    s.kill("some")
    s.wait("some")
    s.delete("some")
    s.shutdown()
    same(s.events.topics("none"), [])
    same(s.events.topics("some"), ["create", "start", "exec-added", "exec-added", "exit", "delete"])


def a_created_container_can_be_killed_and_deleted():
    s = Shim()
    for i, how in enumerate(("kill", "term", "delete")):
        name = f"cr{i}"
        s.create(name, SLEEP)
        if how != "delete":
            s.kill(name, 9 if how == "kill" else 15)
            same(s.wait(name), 137)
        s.delete(name)
        eventually(lambda: s.events.topics(name) == ["create", "exit", "delete"], "events")
    s.shutdown()
    nothing_left(["cr0", "cr1", "cr2"])


def a_create_whose_caller_leaves_is_undone():
    s = Shim()
    s.run("keeps", SLEEP)
    for i in range(20):
        name = f"gone{i}"
        s.prepare(name, SLEEP)
        peer = s.connect()
        peer.send("Create", s.create_payload(name))
        time.sleep(random.random() * 0.02)
        peer.close()
        # Either it was abandoned, or it had been made already: Delete then finds it.
        time.sleep(0.05)
        try:
            s.delete(name)
        except Refused as r:
            same(r.code, 5)
    nothing_left([f"gone{i}" for i in range(20)])
    same(s.status("keeps"), "RUNNING")
    s.kill("keeps")
    s.wait("keeps")
    s.delete("keeps")
    s.shutdown()


def a_paused_container_answers_everything_at_once():
    s = Shim()
    s.run("pz", ["sh", "-c", "while :; do sleep 0.01; done"])
    s.exec_("pz", "before", ["true"])
    for _ in range(20):
        s.call("Pause", message(_1="pz"))
        s.call("Resume", message(_1="pz"))
    s.call("Pause", message(_1="pz"))
    begin = time.monotonic()
    same(s.status("pz"), "PAUSED")
    refused(2, "cannot exec in a paused state", s.exec_, "pz", "e", ["true"])
    refused(2, "cannot exec in a paused state", s.start, "pz", "before")
    refused(2, "cannot pause a paused container", s.call, "Pause", message(_1="pz"))
    refused(2, "cannot delete a paused process", s.delete, "pz")
    s.call("Stats", message(_1="pz"))
    s.call("Pids", message(_1="pz"))
    assert time.monotonic() - begin < 2
    waiting = s.connect()
    stream = waiting.send("Wait", message(_1="pz"))
    s.kill("pz")
    same(waiting.receive(stream).get(1), 137)
    same(s.delete("pz"), 137)
    s.shutdown()
    topics = s.events.topics("pz")
    same((topics.count("paused"), topics.count("resumed")), (21, 20))


def an_exec_in_a_paused_container_can_be_killed():
    s = Shim()
    s.run("pe", SLEEP)
    s.exec_("pe", "e", SLEEP)
    s.start("pe", "e")
    s.call("Pause", message(_1="pe"))
    s.kill("pe", 9, "e")
    same(s.wait("pe", "e"), 137)
    same(s.status("pe"), "PAUSED")
    s.call("Resume", message(_1="pe"))
    same(s.status("pe"), "RUNNING")
    s.kill("pe")
    s.wait("pe")
    s.delete("pe")
    s.shutdown()


def the_whole_pod_pauses_and_resumes_by_the_control_service():
    control = "glovebox.shim.v1.Control"
    s = Shim()
    for name in ("p1", "p2"):
        s.run(name, SLEEP)
    s.create("p3", SLEEP)
    link = f"/run/glovebox/pods/{s.group}.sock"
    assert os.path.samefile(link, s.address.removeprefix("unix://")), "the pod's name leads elsewhere"
    s.call("Pause", service=control)
    same([s.status(n) for n in ("p1", "p2", "p3")], ["PAUSED", "PAUSED", "CREATED"])
    st = s.call("Status", service=control)
    same(st[1].decode(), s.group, "pod id")
    same(st.get(2), 4, "state: paused")
    assert st.get(4, 0) > 0 and decode(st[6])[1] > 1e9, st
    s.call("Pause", service=control)
    s.call("Resume", service=control)
    same([s.status(n) for n in ("p1", "p2", "p3")], ["RUNNING", "RUNNING", "CREATED"])
    same(s.call("Status", service=control).get(2), 2, "state: running")
    for name in ("p1", "p2"):
        s.kill(name)
        s.wait(name)
        s.delete(name)
    s.delete("p3")
    s.shutdown()
    same(os.path.lexists(link), False, "the name is there after the pod")


def a_dead_sentry_kills_the_pod_and_is_named():
    s = Shim()
    for name in ("d1", "d2"):
        s.run(name, SLEEP)
    s.exec_("d1", "e", ["true"])
    sentry = s.call("Status", service="glovebox.shim.v1.Control")[10]
    waiting = [s.connect() for _ in range(2)]
    streams = [w.send("Wait", message(_1=f"d{i + 1}")) for i, w in enumerate(waiting)]
    os.kill(sentry, signal.SIGKILL)
    begin = time.monotonic()
    same([w.receive(t).get(1) for w, t in zip(waiting, streams)], [137, 137])
    assert time.monotonic() - begin < 3, "the pod died late"
    assert "sentry" in refused(2, "died", s.start, "d1", "e")
    assert "sentry" in refused(2, "died", s.exec_, "d1", "late", ["true"])
    s.prepare("d3", SLEEP)
    assert "sentry" in refused(2, "died", s.call, "Create", s.create_payload("d3"))
    assert "the sentry died" in open(f"{s.dir}/log.txt", encoding="utf-8").read()
    s.delete("d1")
    s.delete("d2")
    s.shutdown()
    nothing_left(["d1", "d2", "d3"])


def memory_kills_are_told_before_the_exit():
    s = Shim()
    limits = {"memory": {"limit": 24 << 20}}
    for i in range(5):
        name = f"oom{i}"
        s.run(name, ["sh", "-c", "exec tail -c 100000000 /dev/zero"], linux={
            "cgroupsPath": f"/{os.environ['RIG_NS']}/{name}", "resources": limits,
            "namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "network")]})
        same(s.wait(name), 137)
        eventually(lambda: s.events.topics(name)[-1:] == ["exit"], "the exit event")
        same(s.events.topics(name), ["create", "start", "oom", "exit"])
        s.delete(name)
    s.run("fine", ["true"])
    s.wait("fine")
    s.delete("fine")
    s.shutdown()
    same(s.events.topics("fine"), ["create", "start", "exit", "delete"])


def update_changes_the_limits_and_says_what_it_could_not():
    s = Shim()
    s.create("up", SLEEP)
    change = message(_1="up", _2=message(_1=RESOURCES, _2='{"memory":{"limit":67108864},"pids":{"limit":77}}'))
    s.call("Update", change)
    s.start("up")
    s.call("Update", change)
    text = "".join(open(os.path.join(d, f), encoding="ascii").read() for d in cgroup_of("up")
                   for f in ("memory.limit_in_bytes", "memory.max", "pids.max") if os.path.exists(os.path.join(d, f)))
    assert "67108864" in text and "77" in text, text
    refused(3, "resources", s.call, "Update", message(_1="up", _2=message(_1=RESOURCES, _2="{no json")))
    stats = decode(s.call("Stats", message(_1="up"))[1])
    assert stats[1].decode().startswith("io.containerd.cgroups.v") and len(stats[2]) > 20, stats
    s.kill("up")
    s.wait("up")
    s.delete("up")
    s.shutdown()


def pids_lists_every_process_and_names_execs():
    s = Shim()
    pid = s.run("ps", ["sh", "-c", "sleep 1000 & sleep 1000; true"])
    s.exec_("ps", "e", SLEEP)
    e = s.start("ps", "e")
    raw = s.connect()
    eventually(lambda: len(pids_of(raw, "ps")) == 4, "four processes")
    found = pids_of(raw, "ps")
    assert pid in found and found.get(e) == "e", found
    s.kill("ps", everyone=True)
    same(s.wait("ps"), 137)
    same(s.wait("ps", "e"), 137)
    s.delete("ps")
    s.shutdown()


def pids_of(peer, container):
    """{pid: exec id} of all entries; decode() keeps only the last of a repeated field."""
    stream = peer.send("Pids", message(_1=container))
    number, _, payload = peer.frame()
    same(number, stream)
    body, out = decode(payload).get(2, b""), {}
    at = 0
    while at < len(body):
        assert body[at] == 0x0A
        size, at = body[at + 1], at + 2
        info = decode(body[at:at + size])
        details = decode(decode(info[2])[2]) if 2 in info else {}
        out[info[1]] = details.get(1, b"").decode()
        at += size
    return out


def namespaces(pid_path):
    kinds = [{"type": t} for t in ("ipc", "uts", "mount", "network")]
    return kinds + [{"type": "pid", "path": pid_path}]


def a_container_may_share_the_processes_of_another_of_its_pod():
    s = Shim()
    ns = os.environ["RIG_NS"]
    anchor, other = s.run("sh0", SLEEP), s.run("sh1", SLEEP)
    s.run("sh2", SLEEP, linux={"cgroupsPath": f"/{ns}/sh2", "namespaces": namespaces(f"/proc/{anchor}/ns/pid")})
    s.run("sh3", SLEEP, linux={"cgroupsPath": f"/{ns}/sh3", "namespaces": namespaces(f"/proc/{other}/ns/pid")})
    for name, init in (("sh2", anchor), ("sh3", other)):
        pid = s.call("State", message(_1=name))[3]
        same(os.readlink(f"/proc/{pid}/ns/pid"), os.readlink(f"/proc/{init}/ns/pid"), f"pid namespace of {name}")
        s.exec_(name, "e", ["sh", "-c", "kill -0 1"])
        s.start(name, "e")
        same(s.wait(name, "e"), 0)
    stranger = subprocess.Popen(["unshare", "--pid", "--fork", "--kill-child", "sleep", "1000"])
    eventually(lambda: os.path.lexists(f"/proc/{stranger.pid}/ns/pid_for_children"), "unshare has forked")
    for path, words in (("/proc/self/ns/pid", "the host's own"), (f"/proc/{stranger.pid}/ns/pid_for_children", "not this pod's")):
        refused(7, words, s.create, "sh4", SLEEP, linux={"cgroupsPath": f"/{ns}/sh4", "namespaces": namespaces(path)})
    stranger.kill()
    stranger.wait()
    s.kill("sh1")
    same((s.wait("sh1"), s.wait("sh3")), (137, 137), "the namespace dies with its first process")
    same(s.status("sh2"), "RUNNING")
    s.kill("sh0")
    same((s.wait("sh0"), s.wait("sh2")), (137, 137))
    for i in range(4):
        s.delete(f"sh{i}")
    s.shutdown()
    nothing_left([f"sh{i}" for i in range(5)])


def nobody_of_a_container_survives_its_init_in_a_shared_namespace():
    s = Shim()
    ns = os.environ["RIG_NS"]
    anchor = s.run("an", SLEEP)
    for i in range(10):
        name = f"or{i}"
        s.create(name, ["sh", "-c", "for n in 1 2 3; do sleep 1000 & done; (while :; do (:) & done) & exit 3"], linux={
            "cgroupsPath": f"/{ns}/{name}", "resources": {"pids": {"limit": 40}}, "namespaces": namespaces(f"/proc/{anchor}/ns/pid")})
        s.exec_(name, "e", SLEEP)
        waiting = s.connect()
        stream = waiting.send("Wait", message(_1=name))
        s.start(name)
        same(waiting.receive(stream).get(1), 3)
        s.delete(name)
        nothing_left([name])
    same(s.status("an"), "RUNNING")
    s.kill("an")
    s.wait("an")
    s.delete("an")
    s.shutdown()


def a_shim_killed_at_any_moment_leaves_nothing_after_delete():
    before = os.listdir("/proc")
    for i in range(25):
        s, names = Shim(), [f"kk{i}a", f"kk{i}b"]
        for name in names:
            s.prepare(name, ["sh", "-c", "sleep 1000 & sleep 1000"])
            s.start_shim(name)
        pid = s.pid()

        def life():
            try:
                for name in names:
                    s.call("Create", s.create_payload(name))
                    s.start(name)
                    s.exec_(name, "e", SLEEP)
                    s.start(name, "e")
                s.call("Pause", message(_1=names[0]))
                s.kill(names[1])
                s.wait(names[1])
                s.delete(names[1])
            except Exception:
                pass  # the shim is gone
        t = threading.Thread(target=life)
        t.start()
        time.sleep(random.random() * (0.02 if i % 2 else 0.12))
        os.kill(pid, signal.SIGKILL)
        t.join()
        found = {n: state_of(n) for n in names}
        for name in names:
            s.delete_binary(name)
        for name in names:
            s.delete_binary(name)  # again: nothing to do
        if s.group in id_ranges():
            print(found, open(f"{s.dir}/log.txt").read()[-3000:])
        nothing_left(names)
        same(os.path.exists(s.address.removeprefix("unix://")), False, "the socket after delete")
        same(os.path.lexists(f"/run/glovebox/pods/{s.group}.sock"), False, "the pod's name after delete")
        same([p for p in os.listdir("/proc") if p.isdigit() and alive(int(p)) and p not in before and b"sleep" in cmdline(p)],
             [], "processes")
        same([r for r in id_ranges() if r == s.group], [], f"id ranges of round {i}")


def state_of(name):
    try:
        return open(f"/run/glovebox/{os.environ['RIG_NS']}/{name}/state", encoding="ascii").read()
    except OSError as e:
        return str(e)


def id_ranges():
    """The pods that hold one."""
    folder = "/run/glovebox/ids"
    names = [n for n in os.listdir(folder) if n.isdigit()] if os.path.isdir(folder) else []
    return [open(os.path.join(folder, n), encoding="ascii").read() for n in names]


def cmdline(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def delete_of_one_member_leaves_the_others_and_their_shim():
    s = Shim()
    a, b = s.run("m1", SLEEP), s.run("m2", SLEEP)
    same(s.delete_binary("m1")[0], a)
    same(s.wait("m1"), 137)
    assert alive(b) and s.status("m2") == "RUNNING"
    s.delete("m1")
    s.kill("m2")
    s.wait("m2")
    s.delete("m2")
    s.shutdown()


def delete_does_not_kill_a_process_that_only_has_the_number():
    s = Shim()
    s.create("num", SLEEP)
    os.kill(s.pid(), signal.SIGKILL)
    victim = os.fork()
    if victim == 0:
        time.sleep(100)
        os._exit(0)
    path = f"/run/glovebox/{os.environ['RIG_NS']}/num/state"
    text = open(path, encoding="ascii").read().splitlines()
    forged = [f"init {victim} 12345" if line.startswith("init ") else f"sentry {victim} 1" if line.startswith("sentry ") else line
              for line in text]
    with open(path, "w", encoding="ascii") as f:
        f.write("\n".join(forged) + "\n")
    s.delete_binary("num")
    assert alive(victim), "a stranger was killed"
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    nothing_left(["num"])
    # The sentry's real number is lost with the forgery, but it ends with its shim.
    eventually(lambda: not [p for p in os.listdir("/proc") if p.isdigit() and b"-id\0num" in cmdline(p) and alive(int(p))],
               "the sentry ends with its shim", 5)


def delete_copes_with_what_is_cut_or_missing():
    for i, spoil in enumerate((lambda b, st: os.truncate(st, 10), lambda b, st: os.unlink(st), lambda b, st: os.truncate(st, 0),
                               lambda b, st: (os.unlink(st), os.truncate(f"{b}/config.json", 20)),
                               lambda b, st: os.truncate(f"{b}/config.json", 0), lambda b, st: os.unlink(f"{b}/config.json"))):
        s, name = Shim(), f"cut{i}"
        pid = s.run(name, SLEEP)
        os.kill(s.pid(), signal.SIGKILL)
        b = s.bundle(name)
        spoil(b, f"/run/glovebox/{os.environ['RIG_NS']}/{name}/state")
        s.delete_binary(name)
        if i == 3:  # nothing tells where it is; give it its config back, as a test must not leave it
            s.prepare(name, SLEEP)
            s.delete_binary(name)
        eventually(lambda: not alive(pid), f"the init of {name} dies")
        same(s.group in id_ranges(), False, f"the id range of {name} is held")


def sigterm_ends_the_shim_and_its_containers_and_tells_the_exits():
    s = Shim()
    pid = s.run("term", SLEEP)
    shim = s.pid()
    os.kill(shim, signal.SIGTERM)
    eventually(lambda: not alive(shim), "the shim ends", 5)
    eventually(lambda: not alive(pid), "the container ends", 2)
    same(s.events.topics("term"), ["create", "start", "exit"])
    same(s.delete_binary("term"), (pid, 137))
    nothing_left(["term"])


def orphans_of_an_exec_are_reaped():
    s = Shim()
    s.run("orph", SLEEP)
    for i in range(20):
        s.exec_("orph", f"e{i}", ["sh", "-c", "sleep 0.05 & exit 0"])
        s.start("orph", f"e{i}")
        same(s.wait("orph", f"e{i}"), 0)
        s.delete("orph", f"e{i}")
    shim = s.pid()

    def children():
        with open(f"/proc/{shim}/task/{shim}/children", encoding="ascii") as f:
            return [p for p in f.read().split() if os.path.exists(f"/proc/{p}") and not alive(int(p))]
    eventually(lambda: not children(), "no zombie is a child of the shim", 3)
    s.kill("orph")
    s.wait("orph")
    s.delete("orph")
    s.shutdown()


if __name__ == "__main__":
    main([a_container_lives_from_create_to_shutdown, every_call_answers_as_the_table_says,
          a_missing_program_fails_the_start_with_its_name, a_created_container_can_be_killed_and_deleted,
          a_create_whose_caller_leaves_is_undone, a_paused_container_answers_everything_at_once,
          an_exec_in_a_paused_container_can_be_killed, the_whole_pod_pauses_and_resumes_by_the_control_service,
          a_dead_sentry_kills_the_pod_and_is_named, memory_kills_are_told_before_the_exit,
          update_changes_the_limits_and_says_what_it_could_not, pids_lists_every_process_and_names_execs,
          delete_of_one_member_leaves_the_others_and_their_shim, delete_does_not_kill_a_process_that_only_has_the_number,
          delete_copes_with_what_is_cut_or_missing, sigterm_ends_the_shim_and_its_containers_and_tells_the_exits,
          orphans_of_an_exec_are_reaped,
          a_container_may_share_the_processes_of_another_of_its_pod,
          nobody_of_a_container_survives_its_init_in_a_shared_namespace, a_shim_killed_at_any_moment_leaves_nothing_after_delete,
          five_hundred_execs_while_the_init_is_killed_lose_no_exit,
          a_thousand_fast_exits_keep_their_codes_and_their_order])
