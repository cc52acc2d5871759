#!/usr/bin/python3
# timeout: 300
"""The launcher with real namespaces, without containerd and without a sentry (tests/integration/launch_driver.c)."""
import glob
import json
import os
import re
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from launch_bundle import DRIVER, TOP, Bundle, all_caps  # noqa: E402

OPEN = ["-f"]  # without the filter: what namespaces and mounts hold back alone


def same(actual, wanted, what="value"):
    assert actual == wanted, f"{what} is {actual!r}, expected {wanted!r}"


def like(text, pattern):
    assert re.search(pattern, text), f"{text!r} does not match {pattern!r}"


def unlike(text, pattern):
    assert not re.search(pattern, text), f"{text!r} matches {pattern!r}"


def good(result, out=None):
    same(result.code, 0, f"exit status ({result})")
    if out is not None:
        same(result.out.strip(), out, "output")
    return result.out


def refused(result, pattern):
    same(result.code, 125, f"exit status of the driver ({result})")
    like(result.err, "^glovebox: .*(" + pattern + ")")


# ---- processes ---------------------------------------------------------------------------------------

def it_runs_a_command_and_passes_output_and_status():
    with Bundle() as b:
        good(b.sh("echo hello; cat; echo err >&2", stdin="input"), "hello\ninput")
        same(b.sh("exit 7").code, 7)


def it_makes_the_first_process_pid_1_of_its_own_namespace_and_a_child_of_the_shim():
    with Bundle() as b:
        good(b.sh("echo $$; ls -d /proc/[0-9]* | head -1"), "1\n/proc/1")
        # the driver waits for it with waitpid, which works for its own children alone


def it_sets_ids_groups_umask_and_environment():
    with Bundle() as b:
        b.spec["process"]["user"] = {"uid": 1000, "gid": 1001, "additionalGids": [7, 8], "umask": 0o27}
        b.spec["process"]["env"] = ["PATH=/bin", "A=1", "A=2", "B=x y"]
        out = good(b.sh("id -u; id -g; id -G; umask; echo $A; echo \"$B\"; echo $HOME"))
        same(out.split("\n")[:-1], ["1000", "1001", "1001 7 8", "0027", "2", "x y", "/home/user"])


def it_gives_no_capabilities_to_other_users_and_the_listed_ones_to_root():
    with Bundle() as b:
        b.spec["process"]["capabilities"] = {k: ["CAP_KILL", "CAP_CHOWN"] for k in ("bounding", "effective", "permitted")}
        out = good(b.sh("grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status"))
        same(re.findall(r"\t(\S+)", out), ["0000000000000021"] * 3)
        b.spec["process"]["user"]["uid"] = 1000
        out = good(b.sh("grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status"))
        same(re.findall(r"\t(\S+)", out), ["0000000000000000"] * 4)


def it_keeps_ambient_capabilities_of_other_users():
    with Bundle() as b:
        b.spec["process"]["user"]["uid"] = 1000
        b.spec["process"]["capabilities"] = {k: ["CAP_NET_BIND_SERVICE"] for k in
                                             ("bounding", "effective", "permitted", "inheritable", "ambient")}
        out = good(b.sh("grep -E 'Cap(Prm|Eff|Inh|Amb)' /proc/self/status"))
        same(re.findall(r"\t(\S+)", out), ["0000000000000400"] * 4)


def it_sets_no_new_privs_as_asked_and_filters_in_both_cases():
    with Bundle() as b:
        for asked in (True, False):
            b.spec["process"]["noNewPrivileges"] = asked
            out = good(b.sh("grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status"))
            same(out.split(), ["NoNewPrivs:", "1" if asked else "0", "Seccomp:", "2"])


def it_sets_rlimits():
    with Bundle() as b:
        b.spec["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200}, {"type": "RLIMIT_CORE", "soft": 0, "hard": 0}]
        good(b.sh("ulimit -Sn; ulimit -Hn; ulimit -c"), "100\n200\n0")


def it_says_what_runc_says_about_programs_that_cannot_run():
    with Bundle() as b:
        b.write("bin/noexec", "x", 0o644)
        b.write("bin/garbage", "\x01\x02", 0o755)
        b.write("bin/nointerp", "#!/no/such\n", 0o755)
        refused(b.run("nowhere"), r'exec: "nowhere": executable file not found in \$PATH')
        refused(b.run("/nowhere"), r'exec: "/nowhere": stat /nowhere: no such file or directory')
        refused(b.run("/bin/noexec"), r'exec: "/bin/noexec": permission denied')
        refused(b.run("/bin"), r'exec: "/bin": is a directory')
        refused(b.run("/bin/garbage"), r"exec /bin/garbage: exec format error")
        refused(b.run("/bin/nointerp"), r"exec /bin/nointerp: no such file or directory")


def it_makes_a_missing_working_directory():
    with Bundle() as b:
        b.spec["process"]["cwd"] = "/not/there/yet"
        good(b.sh("pwd"), "/not/there/yet")
        same(os.stat(os.path.join(b.root, "not/there/yet")).st_uid, 0, "owner on disk")
        os.symlink("/var/real", os.path.join(b.root, "link"))
        b.spec["process"]["cwd"] = "/link/deeper"
        good(b.sh("pwd -P"), "/var/real/deeper")


def it_gives_a_terminal():
    with Bundle() as b:
        b.spec["process"].update(terminal=True, consoleSize={"height": 33, "width": 99})
        out = good(b.sh("tty; stty size; ls -l /dev/console; echo x > /dev/console; test -w /dev/tty && echo has-tty"))
        like(out, r"/dev/(pts/0|console)\n33 99\n")
        like(out, r"has-tty")
        like(out, "\nx\n")


def it_gives_the_terminal_to_the_user():
    with Bundle() as b:
        b.spec["process"].update(terminal=True, user={"uid": 1000, "gid": 1000})
        like(good(b.sh("stat -c %u:%g:%a /dev/pts/0")), "^1000:5:620")


def it_execs_into_all_namespaces_with_a_filter_of_its_own():
    with Bundle() as b:
        out = good(b.exec("cat /proc/1/cmdline | tr '\\0' ' '; grep ^Seccomp: /proc/self/status; for n in mnt pid net ipc uts user cgroup;"
                          " do test $(readlink /proc/1/ns/$n) = $(readlink /proc/self/ns/$n) && echo same $n; done"))
        same(out.split("\n")[0], "sleep 100 Seccomp:\t2")
        same(re.findall("same (.*)", out), ["mnt", "pid", "net", "ipc", "uts", "user", "cgroup"])


def it_execs_with_a_terminal_and_another_user():
    with Bundle() as b:
        process = dict(b.spec["process"], terminal=True, user={"uid": 1000, "gid": 1000}, args=["sh", "-c", "tty; id -u; stty size"],
                       consoleSize={"height": 10, "width": 20})
        like(good(b.exec(process)), r"/dev/pts/\d\n1000\n10 20")


def it_reports_a_failed_exec():
    with Bundle() as b:
        refused(b.exec(dict(b.spec["process"], args=["nowhere"])), r'exec: "nowhere": executable file not found in \$PATH')
        refused(b.exec(dict(b.spec["process"], cwd="/no/such")), r'chdir to cwd \("/no/such"\) set in config.json failed')


# ---- file systems ------------------------------------------------------------------------------------

def it_stores_the_ids_that_the_container_sees():
    with Bundle() as b:
        good(b.sh("touch /new; mkdir /dir; chown 1000:1001 /dir; ln -s x /link; stat -c %u:%g /new /dir /bin"), "0:0\n1000:1001\n0:0")
        st = os.stat(os.path.join(b.root, "dir"))
        same((st.st_uid, st.st_gid), (1000, 1001), "owner on disk")


def it_mounts_an_overlay_of_many_layers():
    with Bundle() as b:
        layers = []
        for i in range(40):
            layer = b.volume(f"{i}")
            open(os.path.join(layer, f"from-{i}"), "w").close()
            open(os.path.join(layer, "same"), "w").write(f"{i}\n")
            layers.append(layer)
        os.chown(os.path.join(layers[0], "same"), 1000, 1000)
        upper, work = b.volume("upper"), b.volume("work")
        lower = ":".join(layers + [b.root])
        good(b.sh("ls /from-* | wc -l; cat /same; stat -c %u /same; echo changed > /same; rm /from-3; cat /same",
                  options=["-o", f"lowerdir={lower},upperdir={upper},workdir={work}"]), "40\n0\n1000\nchanged")
        same(open(os.path.join(upper, "same")).read(), "changed\n")
        same(os.stat(os.path.join(upper, "same")).st_uid, 1000, "owner after copy-up")
        assert stat.S_ISCHR(os.lstat(os.path.join(upper, "from-3")).st_mode), "no whiteout"
        # the same layers again: the first mount is gone with its container
        good(b.sh("cat /same", options=["-o", f"lowerdir={lower},upperdir={upper},workdir={work}"]), "changed")


def it_takes_a_bind_mount_as_root():
    with Bundle() as b:
        b.spec["root"]["path"] = "elsewhere"
        good(b.sh("echo ok > /made; cat /made", options=["-b", b.root]), "ok")


def it_obeys_readonly_root():
    with Bundle() as b:
        b.spec["root"]["readonly"] = True
        b.bind(b.volume("vol"), "/new/place")
        like(b.sh("touch /x").err, "Read-only file system")
        good(b.sh("touch /new/place/x /run/y /dev/shm/z && echo ok"), "ok")


def it_mounts_volumes_files_and_subpaths():
    with Bundle() as b:
        vol, ro = b.volume("vol"), b.volume("ro")
        os.makedirs(os.path.join(vol, "sub/deep"))
        secret = os.path.join(ro, "secret")
        open(secret, "w").write("s3cret")
        os.chmod(secret, 0o400)
        fd = os.open(os.path.join(vol, "sub"), os.O_PATH)
        b.bind(vol, "/vol")
        b.bind(ro, "/ro", "ro")
        b.bind(secret, "/etc/a/file", "ro")
        b.bind(f"/proc/{os.getpid()}/fd/{fd}", "/subpath")
        out = good(b.sh("echo 1 > /vol/one; cat /ro/secret; cat /etc/a/file; echo; touch /ro/x 2>&1; ls /subpath; stat -c %u /etc/a/file"))
        os.close(fd)
        same(out.split("\n")[:-1], ["s3crets3cret", "touch: /ro/x: Read-only file system", "deep", "0"])
        same(open(os.path.join(vol, "one")).read(), "1\n")


def it_mounts_an_image_as_a_volume():
    with Bundle() as b:
        a, c, on, upper, work = (b.volume(x) for x in ("a", "c", "on", "upper", "work"))
        os.makedirs(os.path.join(a, "sub/deep"))
        open(os.path.join(a, "sub/one"), "w").write("top")
        os.makedirs(os.path.join(c, "sub"))
        open(os.path.join(c, "sub/one"), "w").write("bottom")
        open(os.path.join(c, "two"), "w").write("two")
        os.chown(os.path.join(c, "two"), 1000, 1000)
        os.chmod(os.path.join(c, "two"), 0o600)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={a}:{c},upperdir={upper},workdir={work}", on], check=True)
        try:
            open(os.path.join(on, "last"), "w").write("last")
            b.bind(on, "/image", "ro")
            b.bind(os.path.join(on, "sub"), "/part", "ro")
            b.bind(os.path.join(on, "two"), "/file", "ro")
            good(b.sh("cat /image/last /image/sub/one /image/two /part/one /file; echo; stat -c %u /image/two; ls /part; touch /image/x 2>&1 || true"),
                 "lasttoptwotoptwo\n1000\ndeep\none\ntouch: /image/x: Read-only file system")
            b.bind(on, "/writable")
            refused(b.run("true"), r"/writable.: volume .*\(overlay\) has no idmapped mounts")
        finally:
            subprocess.run(["umount", on], check=True)


def it_takes_the_submounts_of_a_volume_along():
    with Bundle() as b:
        vol = b.volume("vol")
        for d in ("tmp", "pseudo"):
            os.makedirs(os.path.join(vol, d))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", os.path.join(vol, "tmp")], check=True)
        try:
            open(os.path.join(vol, "tmp/inner"), "w").close()
            b.bind(vol, "/vol")
            b.bind(vol, "/rro", "rro")
            b.bind(vol, "/ro", "ro")
            b.spec["mounts"].append({"destination": "/flat", "type": "bind", "source": vol, "options": ["bind"]})
            script = "ls /vol/tmp /flat/tmp; touch /vol/tmp/made; touch /ro/tmp/x && echo inner stays writable; touch /rro/tmp/x 2>&1; stat -c %u /vol/tmp/inner"
            mapped = tuple(int(x) for x in os.uname().release.split(".")[:2]) >= (6, 3)  # tmpfs has idmapped mounts
            good(b.sh(script), "/flat/tmp:\n\n/vol/tmp:\ninner\ninner stays writable\ntouch: /rro/tmp/x: Read-only file system\n"
                 + ("0" if mapped else "65534"))
            # a mount that cannot be idmapped: a kernel interface is left out, the rest is there
            subprocess.run(["mount", "-t", "proc", "proc", os.path.join(vol, "pseudo")], check=True)
            try:
                good(b.sh("ls /vol/pseudo | wc -l; ls /vol/tmp/inner; touch /rro/tmp/y 2>&1; touch /vol/tmp/again && echo ok"),
                     "0\n/vol/tmp/inner\ntouch: /rro/tmp/y: Read-only file system\nok")
            finally:
                subprocess.run(["umount", os.path.join(vol, "pseudo")], check=True)
        finally:
            subprocess.run(["umount", os.path.join(vol, "tmp")], check=True)


def it_passes_later_mounts_of_the_host_on_only_when_asked():
    with Bundle() as b:
        vol = b.volume("vol")
        os.makedirs(os.path.join(vol, "later"))
        subprocess.run(["mount", "--bind", vol, vol], check=True)
        try:
            subprocess.run(["mount", "--make-shared", vol], check=True)
            b.bind(vol, "/private")
            b.bind(vol, "/slave", "rslave")
            b.spec["process"]["args"] = ["sh", "-c", "echo up; read x; ls /private/later /slave/later"]
            b.prepare()
            p = subprocess.Popen(b.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            same(p.stdout.readline(), "up\n")
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", os.path.join(vol, "later")], check=True)
            open(os.path.join(vol, "later/new"), "w").close()
            out, _ = p.communicate("go\n", timeout=20)
            same(out, "/private/later:\n\n/slave/later:\nnew\n")
        finally:
            subprocess.run(["umount", "-R", vol], check=True)


def it_sees_atomic_updates_of_a_config_map():
    with Bundle() as b:
        vol = b.volume("cm")

        def write(version):
            os.makedirs(os.path.join(vol, f"..{version}"))
            open(os.path.join(vol, f"..{version}", "key"), "w").write(version)
            os.symlink(f"..{version}", os.path.join(vol, "..tmp"))
            os.rename(os.path.join(vol, "..tmp"), os.path.join(vol, "..data"))
        write("v1")
        os.symlink("..data/key", os.path.join(vol, "key"))
        b.bind(vol, "/cm", "ro")
        b.spec["process"]["args"] = ["sh", "-c", "cat /cm/key; echo; read x; cat /cm/key; echo"]
        b.prepare()
        p = subprocess.Popen(b.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        same(p.stdout.readline(), "v1\n")
        write("v2")
        out, _ = p.communicate("go\n", timeout=20)
        same(out, "v2\n")


def it_stacks_two_entries_for_one_destination():
    with Bundle() as b:
        shm = b.volume("shm")
        open(os.path.join(shm, "mine"), "w").close()
        b.bind(shm, "/dev/shm", "rw")
        good(b.sh("ls /dev/shm"), "mine")


def it_mounts_a_read_only_tmpfs_after_what_lies_below_it():
    with Bundle() as b:
        b.spec["mounts"].append({"destination": "/t", "type": "tmpfs", "source": "tmpfs", "options": ["ro", "mode=0700", "uid=5", "gid=6"]})
        b.bind(b.volume("vol"), "/t/vol")
        good(b.sh("touch /t/vol/x && stat -c %u:%g:%a /t; touch /t/x 2>/dev/null || echo ro"), "5:6:700\nro")


def it_refuses_what_a_sandbox_does_not_have():
    share = Bundle()
    with share:
        vol = share.volume("vol")
        refusals(vol)


def refusals(vol):
    for change, pattern in [
            (lambda s: s["mounts"].append({"destination": "/x", "type": "nfs", "source": "a:/b"}), r'mounts\[7\] \(/x\): .*type "nfs"'),
            (lambda s: s["mounts"].append({"destination": "/x", "type": "bind", "source": "/dev/null", "options": ["bind"]}), "/dev/null is a device"),
            (lambda s: s["mounts"].append({"destination": "/x", "type": "bind", "source": "/proc", "options": ["bind"]}),
             r"volume /proc \(proc\) has no idmapped mounts"),
            (lambda s: s["mounts"].append({"destination": "/x", "type": "bind", "source": "/dev", "options": ["bind"]}),
             r"volume /dev \(devtmpfs\) has no idmapped mounts"),
            (lambda s: s["mounts"].append({"destination": "/dev", "type": "bind", "source": "/dev", "options": ["rbind"]}), "/dev of a sandbox cannot be"),
            (lambda s: s["mounts"].append({"destination": "/x", "type": "bind", "source": vol, "options": ["rbind", "rshared"]}),
             "Bidirectional mount propagation is impossible"),
            (lambda s: s["mounts"].append({"destination": "/x", "type": "bind", "source": "/no/such", "options": ["rbind"]}),
             "volume /no/such: No such file or directory"),
            (lambda s: s["mounts"].append({"destination": "/bin/sh/x", "type": "bind", "source": vol, "options": ["rbind"]}), "Not a directory"),
            (lambda s: s["linux"].update(seccomp={"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/x"}), "listenerPath conflicts"),
            (lambda s: s["process"].update(apparmorProfile="gb-none"), 'process.apparmorProfile "gb-none"'),
            (lambda s: s["linux"].update(devices=[{"path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11}]), "linux.devices: /dev/kmsg"),
            (lambda s: s["process"]["user"].update(uid=70000), r"id 70000 is outside the pod's range 0-65535"),
            (lambda s: s["process"]["rlimits"].append({"type": "RLIMIT_RTPRIO", "soft": 99, "hard": 99}), "cannot raise RLIMIT_RTPRIO from 0 to 99"),
    ]:
        with Bundle() as b:
            change(b.spec)
            r = b.run("true")
            if "RTPRIO" in pattern and r.code == 0:
                continue  # this machine's root may raise limits
            refused(r, pattern)


def it_makes_devices_of_its_own():
    with Bundle() as b:
        out = good(b.sh("cd /dev; ls -1; stat -c '%n %t:%T %a' null zero full random urandom tty; head -c 4 zero | wc -c; echo x > null;"
                        " readlink ptmx; readlink fd; readlink stdin; head -c 2 urandom | wc -c"))
        same(out.split("\n")[:14], ["fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty",
                                    "urandom", "zero"])
        like(out, "null 1:3 666\nzero 1:5 666\nfull 1:7 666\nrandom 1:8 666\nurandom 1:9 666\ntty 5:0 666\n4\npts/ptmx\n/proc/self/fd\n/proc/self/fd/0\n2")


def it_shows_the_limits_in_proc_and_sys():
    with Bundle() as b:
        b.spec["linux"]["resources"] = {"memory": {"limit": 100 << 20}, "cpu": {"quota": 100000, "period": 100000}}
        out = good(b.sh("grep MemTotal /proc/meminfo; grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online;"
                        " grep -c ^cpu /proc/stat; cat /proc/loadavg; cat /proc/swaps | wc -l; ls /sys/fs/cgroup | wc -l; free | head -2 | tail -1",
                        options=["-c", f"/gb-launch-test/{os.getpid()}"]))
        lines = out.split("\n")
        same(lines[0].split(), ["MemTotal:", "102400", "kB"])
        same(lines[1:6], ["1", "0", "2", "0.00 0.00 0.00 1/1 1", "1"])
        assert int(lines[6]) > 0, "no cgroup is shown"


def it_joins_the_cgroup_and_shows_it_read_only_as_the_root():
    with Bundle() as b:
        b.spec["linux"]["resources"] = {"pids": {"limit": 77}}
        out = good(b.sh("cat /proc/self/cgroup; cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null;"
                        " find /sys/fs/cgroup -name '*.procs' | while read f; do echo 1 > $f && echo WRITABLE; done 2>&1 | sort | uniq -c",
                        options=["-c", f"/gb-launch-test/{os.getpid()}"]))
        unlike(out, "gb-launch-test|WRITABLE")
        like(out, r"\n77\n")
        for line in out.split("\n"):
            if re.match(r"\d+:(pids|memory)", line) or line.startswith("0::"):
                like(line, ":/$")


# ---- hooks, sysctls, seccomp -------------------------------------------------------------------------

def it_runs_hooks_with_the_state_on_stdin():
    with Bundle() as b:
        log = os.path.join(b.dir, "log")
        hook = {"path": "/bin/sh", "args": ["sh", "-c", f"cat >> {log}; echo \" $X\" >> {log}"], "env": ["X=y", "PATH=/bin"]}
        b.spec["hooks"] = {"prestart": [hook], "createRuntime": [hook], "createContainer": [hook]}
        b.spec["annotations"] = {"a": "b"}
        good(b.run("true"))
        states = [json.loads(line.rsplit(" ", 1)[0]) for line in open(log).read().strip().split("\n")]
        same(len(states), 3)
        for s in states:
            same((s["id"], s["bundle"], s["status"], s["annotations"], s["pid"] > 0), ("driver", b.dir, "creating", {"a": "b"}, True))


def it_runs_a_start_container_hook_inside():
    with Bundle() as b:
        b.spec["hooks"] = {"startContainer": [{"path": "/bin/sh", "args": ["sh", "-c", "cat > /state; grep ^Seccomp: /proc/self/status >> /state"]}]}
        like(good(b.sh("cat /state")), r'"status":"created".*\n?Seccomp:\t2')


def it_fails_with_the_words_of_a_failed_hook():
    with Bundle() as b:
        b.spec["hooks"] = {"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", "echo broken disk; exit 3"]}]}
        refused(b.run("true"), "createRuntime hook #0 /bin/sh: exit status 3: broken disk")
        b.spec["hooks"] = {"createRuntime": [{"path": "/bin/sleep", "args": ["sleep", "100"], "timeout": 1}]}
        refused(b.run("true"), "createRuntime hook #0 /bin/sleep: timed out after 1 s")


def it_applies_sysctls_to_the_pod():
    with Bundle() as b:
        b.spec["linux"]["sysctl"] = {"kernel.shmmax": "123456", "net.ipv4.ip_default_ttl": "77", "kernel.msgmax": "9999"}
        good(b.sh("cat /proc/sys/kernel/shmmax /proc/sys/net/ipv4/ip_default_ttl /proc/sys/kernel/msgmax"), "123456\n77\n9999")
        assert open("/proc/sys/kernel/shmmax").read() != "123456\n", "it was written on the host"


def it_sets_the_host_name_of_the_pod_alone():
    with Bundle() as b:
        b.spec["domainname"] = "inside"
        good(b.sh("hostname; cat /proc/sys/kernel/domainname"), "box\ninside")
        assert os.uname().nodename != "box"


def it_applies_the_profile_of_the_spec_on_top():
    with Bundle() as b:
        b.spec["linux"]["seccomp"] = {
            "defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [{"names": ["mkdir", "mkdirat", "no_such_call"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28},
                         {"names": ["chmod", "fchmodat"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 1, "value": 0o700, "op": "SCMP_CMP_EQ"}]}]}
        for nnp in (True, False):
            b.spec["process"]["noNewPrivileges"] = nnp
            out = good(b.sh("mkdir /x 2>&1; touch /y; chmod 700 /y 2>&1; chmod 755 /y && stat -c %a /y"))
            like(out, "No space left on device\n")
            like(out, "Operation not permitted\n755")


def it_needs_no_call_of_the_launcher_in_a_narrow_profile():
    with Bundle() as b:
        names = """read write close brk mmap munmap mprotect exit_group execve arch_prctl set_tid_address set_robust_list rseq prlimit64
            readlink readlinkat getrandom ioctl fstat newfstatat writev getuid geteuid getgid getegid rt_sigaction rt_sigprocmask capset
            prctl uname futex sysinfo""".split()
        b.spec["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}]}
        good(b.run("echo", "ran"), "ran")


# ---- the barrier -------------------------------------------------------------------------------------

def it_locks_read_only_volumes_masks_and_proc_against_root_with_all_capabilities():
    with Bundle() as b:
        all_caps(b.spec)
        b.bind(b.volume("ro"), "/ro", "ro")
        out = b.sh("""
            mkdir -p /m /p
            mount -o remount,bind,rw /ro && echo BAD remount
            mount -o bind /ro /m && mount -o remount,bind,rw /m && echo BAD remount of a bind
            umount /m; umount /ro && echo BAD umount volume
            umount /proc/kcore && echo BAD umount mask
            umount /proc/meminfo && echo BAD umount view
            umount /proc/sys && echo BAD umount proc sys
            umount /proc && echo BAD umount proc
            umount /sys && echo BAD umount sys
            mount -o remount,bind,rw /sys && echo BAD remount sys
            mount -o remount,bind,rw /proc/sys && echo BAD remount proc sys
            mount -o remount,bind,dev /  && echo BAD remount dev
            mount -t proc proc /p && echo BAD new proc
            mount -t sysfs sysfs /p && echo BAD new sysfs
            mount -t devtmpfs dev /p && echo BAD devtmpfs
            mount -t tmpfs tmpfs /p && echo the user namespace is ours
            true""", options=OPEN)
        good(out)
        unlike(out.out, "BAD")
        like(out.out, "the user namespace is ours")  # the probe had its capabilities


def it_shows_no_second_proc_to_root_with_all_capabilities():
    for hooks in ({}, {"createContainer": [{"path": "/bin/true"}]}):
        with Bundle() as b:
            all_caps(b.spec)
            b.spec["hooks"] = hooks
            out = good(b.sh("mkdir -p /p; mount -t proc proc /p 2>/dev/null && echo BAD; true", options=OPEN))
            unlike(out, "BAD")


def it_opens_no_device_node_of_an_image_or_volume():
    with Bundle() as b:
        all_caps(b.spec)
        vol = b.volume("vol")
        for place in (b.root, vol):
            os.mknod(os.path.join(place, "evil"), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        b.bind(vol, "/vol")
        out = good(b.sh("""
            echo x > /evil && echo BAD image; echo x > /vol/evil && echo BAD volume
            mknod /dev/mine c 1 3 && echo BAD mknod dev; mknod /mine c 1 3 && echo BAD mknod
            mknod /run/mine c 1 3 && echo BAD mknod run; mkfifo /run/fifo && echo fifo""", options=OPEN))
        same(out, "fifo\n")


def it_leaks_no_descriptor_and_no_directory_of_the_host():
    extra = os.open("/", os.O_RDONLY)
    os.set_inheritable(extra, True)
    with Bundle() as b:
        b.spec["process"]["args"] = ["sh", "-c", "ls /proc/self/fd; readlink /proc/self/cwd; readlink /proc/self/root"]
        b.prepare()
        p = subprocess.run(b.command(OPEN), capture_output=True, text=True, close_fds=False, stdin=subprocess.DEVNULL, timeout=20)
        same(p.stdout.split(), ["0", "1", "2", "3", "/", "/"])  # 3 is ls reading the directory
    os.close(extra)


def it_stays_inside_with_links_in_the_image():
    with Bundle() as b:
        os.symlink("/../../../../../etc", os.path.join(b.root, "up"))
        os.symlink("up", os.path.join(b.root, "up2"))
        os.symlink("../../../../../..", os.path.join(b.root, "rel"))
        b.bind(b.volume("vol"), "/up2/evil/x")
        b.bind(b.volume("vol2"), "/rel/evil2")
        open(os.path.join(b.dir, "vol/mark"), "w").close()
        good(b.sh("ls /etc/evil/x; ls -d /evil2"), "mark\n/evil2")
        assert not os.path.exists("/etc/evil") and not os.path.exists("/evil2"), "it was made on the host"


def it_mounts_proc_and_dev_on_ordinary_directories_only():
    for name in ("proc", "dev", "sys"):
        with Bundle() as b:
            os.makedirs(os.path.join(b.root, "elsewhere"))
            os.symlink("elsewhere", os.path.join(b.root, name))
            refused(b.run("true"), f"/{name} must be an ordinary directory")


def it_puts_no_volume_into_proc_by_a_link():
    with Bundle() as b:
        os.symlink("/proc/1", os.path.join(b.root, "link"))
        b.bind(b.volume("vol"), "/link/map_files")
        open(os.path.join(b.dir, "vol/mark"), "w").close()
        out = good(b.sh("ls /proc/1/map_files | grep -c mark; ls /link/map_files | grep -c mark; true"))
        same(out, "0\n0\n")


def it_refuses_a_working_directory_outside():
    with Bundle() as b:
        b.spec["process"]["cwd"] = "/proc/self/fd/7"
        refused(b.run("true"), "process.cwd|chdir")


def it_refuses_namespaces_of_others():
    with Bundle() as b:
        for kind, path in (("ipc", "/proc/1/ns/ipc"), ("pid", "/proc/1/ns/pid"), ("uts", "/proc/1/ns/uts"), ("mount", "/proc/1/ns/mnt")):
            b.spec["linux"]["namespaces"] = [dict({"type": t}, **({"path": path} if t == kind else {}))
                                             for t in ("pid", "ipc", "uts", "mount", "network")]
            refused(b.run("true"), f"linux.namespaces: .*{kind}")


def it_takes_the_id_range_that_the_configuration_brings():
    with Bundle() as b:
        b.spec["linux"]["namespaces"].append({"type": "user"})
        for kind in ("uidMappings", "gidMappings"):
            b.spec["linux"][kind] = [{"containerID": 0, "hostID": 1000000, "size": 65536}]
        vol, mapped, upper, work = (b.volume(x) for x in ("vol", "mapped", "upper", "work"))
        for d in (b.root, vol, upper):
            os.chown(d, 1000000, 1000000)
        b.bind(vol, "/vol")
        b.bind(mapped, "/mapped", "idmap")
        script = ("tr -s ' ' < /proc/self/uid_map; touch /made /vol/made /mapped/made && chown 5 /made /vol/made /mapped/made;"
                  " stat -c %u /made /vol/made /mapped/made /bin")
        # as runc has it: what is on disk is shifted already, unless a mount says that it is not
        good(b.sh(script), "0 1000000 65536\n5\n5\n5\n65534")
        same([os.stat(os.path.join(d, "made")).st_uid for d in (b.root, vol, mapped)], [1000005, 1000005, 5], "owners on disk")
        # containerd's overlay: layers as they are, the upper one shifted
        os.unlink(os.path.join(b.root, "made"))
        os.chown(b.root, 0, 0)
        good(b.sh(script, options=["-o", f"lowerdir={b.root},upperdir={upper},workdir={work},uidmap=0:1000000:65536,gidmap=0:1000000:65536"]),
             "0 1000000 65536\n5\n5\n5\n0")
        same(os.stat(os.path.join(upper, "made")).st_uid, 1000005, "owner in the upper layer")
        for mapping in ([{"containerID": 0, "hostID": 0, "size": 65536}], [{"containerID": 0, "hostID": 1000000, "size": 1000}],
                        [{"containerID": 1, "hostID": 1000000, "size": 65536}]):
            b.spec["linux"]["uidMappings"] = b.spec["linux"]["gidMappings"] = mapping
            r = b.run("true")
            same(r.code, 125, r)
            like(r.err, "linux.uidMappings")


def it_enters_a_user_namespace_that_was_made_for_the_pod():
    with Bundle() as b:
        holder = subprocess.Popen(["unshare", "--user", "sleep", "100"])
        try:
            path = f"/proc/{holder.pid}/ns/user"
            end = time.time() + 5
            while os.readlink(path) == os.readlink("/proc/self/ns/user") and time.time() < end:
                time.sleep(0.01)
            for kind in ("uid", "gid"):
                with open(f"/proc/{holder.pid}/{kind}_map", "w") as f:
                    f.write("0 2000000 65536\n")
                b.spec["linux"][kind + "Mappings"] = [{"containerID": 0, "hostID": 2000000, "size": 65536}]
            b.spec["linux"]["namespaces"].append({"type": "user", "path": path})
            os.chown(b.root, 2000000, 2000000)
            out = good(b.sh("readlink /proc/self/ns/user; id -u; touch /made; chown 5 /made; hostname; echo > /dev/null && echo ok"))
            same(out, os.readlink(path) + "\n0\nbox\nok\n")
            same(os.stat(os.path.join(b.root, "made")).st_uid, 2000005, "owner on disk")
            b.spec["linux"]["uidMappings"] = b.spec["linux"]["gidMappings"] = [{"containerID": 0, "hostID": 3000000, "size": 65536}]
            like(b.run("true").err, "uid_map of the given user namespace is not that of linux.uidMappings")
        finally:
            holder.kill()
            holder.wait()


def it_hides_the_waiting_process_from_the_container():
    """What an exec process holds before it executes must be out of reach of the container's root."""
    with Bundle() as b:
        all_caps(b.spec)
        # The init looks for a process of the launcher's name while the driver lets it wait before its exec.
        watch = ("while :; do for p in /proc/[0-9]*; do n=${p#/proc/}; [ $n -gt 1 ] || continue; "
                 "w() { grep -q Name:.*glovebox $p/status 2>/dev/null; }; w || continue; echo seen; "
                 "ls $p/fd >/dev/null 2>&1 && w && echo BAD fd; cat $p/environ >/dev/null 2>&1 && w && echo BAD environ; "
                 "{ readlink $p/exe || readlink $p/cwd || readlink $p/root; } >/dev/null 2>&1 && w && echo BAD links; "
                 "head -c 0 $p/mem 2>/dev/null && w && echo BAD mem; done; done")
        seen = b.exec(dict(b.spec["process"], args=["sleep", "0.1"]), "sh", "-c", watch, options=OPEN + ["-w", "300"])
        like(seen.out, "seen")
        unlike(seen.out, "BAD")


def it_leaves_nothing_behind():
    before = {f for f in os.listdir("/proc") if f.isdigit()}
    mounts = open("/proc/self/mountinfo").read()
    with Bundle() as b:
        good(b.run("true"))
        b.run("nowhere")
        b.bind("/no/such", "/x")
        b.run("true")
        same(os.listdir(b.state), [], "state directory")
    same(open("/proc/self/mountinfo").read(), mounts, "mounts")
    time.sleep(0.1)
    for pid in {f for f in os.listdir("/proc") if f.isdigit()} - before:
        try:
            unlike(open(f"/proc/{pid}/comm").read(), "launch-driver|glovebox-launch")
        except FileNotFoundError:
            pass


def it_dies_with_the_shim():
    with Bundle() as b:
        hook = os.path.join(b.dir, "in-hook")
        b.spec["hooks"] = {"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", f"touch {hook}; exec sleep 54321"]}]}
        b.spec["process"]["args"] = ["sleep", "100"]
        b.prepare()
        p = subprocess.Popen(b.command(), stdin=subprocess.DEVNULL)
        end = time.time() + 10
        while not os.path.exists(hook) and time.time() < end:
            time.sleep(0.01)
        pids = descendants(p.pid)
        assert len(pids) >= 3, pids  # launcher, builder, init, hook
        p.kill()
        p.wait()
        end = time.time() + 5
        while time.time() < end and any(os.path.exists(f"/proc/{q}") for q in pids):
            time.sleep(0.02)
        same([q for q in pids if os.path.exists(f"/proc/{q}")], [], "processes left")
        # and the range is found again: the lock is gone, nobody lives in it
        same(len(os.listdir(os.path.join(b.state, "ids"))), 2)


def it_survives_the_death_of_any_helper_at_any_time():
    ends = set()
    with Bundle() as b:
        b.spec["process"]["args"] = ["true"]
        b.prepare()
        start = time.monotonic()
        good(b.run())
        whole = time.monotonic() - start
        rounds = 150 if whole < 0.2 else 40
        for i in range(rounds):
            p = subprocess.Popen(b.command(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            # The driver first makes the pod; then there are a launcher, a builder, a joiner and an init.
            end = time.monotonic() + whole * (i % 75) / min(75, rounds)
            while time.monotonic() < end:
                pass
            victims = children(p.pid)
            if victims:
                try:
                    os.kill(int(victims[i % len(victims)]), 9)
                except ProcessLookupError:
                    pass  # it has ended meanwhile
            try:
                _, err = p.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                p.kill()
                raise AssertionError(f"round {i}: hangs after {victims}") from None
            assert p.returncode in (0, 125, 137), (i, p.returncode, err)
            ends.add(err.strip() or p.returncode)
            same(os.listdir(b.state), [], f"state directory in round {i}, {err}")
    assert len(ends) > 1, f"no kill had an effect: {ends}"


def children(pid):
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            direct = f.read().split()
    except OSError:
        return found
    for child in direct:
        found += [child] + children(child)
    return found


def descendants(pid):
    found = []
    for child in subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split():
        found += [child] + descendants(child)
    return found


def main():
    if os.geteuid() != 0:
        print("skip everything: must be root")
        return 77
    if "LAUNCH_DRIVER" not in os.environ:
        subprocess.run(["make", "-s", "-C", TOP, f"O=build/{os.environ.get('PROFILE', 'debug')}", "launch-driver"], check=True)
    assert os.path.exists(DRIVER), DRIVER
    only = os.environ.get("CASES", "")
    failed = 0
    for name, fn in list(globals().items()):
        if not name.startswith("it_"):
            continue
        sentence = name[3:].replace("_", " ")
        if only not in sentence:
            continue
        try:
            fn()
            print("ok", sentence, flush=True)
        except Exception as e:  # a case that breaks is a failed case
            failed = 1
            print(f"FAIL {sentence}: {type(e).__name__}: {str(e)[:1500]}", flush=True)
    for leftover in glob.glob("/sys/fs/cgroup/*/gb-launch-test") + glob.glob("/sys/fs/cgroup/gb-launch-test"):
        try:
            os.rmdir(leftover)
        except OSError:
            pass
    return failed


sys.exit(main())
