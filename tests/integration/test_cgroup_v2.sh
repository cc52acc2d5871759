#!/bin/bash
# timeout: 240
# The same cases with cgroup v2 and kernel 6.1, in a virtual machine.
cd "$(dirname "$0")/../.." || exit 1
[ "$(id -u)" = 0 ] || { echo "must be root"; exit 77; }
[ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ] || { echo "this machine itself has cgroup v2: test_cgroup.sh ran there"; exit 77; }
command -v qemu-system-x86_64 >/dev/null || { echo "no qemu-system-x86_64"; exit 77; }
make -s cgroup-driver >/dev/null && exec hack/vm -t 200 "$PWD/build/${PROFILE:-debug}/tests/cgroup-driver"
