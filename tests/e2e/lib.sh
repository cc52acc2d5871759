# shellcheck shell=bash
# For tests in a cluster: tests/integration/lib.sh and this.  Cases run in a namespace of the test's own, which goes at the end.
#   E2E_RUNTIME   the RuntimeClass, glovebox        KUBECONFIG   a cluster of your own; otherwise hack/cluster's
# shellcheck source=tests/integration/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../integration/lib.sh"
HACK=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../hack" && pwd)
RUNTIME=${E2E_RUNTIME:-glovebox}
IMAGE=${E2E_IMAGE:-localhost/busybox:1}
NS=e2e-$(basename "$0" .sh | tr _ -)-$RANDOM

if [ "${KUBECONFIG:-}" ]; then
	kubectl_() { kubectl "$@"; }
else
	kubectl_() { "$HACK/cluster" run kubectl "$@"; }
fi
k() { kubectl_ -n "$NS" "$@"; }
k get --raw /readyz >/dev/null || { echo "no cluster answers"; exit 1; }
k create namespace "$NS" >/dev/null
trap 'kubectl_ delete namespace "$NS" --wait=true --timeout=60s >/dev/null 2>&1' EXIT
rig() { k delete pod --all --now --wait=false >/dev/null 2>&1; } # what run_cases calls after a failed case

# pod NAME [EXTRA SPEC LINES]: stdin is the list of containers, YAML without indentation
pod() {
	{
		printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec:\n  runtimeClassName: %s\n' "$1" "$1" "$RUNTIME"
		printf '  automountServiceAccountToken: false\n  terminationGracePeriodSeconds: %s\n' "${GRACE:-1}"
		[ "${RESTART:-}" = default ] || printf '  restartPolicy: %s\n' "${RESTART:-Never}"
		[ $# -lt 2 ] || printf '%s\n' "$2" | sed 's/^/  /'
		printf '  containers:\n'
		sed "s/^/  /; s|IMAGE|image: $IMAGE, imagePullPolicy: Never|"
	} | k apply -f - >/dev/null
}
ready() { k wait --for=condition=Ready "pod/$1" --timeout="${2:-30}s" >/dev/null || explain "$1"; }
# phase NAME Succeeded|Failed|...
phase() { k wait --for=jsonpath='{.status.phase}'="$2" "pod/$1" --timeout="${3:-30}s" >/dev/null || explain "$1"; }
field() { k get pod "$1" -o jsonpath="{$2}"; }
gone() { k delete pod "$@" --now --wait=false >/dev/null; }
explain() {
	k get pod "$1" -o jsonpath='{.status}' | cut -c1-1500
	k get events --field-selector "involvedObject.name=$1" -o custom-columns=R:.reason,M:.message --no-headers | tail -n 5
	exit 1
}
