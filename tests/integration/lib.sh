# shellcheck shell=bash disable=SC2034
# For integration tests: source it, define functions named it_..., end with `run_cases`.
# Each function is a case; its name, with spaces for underscores, is the sentence that the report prints.  A case runs in a subshell
# under `set -e` and fails when a command in it fails; `skip_case REASON` leaves it out.  CASE is a short id that differs from case to
# case, for container names.  What the rig offers is described at the top of hack/rig.sh.
set -uo pipefail

note() { printf '  %s\n' "$*"; }
broken() { printf '  %s\n' "$*"; exit 1; } # ends the case
skip_case() { printf '%s\n' "$*" > "$SKIP_REASON"; exit 77; }

# start ID COMMAND...: a container in the background, with the options in $OPTIONS (an array)
OPTIONS=()
start() { local id=$1; shift; ctr run -d --runtime "$RIG_RUNTIME" "${OPTIONS[@]}" "$RIG_IMAGE" "$id" "$@"; }
# run_once ID COMMAND...: a container in the foreground; its output, its exit status
run_once() { local id=$1; shift; ctr run --rm --runtime "$RIG_RUNTIME" "${OPTIONS[@]}" "$RIG_IMAGE" "$id" "$@"; }
# inside ID COMMAND...: exec
inside() { local id=$1; shift; ctr tasks exec --exec-id "x$RANDOM$RANDOM" "$id" "$@"; }
# remove ID...: kill, delete, forget
remove() { local id; for id in "$@"; do ctr tasks rm -f "$id" >/dev/null; ctr containers rm "$id"; done; }
# listen FILE: containerd's events go there from now on, until the case ends
listen() {
	ctr events >> "$1" & # appending, so that the case can empty it
	# shellcheck disable=SC2064
	trap "kill $!" EXIT
	eventually 5 hears "$1"
}
hears() { ctr namespaces label "$RIG_NS" try="$RANDOM" && grep -q /namespaces/update "$1"; }
task_status() { ctr tasks ls | awk -v id="$1" '$1 == id {print $3}'; }
task_pid() { ctr tasks ls | awk -v id="$1" '$1 == id {print $2}'; }

same() { [ "$1" = "$2" ] || broken "${3:-value} is \"$1\", expected \"$2\""; }                       # same ACTUAL EXPECTED [WHAT]
like() { [[ $1 =~ $2 ]] || broken "${3:-output} is \"$1\", expected a match of \"$2\""; }              # like ACTUAL REGEX [WHAT]
status() { local want=$1 rc=0; shift; "$@" || rc=$?; [ $rc = "$want" ] || broken "exit status $rc, expected $want: $*"; } # status N COMMAND...
# refused REGEX COMMAND...: it fails, and says why in words that match
refused() { local want=$1 text rc=0; shift; text=$("$@" 2>&1) || rc=$?; [ $rc != 0 ] || broken "not refused: $*"; like "$text" "$want" "the refusal"; }
# eventually SECONDS COMMAND...
eventually() {
	local end=$((SECONDS + $1)) limit=$1
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || broken "not within $limit s: $*"
		sleep .05
	done
}

run_cases() {
	local name sentence rc failed=0 only=${CASES:-} n=0
	SKIP_REASON=$(mktemp)
	shopt -s extdebug # `declare -F NAME` then tells the line: cases run in the order of the file
	for name in $(for f in $(compgen -A function it_); do declare -F "$f"; done | sort -k2n | cut -d' ' -f1); do
		sentence=${name#it_} sentence=${sentence//_/ }
		[[ $sentence == *"$only"* ]] || continue
		n=$((n + 1))
		(CASE=c$n; shopt -u extdebug; set -e; "$name")
		rc=$?
		case $rc in
		0) printf 'ok %s\n' "$sentence" ;;
		77) printf 'skip %s: %s\n' "$sentence" "$(cat "$SKIP_REASON")" ;;
		*) printf 'FAIL %s: exit status %s\n' "$sentence" $rc; failed=1; rig clean ;;
		esac
	done
	rm -f "$SKIP_REASON"
	exit $failed
}
