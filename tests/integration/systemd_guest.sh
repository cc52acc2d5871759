#!/bin/bash
# systemd_guest.sh COMMAND...: inside of hack/vm, runs COMMAND as a service of a systemd that is process 1 of namespaces of its own and
# owns a cgroup v2 tree.  Prints what COMMAND prints and returns its exit status.
set -e
[ $# -gt 0 ] || { sed -n '2s/^# /usage: /p' "$0" >&2; exit 2; }
export COMMAND="$*"
mkdir /sys/fs/cgroup/systemd-guest
# The first shell becomes a member, and the tree's root, before the cgroup namespace is made; its parent stays outside.
# shellcheck disable=SC2016
exec unshare --pid --fork --mount --ipc --uts --mount-proc bash -c 'echo 0 > /sys/fs/cgroup/systemd-guest/cgroup.procs; exec unshare --cgroup bash -c "$0"' '
umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /lib/systemd/system-generators # they would run at every daemon-reload
mkdir -p /run/systemd/system
cat > /run/systemd/system/case.service <<K
[Unit]
DefaultDependencies=no
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=$COMMAND
StandardOutput=truncate:/run/case.out
StandardError=inherit
Delegate=yes
K
: > /run/case.out
exec {out}>&1
tail -f /run/case.out >&$out &
container=test exec /lib/systemd/systemd --system --unit=case.service --log-target=null --show-status=no'
