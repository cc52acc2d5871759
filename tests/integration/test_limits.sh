#!/bin/bash
# rig: 2.4 1.6
# timeout: 240
# Limits as engines set them: they bite, they can be changed, and the counters show it.
# shellcheck disable=SC2016
# shellcheck source=tests/integration/lib.sh
. "$(dirname "$0")/lib.sh"

V2=$([ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] && echo yes)
# group CONTROLLER PATH FILE: a control file's content
group() { cat "/sys/fs/cgroup/${V2:+.}$([ "$V2" ] || echo "$1")/$2/$3"; }
memory_limit() { if [ "$V2" ]; then group - "$1" memory.max; else group memory "$1" memory.limit_in_bytes; fi; }
cpu_quota() { if [ "$V2" ]; then group - "$1" cpu.max | cut -d' ' -f1; else group cpu "$1" cpu.cfs_quota_us; fi; }
# pod NAME [LINUX-JSON]: its id
pod() {
	printf '{"metadata":{"name":"%s","uid":"%s","namespace":"default"},"log_directory":"%s","linux":%s}' "$1" "$1" "$RIG_DIR" "${2:-"{}"}" > "$RIG_DIR/$1.pod"
	crictl runp -r "$RIG_HANDLER" "$RIG_DIR/$1.pod" 2>/dev/null
}
# container POD-ID POD-NAME NAME RESOURCES-JSON COMMAND: started, its id
container() {
	printf '{"metadata":{"name":"%s"},"image":{"image":"%s"},"command":["sh","-c","%s"],"log_path":"%s.log","linux":{"resources":%s}}' \
		"$3" "$RIG_IMAGE" "$5" "$3" "$4" > "$RIG_DIR/$3.container"
	local id
	id=$(crictl create "$1" "$RIG_DIR/$3.container" "$RIG_DIR/$2.pod" 2>/dev/null)
	crictl start "$id" >/dev/null
	echo "$id"
}
state_of() { crictl inspect -o go-template --template '{{.status.state}} {{.status.reason}} {{.status.exitCode}}' "$1"; }
gone() { crictl rmp -f "$1" >/dev/null 2>&1; }

it_kills_what_takes_too_much_memory_and_says_so() {
	local p c
	p=$(pod "$CASE")
	c=$(container "$p" "$CASE" "c$CASE" '{"memory_limit_in_bytes":33554432,"memory_swap_limit_in_bytes":33554432}' 'x=a; while :; do x=$x$x; done')
	eventually 20 eval "state_of $c | grep -q EXITED"
	same "$(state_of "$c")" 'CONTAINER_EXITED OOMKilled 137' 'state, reason and status'
	gone "$p"
}
it_lets_the_container_live_when_a_child_is_killed_for_memory() {
	local p c
	p=$(pod "$CASE")
	c=$(container "$p" "$CASE" "c$CASE" '{"memory_limit_in_bytes":33554432,"memory_swap_limit_in_bytes":33554432}' \
		'(x=a; while :; do x=$x$x; done); echo $? > /tmp/status; sleep 1000')
	eventually 20 crictl exec "$c" test -s /tmp/status
	same "$(crictl exec "$c" cat /tmp/status)" 137 'status of the child'
	like "$(state_of "$c")" '^CONTAINER_RUNNING' 'the state'
	gone "$p"
}
it_holds_a_container_to_its_cpu_quota() {
	local p c before after
	p=$(pod "$CASE")
	c=$(container "$p" "$CASE" "c$CASE" '{"cpu_period":100000,"cpu_quota":30000,"cpu_shares":512}' 'while :; do :; done')
	before=$(crictl stats -o json "$c" | jq -r '.stats[0].cpu.usageCoreNanoSeconds.value')
	sleep 3
	after=$(crictl stats -o json "$c" | jq -r '.stats[0].cpu.usageCoreNanoSeconds.value')
	local used=$(((after - before) / 1000000))
	[ "$used" -gt 150 ] && [ "$used" -lt 1500 ] || broken "used $used ms of CPU in 3 s under a quota of 0.3"
	gone "$p"
}
it_changes_limits_while_it_runs_and_keeps_the_old_ones_when_refused() {
	local p c path
	p=$(pod "$CASE" "{\"cgroup_parent\":\"/$RIG_NS/pod$CASE\"}")
	c=$(container "$p" "$CASE" "c$CASE" '{"cpu_period":100000,"cpu_quota":50000,"memory_limit_in_bytes":67108864}' 'sleep 1000')
	path=$RIG_NS/pod$CASE/$c
	same "$(memory_limit "$path")" 67108864 'the memory limit'
	crictl update --cpu-quota 20000 --memory 134217728 "$c"
	same "$(memory_limit "$path")" 134217728 'the memory limit after the update'
	same "$(cpu_quota "$path")" 20000 'the CPU quota after the update'
	local quota='' cpus=''
	[ "$RIG_HANDLER" != glovebox ] || quota='linux.resources.cpu.quota must be at least 1000' cpus='linux.resources.cpu.cpus: the kernel refuses'
	refused "$quota" crictl update --cpu-quota 10 --memory 268435456 "$c"
	refused "$cpus" crictl update --cpuset-cpus 999 --memory 268435456 "$c"
	[ "$RIG_HANDLER" != glovebox ] || same "$(memory_limit "$path")" 134217728 'the memory limit after refused updates'
	same "$(cpu_quota "$path")" 20000 'the CPU quota after refused updates'
	[ "$RIG_HANDLER" != glovebox ] || like "$(crictl exec "$c" grep MemTotal /proc/meminfo)" ' 131072 kB' 'what the container sees of its memory'
	gone "$p"
	[ "$RIG_HANDLER" = glovebox ] || find /sys/fs/cgroup -type d -path "*/$RIG_NS/pod$CASE" -exec rmdir {} + # runc leaves it to kubelet
}
it_puts_a_pod_where_it_is_told_in_the_form_of_systemd() {
	[ "$RIG_HANDLER" = glovebox ] || skip_case 'runc has to be configured for it'
	local p c name=${RIG_NS//-/_}
	p=$(pod "$CASE" "{\"cgroup_parent\":\"kubepods-$name.slice\"}")
	c=$(container "$p" "$CASE" "c$CASE" '{"memory_limit_in_bytes":67108864}' 'sleep 1000')
	same "$(memory_limit "kubepods.slice/kubepods-$name.slice/cri-containerd-$c.scope")" 67108864 'the memory limit'
	gone "$p"
	[ -z "$(find /sys/fs/cgroup -type d -name "cri-containerd-$c.scope")" ] || broken 'the scope is still there'
}
it_limits_the_pod_by_what_the_sandbox_says() {
	[ "$RIG_HANDLER" = glovebox ] || skip_case 'runc leaves the pod to kubelet'
	local p parent=$RIG_NS/pod$CASE
	p=$(pod "$CASE" "{\"cgroup_parent\":\"/$parent\",\"resources\":{\"cpu_period\":100000,\"cpu_quota\":40000,\"memory_limit_in_bytes\":100663296}}")
	same "$(memory_limit "$parent")" 100663296 'the memory limit of the pod'
	same "$(cpu_quota "$parent")" 40000 'the CPU quota of the pod'
	gone "$p"
	[ -z "$(find /sys/fs/cgroup -type d -path "*/$parent")" ] || broken 'the group of the pod is still there'
}
it_shows_its_own_group_to_the_container_and_lets_nobody_write() {
	OPTIONS=(--memory-limit 50331648)
	start "$CASE" sleep 1000
	if [ "$V2" ]; then file=/sys/fs/cgroup/memory.max; else file=/sys/fs/cgroup/memory/memory.limit_in_bytes; fi
	[ "$RIG_HANDLER" = glovebox ] || skip_case 'ctr gives runc no cgroup mount here'
	same "$(inside "$CASE" cat "$file")" 50331648 'the limit seen inside'
	status 1 inside "$CASE" sh -c "echo 1000000000 > $file"
	like "$(inside "$CASE" cat /proc/self/cgroup)" ':/$' 'the path seen inside'
	remove "$CASE"
}
it_counts_what_the_container_uses() {
	OPTIONS=(--memory-limit 67108864)
	start "$CASE" sh -c 'head -c 20000000 /dev/zero | tail -c 20000000 > /dev/null; sleep 1000'
	eventually 5 inside "$CASE" true
	local text
	text=$(ctr tasks metrics "$CASE")
	like "$text" '67108864' 'the limit in the metrics'
	like "$text" 'pids' 'the metrics'
	remove "$CASE"
}
it_leaves_signals_and_timers_to_the_node() {
	[ "$RIG_RUNTIME" = io.containerd.glovebox.v1 ] || skip_case "runc's containers are the node's own root"
	local d n limit=4000
	d=$(mktemp -d "$RIG_DIR/signals.XXXXXX")
	chmod 755 "$d"
	gcc -static -O1 -xc -o "$d/queue" - <<-'C'
		#include <signal.h>
		#include <stdio.h>
		#include <unistd.h>
		int main(void)
		{
			sigset_t set;
			int n = 0;
			sigemptyset(&set);
			sigaddset(&set, SIGRTMIN);
			sigprocmask(SIG_BLOCK, &set, 0);
			while (n < 5000 && sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
				n++;
			printf("%d\n", n);
		}
	C
	rig stop
	(ulimit -i "$limit" && rig start)
	OPTIONS=(--mount "type=bind,src=$d,dst=/test,options=rbind:ro")
	n=$(run_once "$CASE" /test/queue)
	rig restart
	[ "$n" -gt $((limit / 2)) ] && [ "$n" -le $((limit * 3 / 4)) ] || broken "it queued $n signals of the node's $limit"
}
run_cases
