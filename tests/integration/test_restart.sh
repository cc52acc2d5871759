#!/bin/bash
# rig: 2.4 1.6
# timeout: 240
# containerd goes and comes back while containers run, write and end.
# shellcheck source=tests/integration/lib.sh
. "$(dirname "$0")/lib.sh"

# pod NAME: its id.  container POD NAME COMMAND: started; its id
pod() {
	printf '{"metadata":{"name":"%s","uid":"%s","namespace":"default"},"log_directory":"%s","linux":{}}' "$1" "$1" "$RIG_DIR/logs/$1" \
		> "$RIG_DIR/$1.json"
	mkdir -p "$RIG_DIR/logs/$1"
	crictl runp -r "$RIG_HANDLER" "$RIG_DIR/$1.json"
}
container() {
	printf '{"metadata":{"name":"%s"},"image":{"image":"%s"},"command":["sh","-c","%s"],"log_path":"%s.log","linux":{}}' \
		"$2" "$RIG_IMAGE" "$3" "$2" > "$RIG_DIR/$2.json"
	local id
	id=$(crictl create "$1" "$RIG_DIR/$2.json" "$RIG_DIR/$POD.json")
	crictl start "$id" > /dev/null
	printf '%s\n' "$id"
}
lines() { wc -l < "$1"; }
more_than() { [ "$(lines "$1")" -gt "$2" ]; }

it_loses_no_output_when_containerd_is_killed() {
	local p c log n
	POD=$CASE p=$(pod "$CASE")
	c=$(POD=$CASE container "$p" "$CASE-w" 'i=0; while :; do echo $i || exit 9; i=$((i+1)); sleep .01; done')
	log=$RIG_DIR/logs/$CASE/$CASE-w.log
	eventually 10 more_than "$log" 20
	for _ in 1 2 3; do
		rig kill
		sleep .7
		rig start
		n=$(lines "$log")
		eventually 10 more_than "$log" $((n + 50))
	done
	same "$(crictl inspect -o go-template --template '{{.status.state}}' "$c")" CONTAINER_RUNNING 'the state'
	# What containerd had read and not yet written dies with it: a line or two at each kill, where 70 are written meanwhile.
	awk '{print $4}' "$log" | awk 'NR > 1 && ($1 <= last || $1 > last + 3) {print last " is followed by " $1} {last = $1}' > "$RIG_DIR/gaps"
	same "$(head -n 3 "$RIG_DIR/gaps")" '' 'gaps in the log'
	crictl rmp -f "$p" > /dev/null
}
it_keeps_the_last_words_of_a_container_that_ends_meanwhile() {
	local p c log
	POD=$CASE p=$(pod "$CASE")
	c=$(POD=$CASE container "$p" "$CASE-e" 'echo first; sleep 4; echo last words; exit 5')
	log=$RIG_DIR/logs/$CASE/$CASE-e.log
	eventually 10 grep -q first "$log"
	rig kill
	sleep 4.5
	rig start
	eventually 10 eval "[ \"\$(crictl inspect -o go-template --template '{{.status.state}}' $c)\" = CONTAINER_EXITED ]"
	case $RIG_CONTAINERD in
	1.6)
		same "$(crictl inspect -o go-template --template '{{.status.exitCode}}' "$c")" 5 'the exit code'
		eventually 5 grep -q 'last words' "$log" ;;
	*) ;; # 2.x deletes a task that ended meanwhile without a look at its status or output, and says Unknown
	esac
	crictl rmp -f "$p" > /dev/null
}
it_knows_an_exit_that_containerd_missed() {
	start "$CASE" sh -c 'sleep 1; exit 6'
	rig kill
	sleep 1.5
	rig start
	case $RIG_CONTAINERD in
	1.6) # keeps the task
		eventually 5 eval "[ \$(task_status $CASE) = STOPPED ]"
		like "$(ctr tasks rm "$CASE" 2>&1)" 'exit code 6' 'what ctr says' ;;
	*) # a stopped task is cleaned up by containerd itself at its start
		eventually 5 eval "[ -z \"\$(task_status $CASE)\" ] || ctr tasks rm $CASE" ;;
	esac
	ctr containers rm "$CASE"
	eventually 5 rig leaks
}
it_answers_an_attached_client_again_after_a_stop_of_containerd() {
	local pid
	start "$CASE" sleep 1000
	pid=$(cat "$RIG_DIR/containerd.pid")
	listen "$RIG_DIR/events.$CASE"
	kill -STOP "$pid"
	kill -9 "$(task_pid_of "$CASE")"
	sleep 2
	kill -CONT "$pid"
	eventually 10 grep -q "/tasks/exit.*$CASE" "$RIG_DIR/events.$CASE"
	eventually 5 eval "[ \$(task_status $CASE) = STOPPED ]"
	like "$(ctr tasks rm "$CASE" 2>&1)" 'exit code 137' 'what ctr says'
	ctr containers rm "$CASE"
}
task_pid_of() { # without containerd
	awk '/^init /{print $2}' "/run/glovebox/$RIG_NS/$1/state"
}
it_runs_a_container_that_nobody_reads() {
	start "$CASE" sh -c 'i=0; while [ $i -lt 20 ]; do echo $i || exit 9; i=$((i+1)); done; exec sleep 1000'
	sleep .5
	same "$(task_status "$CASE")" RUNNING 'the status'
	rig kill
	rig start
	same "$(task_status "$CASE")" RUNNING 'the status'
	remove "$CASE"
}
run_cases
