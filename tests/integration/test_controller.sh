#!/bin/bash
# The controller against a real API server and the real garbage collector, with hollow pods.  test_controller.sh [WORD...]: only
# cases whose name contains a word.  SDK_PYTHON: a python that has k8s-agent-sandbox (hack/sdk makes one; without it that case is skipped).
# timeout: 900
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
O=$HERE/../../build/${PROFILE:-debug}
export GLOVEBOX_CONTROLLER=${GLOVEBOX_CONTROLLER:-$O/glovebox-controller}
export HOLLOW=${HOLLOW:-$(dirname "${GLOVEBOX_CONTROLLER:-$O/x}")/tests/bench/hollow}
for p in "$GLOVEBOX_CONTROLLER" "$HOLLOW"; do [ -x "$p" ] || { echo "test_controller.sh: no $p; run make controller hollow" >&2; exit 1; }; done
export SDK_PYTHON=${SDK_PYTHON-$("$HERE/../../hack/sdk" 2>/dev/null || true)}
exec "$HERE/apiserver.sh" -a /usr/bin/python3 "$HERE/test_controller.py" "$@"
