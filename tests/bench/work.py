#!/usr/bin/python3
"""work.py setup | NAME...: one kind of agent work each, inside a container; prints `NAME SECONDS` of the timed part.

Nothing leaves the container: servers are on its loopback. What a kind needs is made by its untimed part or by `setup`.
"""
import functools
import http.server
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

ROOT = os.environ.get("WORK_DIR", "/work")
TREE = os.path.join(ROOT, "tree")
REPO = os.path.join(ROOT, "repo")
KINDS = {}


def sh(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)


def kind(function):
    KINDS[function.__name__.replace("_", "-")] = function
    return function


def timed(function, *args):
    began = time.perf_counter()
    function(*args)
    return time.perf_counter() - began


def setup():
    """A source tree of 2,000 files in 100 folders, and a git repository of it."""
    shutil.rmtree(TREE, ignore_errors=True)
    shutil.rmtree(REPO, ignore_errors=True)
    for d in range(100):
        folder = os.path.join(TREE, f"part{d % 10}", f"module{d}")
        os.makedirs(folder)
        for f in range(20):
            with open(os.path.join(folder, f"file{f}.py"), "w", encoding="ascii") as out:
                out.writelines(f"def function_{d}_{f}_{n}(x):\n    return x * {n} + {f}  # {'needle' if n == f == 7 else 'hay'}\n" for n in range(40))
    shutil.copytree(TREE, REPO)
    git = ["git", "-C", REPO, "-c", "user.name=a", "-c", "user.email=a@example.com"]
    sh(*git, "init", "-q")
    sh(*git, "add", ".")
    sh(*git, "commit", "-q", "-m", "all")


def scratch():
    return tempfile.mkdtemp(dir=ROOT)


@kind
def rm_tree():
    copy = os.path.join(scratch(), "tree")
    shutil.copytree(TREE, copy)
    return timed(sh, "rm", "-rf", copy)


@kind
def git_clone():
    return timed(sh, "git", "clone", "-q", "--no-local", "file://" + REPO, os.path.join(scratch(), "clone"))


@kind
def git_status():
    def work():
        for _ in range(10):
            sh("git", "-C", REPO, "status", "--porcelain", "--untracked-files=all")
    return timed(work)


@kind
def forks():
    def work():
        for _ in range(300):
            subprocess.run(["/bin/true"], check=True)
    return timed(work)


@kind
def tar():
    to = scratch()

    def work():
        sh("tar", "-C", ROOT, "-cf", to + "/a.tar", "tree")
        sh("tar", "-C", to, "-xf", to + "/a.tar")
    return timed(work)


@kind
def gcc():
    folder = scratch()
    for n in range(6):
        with open(f"{folder}/f{n}.c", "w", encoding="ascii") as out:
            out.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
            out.writelines(f"int f{n}_{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k}; return x; }}\n" for k in range(150))
            if n == 0:
                out.write("int main(void) { puts(\"hi\"); return 0; }\n")

    def work():
        for n in range(6):
            sh("gcc", "-O2", "-c", f"{folder}/f{n}.c", "-o", f"{folder}/f{n}.o")
        sh("gcc", "-o", f"{folder}/program", *(f"{folder}/f{n}.o" for n in range(6)))
        sh(f"{folder}/program")
    return timed(work)


@kind
def python_start():
    def work():
        for _ in range(10):
            sh("/usr/bin/python3", "-c", "import json, re, http.client, argparse, subprocess")
    return timed(work)


@kind
def tcp_500():
    server = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.sendall(peer.recv(100))

    def work():
        for _ in range(500):
            with socket.create_connection(server.getsockname()) as s:
                s.sendall(b"hello")
                assert s.recv(100) == b"hello"
    threading.Thread(target=serve, daemon=True).start()
    took = timed(work)
    server.shutdown(socket.SHUT_RDWR)
    return took


@kind
def numpy():
    code = ("import numpy as n; r = n.random.default_rng(1); a = r.random((500, 500)); "
            "[a @ a for _ in range(8)]; n.linalg.svd(a[:250, :250]); n.sort(r.random(2000000))")
    return timed(functools.partial(sh, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}), "/usr/bin/python3", "-c", code)


@kind
def cpu():
    def work():
        x = 0
        for i in range(6000000):
            x = (x * 31 + i) & 0xffffffff
    return timed(work)


def wheel(folder):
    """A package of 200 modules, as a wheel; pip asks no network for it."""
    name = "example_package-1.0"
    with zipfile.ZipFile(f"{folder}/{name}-py3-none-any.whl", "w") as z:
        for n in range(200):
            z.writestr(f"example_package/m{n}.py", f"def f():\n    return {n}\n" * 20)
        z.writestr("example_package/__init__.py", "")
        z.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: example-package\nVersion: 1.0\n")
        z.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: work\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{name}.dist-info/RECORD", "")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@kind
def pip_install():
    folder = scratch()
    os.makedirs(folder + "/index/example-package")
    wheel(folder + "/index/example-package")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder + "/index"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    took = timed(sh, "/usr/bin/python3", "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check", "--root-user-action=ignore",
                 "--index-url", f"http://127.0.0.1:{server.server_port}", "--target", folder + "/site", "example-package")
    server.shutdown()
    return took


@kind
def node():
    code = ("const fs = require('fs'), os = require('os'), p = fs.mkdtempSync('%s/n'); let t = 0;"
            "for (let i = 0; i < 300; i++) { fs.writeFileSync(p + '/' + i, 'x'.repeat(1000)); t += fs.readFileSync(p + '/' + i).length }"
            "const a = []; for (let i = 0; i < 200000; i++) a.push({i, s: 'v' + i}); JSON.parse(JSON.stringify(a));" % ROOT)

    def work():
        for _ in range(3):
            sh("node", "-e", code)
    return timed(work)


@kind
def find_grep():
    def work():
        for _ in range(3):
            sh("find", TREE, "-name", "*.py", "-size", "+1k")
            sh("grep", "-rn", "needle", TREE)
    return timed(work)


@kind
def sqlite():
    path = scratch() + "/db"

    def work():
        db = sqlite3.connect(path)
        db.execute("create table t (a integer primary key, b text, c real)")
        for n in range(60):  # each a transaction of its own, with its fsyncs
            with db:
                db.executemany("insert into t (b, c) values (?, ?)", ((f"row {n} {i}", i / 7) for i in range(200)))
        db.execute("create index i on t (b)")
        db.execute("select c, count(*), group_concat(b) from t group by round(c) order by 2").fetchall()
        db.close()
    return timed(work)


def main():
    names = sys.argv[1:]
    if names == ["list"]:
        print(*KINDS, sep="\n")
    elif names == ["setup"]:
        setup()
    else:
        for name in names:
            before = set(os.listdir(ROOT))
            print(name, f"{KINDS[name]():.4f}", flush=True)
            for left in set(os.listdir(ROOT)) - before:
                shutil.rmtree(os.path.join(ROOT, left), ignore_errors=True)


main()
