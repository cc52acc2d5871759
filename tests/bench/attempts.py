#!/usr/bin/python3
"""Things that untrusted code may try, one a line: `WHAT|what came of it`.  Harmless where they succeed: each only asks."""
import ctypes
import os
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)
SYS = {"bpf": 321, "io_uring_setup": 425, "userfaultfd": 323, "perf_event_open": 298, "keyctl": 250, "init_module": 175, "mount": 165,
       "unshare": 272, "kexec_load": 246, "process_vm_readv": 310, "open_by_handle_at": 304, "clone3": 435}


def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(SYS[name], *args)
    return "works" if result >= 0 else os.strerror(ctypes.get_errno())


def attempt(function):
    try:
        return function() or "works"
    except OSError as e:
        return os.strerror(e.errno) if e.errno else str(e)


def read(path, size=64):
    with open(path, "rb") as f:
        return "works" if f.read(size) else "empty"


def connect(address, port):
    with socket.socket() as s:
        s.settimeout(3)
        s.connect((address, port))


def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close()


def host_memory():
    with open("/proc/meminfo", encoding="ascii") as f:
        return f"{int(f.readline().split()[1]) // 1048576} GiB"


def compat():
    """A 32-bit system call by int 0x80, in a child, because it may be killed for it."""
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # getpid of the i386 table
    pid = os.fork()
    if pid == 0:
        import mmap
        m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        m.write(code)
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return "killed by " + str(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else "works"


ATTEMPTS = {
    "see the host's kernel log": lambda: read("/dev/kmsg"),
    "read the host's kernel symbols": lambda: read("/proc/kallsyms"),
    "read physical memory through /proc/kcore": lambda: read("/proc/kcore"),
    "memory that /proc/meminfo shows (limit 2 GiB)": host_memory,
    "processors that os.cpu_count() shows (limit 2)": lambda: str(os.cpu_count()),
    "load a BPF program": lambda: call("bpf", 5, 0, 0),
    "set up io_uring": lambda: call("io_uring_setup", 4, ctypes.create_string_buffer(120)),
    "open a userfaultfd": lambda: call("userfaultfd", 1),
    "open a performance counter": lambda: call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "ask for the session keyring": lambda: call("keyctl", 0, -3, 0),
    "load a kernel module": lambda: call("init_module", 0, 0, b""),
    "make a user namespace": lambda: call("unshare", 0x10000000),
    "mount a tmpfs": lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, 0),
    "open a file by handle": lambda: call("open_by_handle_at", -100, struct.pack("Ii8s", 8, 1, b"\0" * 8), 0),
    "open a packet socket": packet,
    "connect to the cloud's metadata address": lambda: connect("169.254.169.254", 80),
    "make a system call of the 32-bit table": compat,
    "write to the host through /sys/fs/cgroup": lambda: os.mkdir("/sys/fs/cgroup/memory/escape") if os.path.isdir("/sys/fs/cgroup/memory") else os.mkdir("/sys/fs/cgroup/escape"),
}
for what, function in ATTEMPTS.items():
    print(f"{what}|{attempt(function)}", flush=True)
