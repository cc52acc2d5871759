#!/usr/bin/python3
# rig: 2.4 1.6
# timeout: 240
"""start, delete, -info and the ttrpc socket of a live shim: what containerd relies on, and what a broken peer may send."""
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from ttrpc import CODES, LIMIT, Peer, Refused, address_of, bundle, decode, message, task_call  # noqa: E402

NS, SOCK, RUNTIME, IMAGE = (os.environ[k] for k in ("RIG_NS", "RIG_SOCK", "RIG_RUNTIME", "RIG_IMAGE"))
SHIM = shutil.which("containerd-shim-glovebox-v1")
GLOVEBOX = os.environ["RIG_HANDLER"] == "glovebox"
CONFIG = {"ociVersion": "1.0.2", "process": {"args": ["true"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
          "root": {"path": "rootfs"}, "linux": {}}


def run(*command, check=True, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **more)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stdout.decode()}")
    return done


def eventually(condition, what, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def same(actual, wanted, what="value"):
    assert actual == wanted, f"{what} is {actual!r}, expected {wanted!r}"


def refused(code, function, *args, **more):
    try:
        function(*args, **more)
    except Refused as r:
        same(r.code, CODES[code], f"code of \"{r.text}\"")
        return r.text
    raise AssertionError(f"not refused: {args}")


def shims(container):
    """Shim processes of a container, without what they forked."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as f:
                args = f.read().split(b"\0")
        except OSError:
            continue
        if b"containerd-shim" in args[0] and container.encode() in args and int(name) == os.getsid(int(name)):
            found.append(int(name))
    return found


class Container:
    """A running container, removed at the end of the with block."""

    def __init__(self, name, *command):
        self.name, self.command = name, command or ("sleep", "1000")

    def __enter__(self):
        run("ctr", "run", "-d", "--runtime", RUNTIME, IMAGE, self.name, *self.command)
        self.address = address_of(NS, self.name)
        return self

    def __exit__(self, *_):
        run("ctr", "tasks", "rm", "-f", self.name, check=False)
        run("ctr", "containers", "rm", self.name, check=False)


class Bundle:
    """A bundle by hand, for starts without containerd."""

    def __init__(self, name, **annotations):
        self.name, self.path = name, bundle(NS, name)
        os.makedirs(self.path)
        self.write(json.dumps(CONFIG | {"annotations": annotations}))

    def write(self, config):
        with open(f"{self.path}/config.json", "w", encoding="utf-8") as f:
            f.write(config)

    def popen(self, action, *flags, stdin=b"", binary=SHIM, **env):
        p = subprocess.Popen([binary, "-namespace", NS, "-address", SOCK, "-publish-binary", "/bin/true", "-id", self.name, *flags, action],
                             cwd=self.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=os.environ | env, start_new_session=True)
        p.stdin.write(stdin)
        p.stdin.close()
        p.stdin = None
        return p

    def start(self, *flags, **more):
        p = self.popen("start", *flags, **more)
        out, err = p.communicate(timeout=20)
        return p.returncode, out.decode(), err.decode()

    def delete(self):
        p = self.popen("delete", "-bundle", self.path)
        out, err = p.communicate(timeout=20)
        same(p.returncode, 0, f"exit status of delete ({err.decode()})")
        return decode(out)

    def end(self):
        try:
            address = address_of_file(self.path)
            task_call(address, "Shutdown", message(_1=self.name))
            eventually(lambda: not os.path.exists(address.removeprefix("unix://")), "the socket goes")
        except (OSError, EOFError):
            pass
        shutil.rmtree(self.path, ignore_errors=True)


def address_of_file(path):
    with open(f"{path}/address", encoding="ascii") as f:
        return f.read()


# ---- start --------------------------------------------------------------------------------------------------------------------

def the_socket_has_the_name_the_reference_gives_it():
    with Container("name") as c:
        digest = hashlib.sha256(f"{SOCK}/{NS}/name".encode()).hexdigest()
        same(c.address, f"unix:///run/containerd/s/{digest}", "address")
        mode = os.stat(c.address.removeprefix("unix://")).st_mode
        assert stat.S_ISSOCK(mode) and mode & 0o777 == 0o600, oct(mode)


def twenty_starts_of_one_pod_end_with_one_shim():
    pod = [Bundle(f"m{i}", **{"io.kubernetes.cri.sandbox-id": "m0"}) for i in range(20)]
    try:
        started = [b.popen("start") for b in pod]
        outs = [p.communicate(timeout=20) for p in started]
        same({p.returncode for p in started}, {0}, f"exit status ({outs})")
        same(len({out for out, _ in outs}), 1, "number of addresses")
        same(sum(len(shims(b.name)) for b in pod), 1, "number of shims")
        same({address_of_file(b.path) for b in pod}, {outs[0][0].decode()}, "address files")
    finally:
        for b in pod:
            b.end()


def a_start_that_fails_says_why_and_leaves_nothing():
    b = Bundle("broken")
    for config, reason in (("", "config.json"), ("{", "config.json"), ('{"ociVersion":"1.0.2","process":1}', "process"),
                           (json.dumps(CONFIG | {"annotations": {"io.kubernetes.cri.sandbox-id": "../x"}}), "annotation")):
        b.write(config)
        before = set(os.listdir("/run/containerd/s"))
        code, out, err = b.start()
        assert code != 0 and out == "" and reason in err, (code, out, err)
        same(err.count("\n"), 1, "lines of the message")
        same(set(os.listdir("/run/containerd/s")), before, "sockets")
        same(shims("broken"), [], "shims")
        assert not os.path.exists(f"{b.path}/address")
    shutil.rmtree(b.path)


def every_form_of_options_is_taken():
    any_of = lambda url, value: message(_1=url, _2=value)  # noqa: E731
    params = lambda name: message(_1=name, _2=NS, _3=-4, _4="2.4.2", _5=SOCK + ".ttrpc", _6=SOCK, _7="/bin/true",  # noqa: E731
                                  _8=message(_1=any_of("runtimeoptions.v1.Options", message(_2="/etc/x"))))
    cases = [b"", any_of("containerd.runc.v1.Options", message(_9=True)), any_of("runtimeoptions.v1.Options", message(_2="/etc/x")),
             any_of("some.other/Thing", b"\xff\xff"), b"\xff\xff\xff", params("options")]
    for stdin in cases:
        b = Bundle("options")
        code, out, err = b.start(stdin=stdin)
        try:
            same(code, 0, f"exit status ({err})")
            same(out.startswith("unix://"), True, "an address")
            got = task_call(out, "Connect", message(_1="options"))
            same([got[1]], shims("options"), "shim pid")
        finally:
            b.end()


def a_shim_knows_where_events_go_without_being_told():
    b = Bundle("events")
    env = {"TTRPC_ADDRESS": ""}
    code, out, err = b.start(**env)
    same(code, 0, err)
    pid = shims("events")[0]
    with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as f:
        mine = int(open("/proc/self/oom_score_adj", encoding="ascii").read())
        same(int(f.read()), min(mine + 1, 1000), "oom_score_adj")
    links = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)}
    same(links, {"/dev/null"}, "standard streams")
    b.end()


def a_shim_without_containers_ends_when_told():
    b = Bundle("idle")
    code, out, err = b.start()
    same(code, 0, err)
    begin = time.monotonic()
    same(task_call(out, "Shutdown", message(_1="idle")), {}, "answer")
    eventually(lambda: not shims("idle"), "the shim ends", 3)
    assert time.monotonic() - begin < 1, "that took long"
    assert not os.path.exists(out.removeprefix("unix://")), "socket left"
    shutil.rmtree(b.path)


def a_shim_without_containers_and_callers_ends_by_itself():
    b = Bundle("lonely")
    _, out, _ = b.start()
    time.sleep(0.3)
    same(len(shims("lonely")), 1, "number of shims that wait for their first caller")
    peer = Peer(out)
    peer.call("Connect", message(_1="lonely"))
    time.sleep(0.3)
    same(len(shims("lonely")), 1, "number of shims with a caller")
    peer.close()
    eventually(lambda: not shims("lonely"), "the shim ends", 3)
    assert not os.path.exists(out.removeprefix("unix://")), "socket left"
    shutil.rmtree(b.path)


def a_shim_with_a_container_stays_without_a_caller():
    with Container("stays") as c:
        run("rig", "kill")
        time.sleep(0.5)
        same(len(shims("stays")), 1, "number of shims")
        same(task_call(c.address, "State", message(_1="stays"))[4], 2, "status")
        time.sleep(0.5)
        run("rig", "start")
        eventually(lambda: b"RUNNING" in run("ctr", "tasks", "ls").stdout, "containerd knows it again")


def a_shim_told_to_end_by_signal_removes_its_socket():
    b = Bundle("term")
    _, out, _ = b.start()
    for pid in shims("term"):
        os.kill(pid, signal.SIGTERM)
    eventually(lambda: not shims("term"), "the shim ends", 5)
    assert not os.path.exists(out.removeprefix("unix://")), "socket left"
    shutil.rmtree(b.path)


def a_shim_killed_before_create_is_replaced():
    b = Bundle("early")
    _, out, _ = b.start()
    for pid in shims("early"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not shims("early"), "the shim ends")
    code, again, err = b.start()
    same((code, again), (0, out), err)
    same(len(shims("early")), 1, "number of shims")
    b.end()


# ---- delete -------------------------------------------------------------------------------------------------------------------

def delete_can_be_called_at_any_time():
    b = Bundle("gone")
    _, out, _ = b.start()
    for pid in shims("gone"):
        os.kill(pid, signal.SIGKILL)
    for _ in range(2):
        got = b.delete()
        same(got[2], 137, "exit status")
        assert abs(decode(got[3])[1] - time.time()) < 60, "exited_at"
        assert not os.path.exists(out.removeprefix("unix://")), "dead socket left"
    os.unlink(f"{b.path}/config.json")
    b.delete()
    b.write('{"process": ')
    b.delete()
    os.unlink(f"{b.path}/address")
    b.delete()
    shutil.rmtree(b.path)


def delete_leaves_a_living_shim_alone():
    b = Bundle("alive")
    _, out, _ = b.start()
    b.delete()
    same(len(shims("alive")), 1, "number of shims")
    task_call(out, "Connect", message(_1="alive"))
    b.end()


def delete_of_a_killed_shim_returns_the_pid_of_the_init():
    with Container("pid") as c:
        pid = task_call(c.address, "State", message(_1="pid"))[3]
        # containerd would call delete itself; it stands still meanwhile.
        with open(os.path.join(os.environ["RIG_DIR"], "containerd.pid"), encoding="ascii") as f:
            containerd = int(f.read())
        os.kill(containerd, signal.SIGSTOP)
        try:
            for shim in shims("pid"):
                os.kill(shim, signal.SIGKILL)
            p = subprocess.run([SHIM, "-namespace", NS, "-address", SOCK, "-publish-binary", "/bin/true", "-id", "pid",
                                "-bundle", bundle(NS, "pid"), "delete"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20,
                               cwd=bundle(NS, "pid"), check=False)
        finally:
            os.kill(containerd, signal.SIGCONT)
        same(p.returncode, 0, f"exit status ({p.stderr.decode()})")
        got = decode(p.stdout)
        same((got[1], got[2]), (pid, 137), "pid and status")
        assert not os.path.exists(f"/proc/{pid}"), "the container lives"
        eventually(lambda: run("ctr", "tasks", "ls", "-q").stdout.strip() == b"", "containerd notices")


# ---- info ---------------------------------------------------------------------------------------------------------------------

def info_says_what_kubelet_asks_for():
    done = subprocess.run([SHIM, "-info"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=5, check=True)
    info = decode(done.stdout)
    same(info[1], b"io.containerd.glovebox.v1", "name")
    features = decode(info[4])
    same(features[1], b"types.containerd.io/opencontainers/runtime-spec/1/features/Features", "type of the features")
    document = json.loads(features[2])
    assert "rro" in document["mountOptions"], document["mountOptions"]
    same(document["linux"]["mountExtensions"]["idmap"]["enabled"], True, "pods may bring a user namespace")
    same(set(document["hooks"]), {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}, "hooks")
    pair = decode(info[5])
    assert (pair[1], pair[2]) in ((b"glovebox.dev/interposer", b"full"), (b"glovebox.dev/kernel-lacks", pair[2])), pair


def containerd_reads_the_info():
    if os.environ["RIG_CONTAINERD"] == "1.6":
        return "containerd 1.6 asks for none"
    out = run("ctr", "plugins", "inspect-runtime", "--runtime", RUNTIME).stdout.decode()
    same(json.loads(out[out.index("{"):])["Name"], "io.containerd.glovebox.v1", "name")
    return None


def version_and_usage_are_for_people():
    for flag in ("-v", "-version", "--version"):
        assert b"Version:" in run(SHIM, flag).stdout
    same(run(SHIM, "-h").stdout.startswith(b"usage:"), True, "usage")
    for args in ((), ("frobnicate",), ("-nope", "start"), ("-id",)):
        done = run(SHIM, *args, check=False)
        same(done.returncode, 2, f"exit status of {args}")
        assert b"usage:" in done.stdout


# ---- the socket of a live shim ------------------------------------------------------------------------------------------------

def both_names_of_the_service_are_served():
    with Container("names") as c:
        for service in ("containerd.task.v2.Task", "containerd.task.v3.Task"):
            same(task_call(c.address, "State", message(_1="names"), service=service)[4], 2, "status")
        refused("unimplemented", task_call, c.address, "State", service="containerd.task.v4.Task")
        refused("unimplemented", task_call, c.address, "Frobnicate")
        assert "not implemented" in refused("unimplemented", task_call, c.address, "Checkpoint", message(_1="names", _2="/x"))


def a_frame_of_five_mebibytes_is_answered_and_the_connection_stays():
    with Container("big") as c:
        peer = Peer(c.address)
        for size in (5 << 20, LIMIT + 1):
            peer.stream += 2
            stream = peer.stream
            peer.send_frame(stream, 1, b"\xa5" * size)
            refused("exhausted", peer.receive, stream)
            same(peer.call("State", message(_1="big"))[4], 2, "status")
        peer.close()
        same(task_call(c.address, "State", message(_1="big"))[4], 2, "status")


def garbage_in_a_request_is_invalid_and_the_connection_stays():
    with Container("junk") as c:
        peer = Peer(c.address)
        for method in ("Create", "State", "Start", "Exec", "Kill", "Wait", "Pids", "Update", "Stats", "Connect", "ResizePty",
                       "CloseIO", "Pause", "Resume", "Delete", "Shutdown"):
            refused("invalid", peer.call, method, b"\x0a\xff\xff\xff\xff")
        peer.stream += 2
        peer.send_frame(peer.stream, 1, b"\xff\xff")
        refused("invalid", peer.receive, peer.stream)
        peer.send_frame(2, 1, b"")
        refused("invalid", peer.receive, 2)
        same(peer.call("State", message(_1="junk"))[4], 2, "status")
        peer.close()


def a_wait_does_not_hold_up_the_other_calls():
    with Container("wait") as c:
        peer = Peer(c.address)
        waits = [peer.send("Wait", message(_1="wait")) for _ in range(50)]
        for _ in range(20):
            same(peer.call("State", message(_1="wait"))[4], 2, "status")
        peer.call("Kill", message(_1="wait", _3=9))
        for stream in waits:
            same(peer.receive(stream)[1], 137, "exit status")
        peer.close()


def a_half_closed_peer_gets_its_answers():
    with Container("half") as c:
        peer = Peer(c.address)
        wait, state = peer.send("Wait", message(_1="half")), peer.send("State", message(_1="half"))
        peer.sock.shutdown(socket.SHUT_WR)
        same(peer.receive(state)[4], 2, "status")
        task_call(c.address, "Kill", message(_1="half", _3=9))
        same(peer.receive(wait)[1], 137, "exit status")
        same(peer.sock.recv(1), b"", "what follows")


def a_wait_with_a_deadline_ends_at_it():
    with Container("due") as c:
        peer = Peer(c.address)
        begin = time.monotonic()
        try:
            peer.call("Wait", message(_1="due"), timeout_ns=100_000_000)
            raise AssertionError("the wait ended well")
        except Refused as r:
            same(r.code, 4, "code")
        assert 0.09 < time.monotonic() - begin < 2
        peer.close()


def two_hundred_connections_and_a_slow_reader_do_no_harm():
    with Container("many") as c:
        pid = shims("many")[0]
        fds = lambda: len(os.listdir(f"/proc/{pid}/fd"))  # noqa: E731
        before = fds()
        slow = Peer(c.address)
        slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for _ in range(3000):
            slow.send("State", message(_1="many"))
        peers = [Peer(c.address) for _ in range(200)]
        for p in peers:
            p.send("Wait", message(_1="many"))
        for p in peers:
            same(p.call("State", message(_1="many"))[4], 2, "status")
        for p in peers:
            p.close()
        same(slow.receive(2 * 2999 + 1)[4], 2, "status")
        slow.close()
        eventually(lambda: fds() == before, f"{fds()} descriptors become {before} again")


def pieces_of_one_byte_are_a_request_too():
    with Container("bytes") as c:
        peer = Peer(c.address)
        payload = message(_1="containerd.task.v2.Task", _2="Connect", _3=message(_1="bytes"))
        for byte in struct.pack(">IIBB", len(payload), 1, 1, 0) + payload:
            peer.sock.sendall(bytes([byte]))
        same(peer.receive(1)[1], shims("bytes")[0], "shim pid")
        peer.close()


def another_user_is_turned_away():
    with Container("user") as c:
        path = c.address.removeprefix("unix://")
        os.chmod(path, 0o666)
        code = f"import socket,os;os.setgroups([]);os.setgid(65534);os.setuid(65534);s=socket.socket(1);s.connect({path!r});print(s.recv(1))"
        done = run("python3", "-c", code, check=False)
        # The folder of the sockets stops others as well.
        assert done.stdout.strip() == b"b''" or b"PermissionError" in done.stdout, done.stdout
        same(task_call(c.address, "State", message(_1="user"))[4], 2, "status")


def names_that_leave_their_folder_are_refused():
    with Container("path") as c:
        for name in ("../path", "/path", "a/b", "..", "", "x" * 77, "a b"):
            for method in ("Create", "State", "Kill", "Exec", "Delete", "Pids"):
                extra = {"_2": "/run"} if method == "Create" else {"_2": "e"} if method == "Exec" else {}
                try:
                    task_call(c.address, method, message(_1=name, **extra))
                    raise AssertionError(f"{method} of {name!r} went well")
                except Refused as r:
                    assert r.code in (3, 5, 6), f"{method} of {name!r}: {r}"


# ---- events -------------------------------------------------------------------------------------------------------------------

def an_exit_while_containerd_is_away_is_known_to_the_next_one():
    name = "away"
    run("ctr", "run", "-d", "--runtime", RUNTIME, IMAGE, name, "sh", "-c", "while [ ! -e /end ]; do sleep .1; done; exit 7")
    address = address_of(NS, name)
    run("rig", "kill")
    task_call(address, "Kill", message(_1=name, _3=9))
    same(task_call(address, "Wait", message(_1=name))[1], 137, "exit status")
    time.sleep(0.5)
    run("rig", "start")
    # From 1.7 on containerd removes at its start what has ended meanwhile; 1.6 shows it as stopped.
    if os.environ["RIG_CONTAINERD"] == "1.6":
        assert b"STOPPED" in run("ctr", "tasks", "ls").stdout
        run("ctr", "tasks", "rm", name, check=False)
    eventually(lambda: not shims(name), "the shim ends")
    run("ctr", "containers", "rm", name, check=False)


class Listener:
    """What containerd publishes while the with block runs."""

    def __enter__(self):
        self.lines = []
        self.ctr = subprocess.Popen(["ctr", "events"], stdout=subprocess.PIPE, text=True)
        threading.Thread(target=lambda: self.lines.extend(iter(self.ctr.stdout.readline, "")), daemon=True).start()
        # It listens when it hears of something.
        eventually(lambda: run("ctr", "namespaces", "label", NS, f"try=t{time.monotonic_ns()}") and self.heard("/namespaces/update"),
                   "events arrive")
        return self

    def heard(self, pattern):
        return any(re.search(pattern, line) for line in self.lines)

    def __exit__(self, *_):
        self.ctr.kill()
        self.ctr.wait()


def events_go_on_after_a_restart_of_containerd():
    with Container("again") as c:
        run("rig", "kill")
        run("rig", "start")
        with Listener() as events:
            task_call(c.address, "Kill", message(_1="again", _3=9))
            eventually(lambda: events.heard(r"/tasks/exit .*again"), "the exit is told")


def a_stopped_containerd_does_not_stop_the_shim():
    with Container("stopped") as c, Listener() as events:
        with open(os.path.join(os.environ["RIG_DIR"], "containerd.pid"), encoding="ascii") as f:
            containerd = int(f.read())
        peer = Peer(c.address, timeout=5)
        os.kill(containerd, signal.SIGSTOP)
        try:
            # Each pair publishes two events and logs more than a kilobyte: the FIFO of the log is full after some 50 of them.
            for _ in range(120):
                peer.call("Pause", message(_1="stopped"))
                peer.call("Resume", message(_1="stopped"))
            begin = time.monotonic()
            same(peer.call("State", message(_1="stopped"))[4], 2, "status")
            assert time.monotonic() - begin < 1, "State took long"
        finally:
            os.kill(containerd, signal.SIGCONT)
        peer.call("Kill", message(_1="stopped", _3=9))
        peer.close()
        eventually(lambda: events.heard(r"/tasks/exit .*stopped"), "the exit is told", 20)
        order = [m.group(1) for m in (re.search(r"/tasks/(paused|resumed) .*stopped", line) for line in events.lines) if m]
        same(order, ["paused", "resumed"] * 120, "events while containerd stood still")


def nothing_is_left_of_short_lives():
    before = set(os.listdir("/run/containerd/s"))
    for i in range(10):
        same(run("ctr", "run", "--rm", "--runtime", RUNTIME, IMAGE, f"short{i}", "true").stdout, b"", "output")
    eventually(lambda: set(os.listdir("/run/containerd/s")) == before, "the sockets go")
    eventually(lambda: not [s for i in range(10) for s in shims(f"short{i}")], "the shims end")


CASES = [
    the_socket_has_the_name_the_reference_gives_it, twenty_starts_of_one_pod_end_with_one_shim,
    a_start_that_fails_says_why_and_leaves_nothing, every_form_of_options_is_taken, a_shim_knows_where_events_go_without_being_told,
    a_shim_without_containers_ends_when_told, a_shim_without_containers_and_callers_ends_by_itself,
    a_shim_with_a_container_stays_without_a_caller, a_shim_told_to_end_by_signal_removes_its_socket, a_shim_killed_before_create_is_replaced,
    delete_can_be_called_at_any_time, delete_leaves_a_living_shim_alone, delete_of_a_killed_shim_returns_the_pid_of_the_init,
    info_says_what_kubelet_asks_for, containerd_reads_the_info, version_and_usage_are_for_people,
    both_names_of_the_service_are_served, a_frame_of_five_mebibytes_is_answered_and_the_connection_stays,
    garbage_in_a_request_is_invalid_and_the_connection_stays, a_wait_does_not_hold_up_the_other_calls,
    a_half_closed_peer_gets_its_answers, a_wait_with_a_deadline_ends_at_it, two_hundred_connections_and_a_slow_reader_do_no_harm,
    pieces_of_one_byte_are_a_request_too, another_user_is_turned_away, names_that_leave_their_folder_are_refused,
    an_exit_while_containerd_is_away_is_known_to_the_next_one, events_go_on_after_a_restart_of_containerd,
    a_stopped_containerd_does_not_stop_the_shim, nothing_is_left_of_short_lives,
]


def main():
    if not GLOVEBOX:
        print("skip the invocations of the shim: this is about glovebox's own program")
        return 0
    failed = 0
    for case in CASES:
        name = case.__name__.replace("_", " ")
        if os.environ.get("CASES", "") not in name:
            continue
        try:
            why = case()
            print(f"skip {name}: {why}" if why else f"ok {name}", flush=True)
        except Exception as e:  # a broken case must not hide the others
            traceback.print_exc()
            print(f"FAIL {name}: {e}", flush=True)
            failed += 1
    return 1 if failed else 0


sys.exit(main())
