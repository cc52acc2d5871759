#!/bin/bash
# timeout: 600
# Scopes on a host that systemd runs: systemd as process 1, cgroup v2 and kernel 6.1, in a virtual machine.
cd "$(dirname "$0")/../.." || exit 1
[ "$(id -u)" = 0 ] || { echo "must be root"; exit 77; }
[ -x /lib/systemd/systemd ] || { echo "no /lib/systemd/systemd; install the package systemd"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "no qemu-system-x86_64"; exit 77; }
build=$PWD/build/${PROFILE:-debug}
cache=${GB_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/glovebox}}
make -s cgroup-driver >/dev/null && hack/images busybox || exit 1
rc=0
hack/vm -t 200 "$PWD/tests/integration/systemd_guest.sh" "$build/tests/cgroup-driver" systemd || rc=1
hack/vm -m 1536 -t 300 "$PWD/tests/integration/systemd_guest.sh" "$PWD/tests/integration/systemd_containerd.sh" \
	"${GLOVEBOX_SHIM:-$build/containerd-shim-glovebox-v1}" "${cache:-/var/cache/glovebox}/images/busybox.tar" || rc=1
exit $rc
