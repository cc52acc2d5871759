#!/bin/bash
# timeout: 300
# The engine of the controller against a real API server.  test_engine.sh [WORD...]: only cases whose name contains a word.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
export ENGINE_PROBE=${ENGINE_PROBE:-$HERE/../../build/${PROFILE:-debug}/tests/integration/engine_probe}
[ -x "$ENGINE_PROBE" ] || { echo "test_engine.sh: no $ENGINE_PROBE; run make engine-probe" >&2; exit 1; }
exec "$HERE/apiserver.sh" /usr/bin/python3 "$HERE/test_engine.py" "$@"
