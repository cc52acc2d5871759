#!/bin/bash
# The control groups of this machine, version 1, hybrid or 2, whichever it has.
cd "$(dirname "$0")/../.." || exit 1
[ "$(id -u)" = 0 ] || { echo "must be root"; exit 77; }
make -s cgroup-driver >/dev/null && exec "build/${PROFILE:-debug}/tests/cgroup-driver"
