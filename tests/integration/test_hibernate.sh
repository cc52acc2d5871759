#!/bin/bash
# timeout: 300
# Pause and resume with the memory moved out, on real programs in a control group of their own.
. "$(dirname "$0")/../../hack/lib.sh"
. "$(dirname "$0")/lib.sh"
need_root
WORK=$(mktemp -d "${TMPDIR:-/tmp}/hibernate.XXXXXX")
trap 'rm -rf "$WORK"' EXIT
programs=$TOP/tests/hibernate/programs
gcc -std=gnu11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -I"$TOP" -o "$WORK/driver" "$TOP/tests/hibernate/driver.c" "$TOP"/shim/hibernate/*.c "$TOP"/shim/cgroup/*.c "$TOP"/base/*.c -ljansson -lm
gcc -std=gnu11 -D_GNU_SOURCE -O1 -pthread -o "$WORK/memory" "$programs/memory.c"

cycles() { # cycles N COMMAND...: the program must find its memory right, and every pause must have moved it out
	local n=$1 out
	shift
	out=$(timeout 120 "$WORK/driver" -n "$n" -r 300 -p 50 "$@") || broken "status $?: $out"
	printf '%s\n' "$out" | sed 's/^/  /'
	like "$out" 'right after'
	same "$(grep -c '^paused: .*all back' <<<"$out")" "$n" "pauses"
}
it_keeps_memory_that_is_discarded_moved_protected_and_forked_right_over_20_cycles() { cycles 20 "$WORK/memory"; }
it_keeps_python_objects_right_over_10_cycles() { cycles 10 /usr/bin/python3 "$programs/objects.py"; }
it_keeps_node_timers_and_buffers_right_over_10_cycles() {
	command -v node >/dev/null || skip_case "node is not installed"
	cycles 10 node "$programs/objects.js"
}
it_kills_the_program_rather_than_run_it_with_zeros_when_the_pager_dies() {
	local rc=0 out
	out=$(timeout 60 "$WORK/driver" -k -n 1 -r 300 "$WORK/memory") || rc=$?
	same $rc 137 "exit status of the program"
	like "$out" 'broken: the process that keeps the paused memory'
}
it_leaves_the_program_running_when_the_image_does_not_fit() {
	local out rc=0
	mkdir "$WORK/small"
	mount -t tmpfs -o size=8m tmpfs "$WORK/small"
	(sleep 4; kill -USR1 "$(pgrep -of "^$WORK/memory 33")") &
	out=$(timeout 60 "$WORK/driver" -d "$WORK/small" -n 2 -r 500 "$WORK/memory" 33) || rc=$?
	umount "$WORK/small"
	same $rc 0 "exit status"
	like "$out" 'not paused: .*No space left'
	like "$out" 'right after'
}
run_cases
