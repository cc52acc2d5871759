#!/bin/bash
# rig: 2.4 1.6
# timeout: 180
# Pausing a container gives its memory back; its processes go on where they were.
. "$(dirname "$0")/../../hack/lib.sh"
. "$(dirname "$0")/lib.sh"
[ "$RIG_RUNTIME" = io.containerd.glovebox.v1 ] || skip "only glovebox gives memory back"
WORK=$(mktemp -d "$RIG_DIR/pause.XXXXXX")
chmod 755 "$WORK"
gcc -std=gnu11 -D_GNU_SOURCE -O1 -pthread -static -o "$WORK/memory" "$TOP/tests/hibernate/programs/memory.c"
OPTIONS=(--mount "type=bind,src=$WORK,dst=/test,options=rbind:ro")

charge() { ctr tasks metrics --format json "$1" | python3 -c 'import json,sys; m=json.load(sys.stdin); m=m[0] if isinstance(m,list) else m; x=m.get("data",m).get("memory") or m["memory"]; u=x["usage"]; print(u["usage"] if isinstance(u,dict) else u)'; }
begin() { # begin ID: the program with 64 MiB, its output in $WORK/ID
	ctr run --runtime "$RIG_RUNTIME" "${OPTIONS[@]}" "$RIG_IMAGE" "$1" /test/memory 64 > "$WORK/$1" 2>&1 &
	CTR=$!
	eventually 10 running "$1"
	sleep 1
}
is_back() { [ "$(charge "$1")" -gt $((60 << 20)) ]; }
running() { [ "$(task_status "$1")" = RUNNING ]; }
finish() { # finish ID: it must have found its memory right all the time
	local rc=0
	ctr tasks kill -s SIGUSR1 "$1"
	wait "$CTR" || rc=$?
	same "$rc $(sed 's/ after.*//' "$WORK/$1")" "0 right" "status and output"
	ctr containers rm "$1" 2>/dev/null || true
}
it_gives_back_95_percent_and_finds_its_memory_right_over_10_cycles() {
	local before after i
	begin "$CASE"
	for ((i = 0; i < 10; i++)); do
		eventually 5 is_back "$CASE" # the last pages come back in the background
		before=$(charge "$CASE")
		ctr tasks pause "$CASE"
		same "$(task_status "$CASE")" PAUSED
		after=$(charge "$CASE")
		note "$((before >> 10)) KiB -> $((after >> 10)) KiB"
		[ $((after * 20)) -lt "$before" ] || broken "only $before -> $after bytes"
		ctr tasks resume "$CASE"
		same "$(task_status "$CASE")" RUNNING
		sleep 0.$((RANDOM % 5 + 1))
	done
	finish "$CASE"
}
it_is_paused_and_resumed_back_to_back() {
	local i
	begin "$CASE"
	for ((i = 0; i < 20; i++)); do
		ctr tasks pause "$CASE"
		ctr tasks resume "$CASE"
	done
	finish "$CASE"
}
it_dies_at_once_when_killed_while_paused() {
	local rc=0
	begin "$CASE"
	ctr tasks pause "$CASE"
	ctr tasks kill -s SIGKILL "$CASE"
	wait "$CTR" || rc=$?
	same $rc 137 "exit status"
	ctr containers rm "$CASE" 2>/dev/null || true
}
it_refuses_exec_and_answers_ps_and_metrics_while_paused() {
	begin "$CASE"
	ctr tasks pause "$CASE"
	refused 'paused' inside "$CASE" true
	ctr tasks ps "$CASE" >/dev/null
	charge "$CASE" >/dev/null
	ctr tasks resume "$CASE"
	inside "$CASE" true
	finish "$CASE"
}
it_kills_the_container_when_the_pager_is_killed() {
	local rc=0
	begin "$CASE"
	ctr tasks pause "$CASE"
	kill -9 "$(pgrep -x glovebox-pager)"
	wait "$CTR" || rc=$?
	same $rc 137 "exit status"
	grep -q 'the paused memory is lost, the container is killed' "$RIG_DIR/containerd.log" || broken "the log does not say why"
	ctr containers rm "$CASE" 2>/dev/null || true
}
it_pauses_beside_a_process_that_a_signal_has_stopped() {
	start "$CASE" sh -c 'sleep 1000 & kill -STOP $!; echo $! > /dev/shm/pid; exec sleep 1000'
	eventually 10 inside "$CASE" sh -c 'grep -q "^State:.T" /proc/$(cat /dev/shm/pid)/status'
	local i
	for ((i = 0; i < 3; i++)); do
		timeout 10 ctr tasks pause "$CASE" || broken "the pause does not end"
		timeout 10 ctr tasks resume "$CASE" || broken "the resume does not end"
		inside "$CASE" sh -c 'grep -q "^State:.T" /proc/$(cat /dev/shm/pid)/status' || broken "it is no longer stopped"
	done
	inside "$CASE" sh -c 'kill -CONT $(cat /dev/shm/pid)'
	eventually 5 inside "$CASE" sh -c 'grep -q "^State:.S" /proc/$(cat /dev/shm/pid)/status'
	same "$(task_status "$CASE")" RUNNING
	remove "$CASE"
}
it_never_runs_on_wrong_memory_when_the_pager_dies_after_the_resume() {
	local rc i pager
	for ((i = 0; i < 5; i++)); do
		rc=0
		begin "$CASE"
		ctr tasks pause "$CASE"
		pager=$(pgrep -x glovebox-pager)
		ctr tasks resume "$CASE"
		kill -9 "$pager" || { finish "$CASE"; continue; } # everything was back already
		wait "$CTR" || rc=$?
		same $rc 137 "exit status"
		ctr containers rm "$CASE" 2>/dev/null || true
	done
}
run_cases
