#!/bin/bash
# timeout: 300
# What untrusted code reaches: the probes against the reviewed list, and every call that the kernel really ran against the table.
# shellcheck source=hack/lib.sh
. "$(dirname "$0")/../../hack/lib.sh"
need_root
grep -qw tracefs /proc/filesystems || skip "this kernel has no tracefs, so nobody can tell what it really ran"
bad=0
judge() { # judge SENTENCE COMMAND...
	local sentence=$1 out rc=0
	shift
	out=$("$@" 2>&1) || rc=$?
	grep -E '^FAIL|but the kernel|of 38|passed' <<<"$out" | sed 's/^/  /'
	if [ $rc = 0 ]; then printf 'ok %s\n' "$sentence"; else printf 'FAIL %s: exit status %s: %s\n' "$sentence" $rc "$(tail -n 3 <<<"$out" | tr '\n' ' ')"; bad=1; fi
}
judge 'no kernel entry of a known escalation is reached beyond the reviewed list' "$TOP/tests/reachability/run" glovebox
judge 'the kernel ran exactly the calls that the table declares native' "$TOP/tests/reachability/sweep/run"
exit $bad
