#!/bin/bash
# slow: boots a machine
# timeout: 1500
# The flows of test_ctr.sh and the limits of test_limits.sh on kernel 6.1 with cgroup v2, which is what nearly every node has.
cd "$(dirname "$0")/../.." || exit 1
rc=0
for run in '2.4 test_ctr.sh' '1.6 test_ctr.sh' '1.6 test_limits.sh'; do
	version=${run% *}
	hack/vm -m 2048 -t 700 env GLOVEBOX_SHIM="${GLOVEBOX_SHIM:-$PWD/build/debug/containerd-shim-glovebox-v1}" hack/rig.sh -c "$version" "tests/integration/${run#* }" |
		sed -E "s/^(ok|FAIL|skip) /\1 (cgroup v2, containerd $version) /"
	[ "${PIPESTATUS[0]}" = 0 ] || rc=1
done
exit $rc
