#!/bin/bash
# timeout: 300
# Scopes on a host that systemd runs: systemd as process 1, cgroup v2 and kernel 6.1, in a virtual machine.
cd "$(dirname "$0")/../.." || exit 1
[ "$(id -u)" = 0 ] || { echo "must be root"; exit 77; }
[ -x /lib/systemd/systemd ] || { echo "no /lib/systemd/systemd; install the package systemd"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "no qemu-system-x86_64"; exit 77; }
make -s cgroup-driver >/dev/null &&
	exec hack/vm -t 200 "$PWD/tests/integration/systemd_guest.sh" "$PWD/build/${PROFILE:-debug}/tests/cgroup-driver" systemd
