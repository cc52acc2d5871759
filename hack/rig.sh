#!/bin/bash
# rig.sh [-c 1.6|2.4] [-r RUNTIME] [-k] COMMAND...
# Runs COMMAND beside a private containerd that knows the shim, cleans up, and fails when something was left behind.
#   -c  containerd: 2.4 (the cache's, default) or 1.6 (the distribution's)
#   -r  glovebox (default), runc or runsc: what $RIG_RUNTIME means
#   -k  keep the folder with logs and print its name
# Exit status: the command's; 99 when the command succeeded but something was left behind; 98 when containerd did not start.
#
# Network, IPC, mount and PID namespaces are the rig's own, and so is /run: rigs do not see each other, default paths are free, and
# what a run leaves is visible as such.  The cgroup mounts are the host's; the rig's containers are below /$RIG_NS, its pods below /k8s.io.
# The command finds (all exported):
#   RIG_DIR       scratch folder; containerd's log is $RIG_DIR/containerd.log
#   RIG_CONTAINERD  1.6 or 2.4         RIG_SOCK  containerd's socket      RIG_NS  the containerd namespace that ctr uses
#   RIG_RUNTIME   for `ctr run --runtime`    RIG_HANDLER  for `crictl runp -r`    RIG_IMAGE  localhost/busybox:1, imported and unpacked
#   ctr, crictl   on PATH, already set to the socket and the namespace
#   rig start|stop|kill|restart   containerd itself;   rig clean   removes every container and pod;   rig leaks   lists what is left
# shellcheck source=hack/lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

# ---- outside: the namespaces, and the end of them -----------------------------------------------------------------------------
outside() {
	local version=2.4 runtime=glovebox keep='' o
	while getopts c:r:k o; do
		case $o in c) version=$OPTARG ;; r) runtime=$OPTARG ;; k) keep=1 ;; *) usage ;; esac
	done
	shift $((OPTIND - 1))
	[ $# -gt 0 ] || usage
	need_root
	case $version in 1.6) RIG_PROGRAMS=/usr/bin ;; 2.4) RIG_PROGRAMS=$BIN ;; *) fail "no containerd $version here: 1.6 or 2.4" ;; esac
	[ -x "$RIG_PROGRAMS/containerd" ] || fail "no containerd $version in $RIG_PROGRAMS; run hack/build, or install the packages in hack/packages"
	[ "$runtime" != glovebox ] || [ -x "$SHIM" ] || fail "no shim at $SHIM; run make shim, or set GLOVEBOX_SHIM"
	"$TOP/hack/images" busybox pause
	mkdir -p "$SCRATCH"
	RIG_DIR=$(mktemp -d "$SCRATCH/rig.XXXXXX")
	RIG_NS=${RIG_DIR##*/} RIG_NS=${RIG_NS/./-} RIG_CONTAINERD=$version RIG_HANDLER=$runtime RIG_SOCK=/run/containerd/containerd.sock RIG_IMAGE=localhost/busybox:1
	case $runtime in
	runc) RIG_RUNTIME=io.containerd.runc.v2 ;;
	runsc) RIG_RUNTIME=io.containerd.runsc.v1 ;;
	*) RIG_RUNTIME=io.containerd.$runtime.v1 ;;
	esac
	export RIG_DIR RIG_NS RIG_CONTAINERD RIG_PROGRAMS RIG_HANDLER RIG_SOCK RIG_IMAGE RIG_RUNTIME
	INIT=''
	trap 'end "$keep"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	tools
	unshare --net --ipc --mount --pid --fork --kill-child --mount-proc "$TOP/hack/rig.sh" -inside "$@" &
	INIT=$!
	local rc=0
	wait $INIT || rc=$?
	INIT=''
	exit $rc
}
usage() { sed -n '2s/^# /usage: /p' "$0" >&2; exit 2; }
end() { # the kill matters only for an interrupted run: the whole PID namespace goes with unshare
	trap '' INT TERM PIPE # nothing cuts the clean-up short
	set +e
	[ -z "$INIT" ] || { kill -9 "$INIT" && wait "$INIT"; sleep .5; } 2>/dev/null
	cgroups | sort -r | xargs -r rmdir 2>/dev/null
	find /sys/fs/cgroup -maxdepth 2 -name "$RIG_NS" -exec rmdir {} + 2>/dev/null
	if [ "$1" ]; then say "kept $RIG_DIR"; else rm -rf --one-file-system "$RIG_DIR"; fi
}
# The programs that the command finds first on PATH. The shim is a copy, so that a build during a test does not change it.
tools() {
	local b=$RIG_DIR/bin
	mkdir "$b" "$RIG_DIR/cni"
	[ ! -x "$SHIM" ] || cp "$SHIM" "$b/containerd-shim-glovebox-v1"
	printf '#!/bin/sh\nCONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1 exec %s -a %s -n %s "$@"\n' "$RIG_PROGRAMS/ctr" "$RIG_SOCK" "$RIG_NS" > "$b/ctr"
	printf 'runtime-endpoint: unix://%s\ntimeout: 60\n' "$RIG_SOCK" > "$RIG_DIR/crictl.yaml"
	printf '#!/bin/sh\nexec %s -c %s "$@"\n' "$BIN/crictl" "$RIG_DIR/crictl.yaml" > "$b/crictl"
	printf '#!/bin/sh\nexec %s -inside-"$@"\n' "$TOP/hack/rig.sh" > "$b/rig"
	chmod +x "$b"/*
	config > "$RIG_DIR/containerd.toml"
	cat > "$RIG_DIR/cni/10-bridge.conflist" <<-K
		{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"hairpinMode":true,
		 "ipam":{"type":"host-local","dataDir":"/run/cni","ranges":[[{"subnet":"10.88.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		 {"type":"portmap","capabilities":{"portMappings":true}}]}
	K
}
# The same settings in the two languages. oom_score_adj: lowering it takes CAP_SYS_RESOURCE, which a container or CI machine may lack.
config() {
	local version=3 cri=io.containerd.cri.v1.runtime images='' folder="bin_dirs = ['$BIN/cni']"
	case $RIG_CONTAINERD in
	1.6) version=2 cri=io.containerd.grpc.v1.cri images="sandbox_image = 'localhost/pause:1'
		  registry = {config_path = '$RIG_DIR/hosts'}" folder="bin_dir = '$BIN/cni'" ;;
	esac
	cat <<-K
		version = $version
		root = '$RIG_DIR/root'
		state = '/run/containerd'
		disabled_plugins = ['io.containerd.internal.v1.opt', 'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.zfs',
		  'io.containerd.snapshotter.v1.devmapper', 'io.containerd.snapshotter.v1.aufs']
		[plugins.'$cri']
		  restrict_oom_score_adj = true
		  $images
		  cni = {$folder, conf_dir = '$RIG_DIR/cni'}
		  containerd.default_runtime_name = '$RIG_HANDLER'
		  containerd.runtimes.runc = {runtime_type = 'io.containerd.runc.v2'}
		  containerd.runtimes.runsc = {runtime_type = 'io.containerd.runsc.v1'}
		  containerd.runtimes.glovebox = {runtime_type = 'io.containerd.glovebox.v1', pod_annotations = ['glovebox.dev/*']}
	K
	case $RIG_CONTAINERD in 1.6) ;; *) cat <<-K
		[plugins.'io.containerd.cri.v1.images']
		  pinned_images = {sandbox = 'localhost/pause:1'}
		  registry = {config_path = '$RIG_DIR/hosts'}
	K
	esac
}

# ---- inside: process 1 of the namespaces ---------------------------------------------------------------------------------------
inside() {
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir /run/lock
	ip link set lo up
	sysctl -qw net.ipv4.ip_forward=1 || true
	awk '{print $2}' /proc/mounts | sort > "$RIG_DIR/mounts"
	start || { tail -n 20 "$RIG_DIR/containerd.log" >&2; say "containerd did not start"; exit 98; }
	ctr images import "$CACHE/images/busybox.tar" >/dev/null
	ctr -n k8s.io images import "$CACHE/images/busybox.tar" >/dev/null
	ctr -n k8s.io images import "$CACHE/images/pause.tar" >/dev/null
	local rc=0 left
	(cd "$TOP" && exec "$@") || rc=$?
	[ -S "$RIG_SOCK" ] && ctr version >/dev/null 2>&1 || start || true
	clean
	left=$(settled)
	if [ "$left" ]; then
		printf '%s\n' "$left" | sed 's/^/left behind: /' >&2
		[ $rc != 0 ] || rc=99
	fi
	stop
	exit $rc
}
answers() { ctr version >/dev/null 2>&1; }
start() {
	setsid containerd -c "$RIG_DIR/containerd.toml" -l "${RIG_LOG:-debug}" >> "$RIG_DIR/containerd.log" 2>&1 < /dev/null &
	echo $! > "$RIG_DIR/containerd.pid"
	disown
	until_ 30 answers
}
# stop [SIGNAL]: returns when the process has ended
stop() {
	local pid
	pid=$(cat "$RIG_DIR/containerd.pid")
	kill "-${1:-TERM}" "$pid" 2>/dev/null || return 0
	until_ 20 ended "$pid" || { kill -9 "$pid"; until_ 5 ended "$pid"; }
}
ended() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
clean() {
	local ns id
	crictl rmp -fa >/dev/null 2>&1 || true
	for ns in "$RIG_NS" k8s.io; do
		for id in $(ctr -n "$ns" tasks ls -q 2>/dev/null); do
			timeout 20 ctr -n "$ns" tasks rm -f "$id" >/dev/null 2>&1 || true
		done
		for id in $(ctr -n "$ns" containers ls -q 2>/dev/null); do
			timeout 20 ctr -n "$ns" containers rm "$id" >/dev/null 2>&1 || true
		done
	done
}
cgroups() { # those of the rig's containers; the namespace's own folder stays with runc too
	local ids
	ids=$(grep -oE '[0-9a-f]{64}' "$RIG_DIR/containerd.log" 2>/dev/null | sort -u)
	find /sys/fs/cgroup -mindepth 2 -type d \( -path "*/$RIG_NS/*" -o -path '*/k8s.io/*' -o -path '*/kubepods*' \) 2>/dev/null |
		grep -F -e "/$RIG_NS/" ${ids:+-e "$ids"} || true
}
processes() { # all but process 1, containerd and who asks
	local p mine up=$BASHPID self=$BASHPID
	mine=" $(cat "$RIG_DIR/containerd.pid") "
	while [ "$up" -gt 1 ]; do
		mine+="$up "
		up=$(awk '/^PPid:/ {print $2}' "/proc/$up/status")
	done
	for p in /proc/[0-9]*; do
		p=${p#/proc/}
		[ "$p" != 1 ] && [[ $mine != *" $p "* ]] && [ -r "/proc/$p/cmdline" ] || continue
		grep -qs "^PPid:.$self\$" "/proc/$p/status" && continue
		printf 'process %s %s (%s)\n' "$p" "$(tr '\0' ' ' 2>/dev/null < "/proc/$p/cmdline" | cut -c1-160)" "$(sed -n 's/^State:.//p;s/^PPid:./parent /p' "/proc/$p/status" 2>/dev/null | tr '\n' ' ')"
	done
}
leaks() {
	processes
	awk '{print $2}' /proc/mounts | sort | comm -13 "$RIG_DIR/mounts" - | sed 's/^/mount /'
	cgroups | sed 's/^/cgroup /'
	find /run/glovebox -mindepth 1 ! -name lock ! -name '*.lock' 2>/dev/null | sed 's/^/file /'
	# FIFOs are the client's to remove. Sockets are the shim's; runc's stay when it is killed.
	[ "$RIG_HANDLER" != glovebox ] || find /run/containerd/s -mindepth 1 2>/dev/null | sed 's/^/socket /'
	find /run/netns -mindepth 1 2>/dev/null | sed 's/^/network namespace /'
	find /run/containerd/io.containerd.runtime.v2.task/*/ "$RIG_DIR"/root/io.containerd.runtime.v2.task/*/ -mindepth 1 -maxdepth 1 2>/dev/null | sed 's/^/bundle /'
	find /dev/shm -mindepth 1 -name '*glovebox*' 2>/dev/null | sed 's/^/file /'
}
settled() { # clean-up after the last exit event may take a moment
	local left i
	for ((i = 0; i < 50; i++)); do
		left=$(leaks)
		[ "$left" ] || return 0
		sleep .1
	done
	printf '%s\n' "$left"
}

case ${1:-} in
-inside) shift; inside "$@" ;;
-inside-start) start ;;
-inside-stop) stop ;;
-inside-kill) stop KILL ;;
-inside-restart) stop; start ;;
-inside-clean) clean ;;
-inside-leaks) left=$(settled); [ -z "$left" ] || { printf '%s\n' "$left"; exit 1; } ;;
*) outside "$@" ;;
esac
