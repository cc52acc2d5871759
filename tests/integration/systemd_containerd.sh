#!/bin/bash
# systemd_containerd.sh SHIM IMAGE.tar: inside of systemd_guest.sh, containers through containerd whose groups are scopes of systemd.
exec 2>&1
D=/run/case ROOT=/var/lib/glovebox-test/case SLICE=/sys/fs/cgroup/gbx.slice/gbx-pod1.slice
mkdir -p $D/bin
cp "$1" $D/bin/containerd-shim-glovebox-v1
export PATH=$D/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
cat > $D/containerd.toml <<K
version = 2
root = '$ROOT'
state = '$D/state'
disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.internal.v1.opt']
[grpc]
  address = '$D/sock'
K
containerd -c $D/containerd.toml -l warn > $D/log 2>&1 &
engine() { ctr -a $D/sock -n t "$@"; }
run() { local name=$1; shift; engine run --runtime io.containerd.glovebox.v1 --cgroup "gbx-pod1.slice:cri-containerd:$name" "$@"; }
soon() { local i; for ((i = 0; i < 100; i++)); do "$@" >/dev/null 2>&1 && return 0; sleep .2; done; return 1; }
inactive() { ! systemctl -q is-active "cri-containerd-$1.scope"; }
no_groups() { ! ls -d $SLICE/*/; }
file() { cat "$SLICE/cri-containerd-$1.scope/$2"; }
same() { [ "$1" = "$2" ] || { WHY="$3 is \"$1\", expected \"$2\""; return 1; }; }
case_() { local name=$1; shift; WHY=; if "$@"; then echo "ok $name"; else echo "FAIL $name: ${WHY:-see above}"; FAILED=1; fi; }
FAILED=0

soon engine version && engine images import "$2" >/dev/null || { cat $D/log; exit 1; }
IMAGE=localhost/busybox:1

a_scope() {
	run x -d --memory-limit 67108864 --cpus 0.25 $IMAGE x sleep 1000 && systemctl -q is-active cri-containerd-x.scope &&
		soon same "$(file x cgroup.procs)" "$(engine tasks ls | awk '$1 == "x" {print $2}')" 'the processes of the scope' &&
		systemctl daemon-reload && same "$(file x memory.max)" 67108864 'the memory limit' && same "$(file x cpu.max)" '25000 100000' 'the CPU limit' &&
		same "$(engine tasks exec --exec-id e x cat /proc/self/cgroup)" 0::/ 'the group seen inside'
}
the_end() {
	engine tasks kill -s 9 x && soon eval 'engine tasks ls | grep -q STOPPED' && { engine tasks rm x; engine containers rm x; } &&
		soon inactive x && soon no_groups && same "$(systemctl list-units --all --no-legend --plain 'cri-*')" '' 'the list of units'
}
a_failure() { ! run z --rm $IMAGE z nowhere && soon inactive z && soon no_groups; }
a_killed_shim() {
	run k -d $IMAGE k sleep 1000 && kill -9 "$(pgrep -o -f 'containerd-shim-glovebox-v1 .*-id k')" && soon inactive k && soon no_groups &&
		soon eval '! pgrep -x containerd-shim' && engine containers rm k
}
case_ 'a container lives in a scope and keeps its limits over a daemon-reload' a_scope
case_ 'the scope goes with the container' the_end
case_ 'a container that cannot start leaves no scope' a_failure
case_ 'a killed shim leaves no scope' a_killed_shim
exit $FAILED
