#!/bin/bash
# The node agent in a real cluster of its own.  test_node_agent.sh [WORD...]: only cases whose name contains a word.
# timeout: 600
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
TOP=$HERE/../..
export GB_CLUSTER=${GB_CLUSTER:-node-agent}
export CLUSTER_DIR=${GB_SCRATCH:-/var/lib/glovebox-test}/cluster-$GB_CLUSTER
export CONTROLLER=${CONTROLLER:-$(readlink -f "$TOP/build/${PROFILE:-debug}/glovebox-controller")}
[ -x "$CONTROLLER" ] || { echo "test_node_agent.sh: no $CONTROLLER; run make controller" >&2; exit 1; }
"$TOP/hack/cluster" up
trap '"$TOP/hack/cluster" down' EXIT
"$TOP/hack/cluster" run /usr/bin/python3 "$HERE/test_node_agent.py" "$@"
