#!/bin/bash
# The Helm chart on a cluster of its own: install on a node that knows nothing of glovebox, sandboxes, upgrade, rollback, uninstall.
# slow: it brings up a cluster
# timeout: 600
set -uo pipefail
HERE=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
TOP=$HERE/../..
export GB_CLUSTER=${CHART_CLUSTER:-chart}
D=${GB_SCRATCH:-/var/lib/glovebox-test}/cluster-$GB_CLUSTER
CHART=$TOP/charts/glovebox
WORK=$(mktemp -d)
K() { "$TOP/hack/cluster" run kubectl "$@"; }
H() { "$TOP/hack/cluster" run helm "$@"; }
failed=0
ok() { printf 'ok %s (%s ms)\n' "$1" $(($(date +%s%3N) - began)); began=$(date +%s%3N); }
bad() { printf 'FAIL %s: %s\n' "$1" "$2"; failed=1; K get pods -A -o wide; K -n glovebox get events | tail -n 8; K -n glovebox logs -l app.kubernetes.io/name=glovebox --all-containers --tail=12 --prefix 2>&1 | tail -n 30; end; exit 1; }
end() { [ "${KEEP:-}" ] || "$TOP/hack/cluster" down; rm -rf "$WORK"; }
trap 'end; exit 130' INT TERM

"$TOP/hack/image" "$WORK/glovebox.tar" || exit 1
began=$(date +%s%3N)
"$TOP/hack/cluster" down >/dev/null 2>&1
GLOVEBOX_SHIM=/nonexistent "$TOP/hack/cluster" up || exit 1
"$TOP/hack/cluster" load "$WORK/glovebox.tar" || exit 1
# As a node is before: containerd knows no such runtime.
sed -i '/containerd.runtimes.glovebox/d' "$D/etc/config.toml"
cp "$D/etc/config.toml" "$WORK/before.toml"
"$TOP/hack/cluster" run sh -c 'kill $(cat /run/containerd.pid)'
sleep 1
K delete runtimeclass glovebox >/dev/null
ok "a cluster without glovebox"

# The node's service manager, as far as the installer needs it: who writes the file gets containerd restarted.
"$TOP/hack/cluster" run sh -c 'while [ -e /run/containerd.pid ]; do [ ! -e /run/please-restart ] || { kill $(cat /run/containerd.pid); sleep 1; rm -f /run/please-restart; }; sleep .1; done' < /dev/null > /dev/null 2>&1 &
RESTART='touch /run/please-restart; while [ -e /run/please-restart ]; do sleep .1; done'
VALUES=(--namespace glovebox --set "node.install.binDir=$D/bin" --set-string "node.install.restartCommand=$RESTART" --set image.pullPolicy=Never)
H install glovebox "$CHART" --create-namespace "${VALUES[@]}" --wait --timeout 120s > "$WORK/install.log" 2>&1 || bad "helm install" "$(tail -n 5 "$WORK/install.log")"
ok "helm install"
K get nodes -L glovebox.dev/ready --no-headers | grep -q 'true$' || bad "the node is labelled ready" "$(K get nodes -L glovebox.dev/ready)"
grep -q 'glovebox: begin' "$D/etc/config.toml" || bad "containerd's configuration has the entry" "$(cat "$D/etc/config.toml")"
cmp -s "$WORK/before.toml" "$D/etc/config.toml.before-glovebox" || bad "the old file is kept" "it differs"
ok "the node is labelled, configured, and the old file kept"

for account in glovebox-controller glovebox-node; do
	for deny in "get secrets" "list secrets" "create clusterrolebindings" "impersonate users" "create pods --subresource=exec" "delete nodes" "get configmaps" "create serviceaccounts --subresource=token"; do
		# shellcheck disable=SC2086
		[ "$(K auth can-i $deny -A --as "system:serviceaccount:glovebox:$account" 2>/dev/null)" = no ] || bad "least privilege" "$account can $deny"
	done
	printf '    %s: %s\n' "$account" "$(K auth can-i --list --as "system:serviceaccount:glovebox:$account" 2>/dev/null | awk 'NR > 1 && $1 !~ /^\[|selfsubject/ {v = ""; for (i = NF; i > 0; i--) {v = $i " " v; if ($i ~ /^\[/) break}; printf "%s %s; ", $1, v}' | cut -c1-1500)"
done
ok "no account can read secrets, run in pods or give itself more"

K apply -f - > /dev/null <<'Y' || bad "a sandbox is accepted" "apply"
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: counter}
spec:
  podTemplate:
    spec:
      runtimeClassName: glovebox
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: localhost/busybox:1
        imagePullPolicy: Never
        command: [sh, -c, 'i=0; while :; do i=$((i + 1)); echo $i > /tmp/n; sleep 0.1; done']
Y
K wait --for=condition=Ready sandbox/counter --timeout=60s > /dev/null || bad "a sandbox is Ready" "$(K describe sandbox counter | tail -n 20)"
ok "a sandbox is Ready"
n() { K exec counter -- cat /tmp/n; }
uid=$(K get pod counter -o jsonpath='{.metadata.uid}')
sleep 1
first=$(n)
t=$(date +%s%3N)
K patch sandbox counter --type=merge -p '{"spec":{"paused":true}}' > /dev/null
K wait --for=condition=Paused sandbox/counter --timeout=20s > /dev/null || bad "paused" "$(K get sandbox counter -o yaml | tail -n 40)"
printf '    paused %s ms after kubectl patch began\n' $(($(date +%s%3N) - t))
sleep 3
K patch sandbox counter --type=merge -p '{"spec":{"paused":false}}' > /dev/null
K wait --for=condition=Ready sandbox/counter --timeout=20s > /dev/null || bad "resumed" "$(K get sandbox counter -o yaml | tail -n 40)"
second=$(n)
[ "$uid" = "$(K get pod counter -o jsonpath='{.metadata.uid}')" ] || bad "pause keeps the pod" "it was replaced"
[ "$second" -ge "$first" ] && [ $((second - first)) -lt 30 ] || bad "the process went on where it was" "$first, then $second"
ok "paused and resumed in place: the counter went from $first to $second over 3 s of pause"

restarts() { K get pod counter -o jsonpath='{.status.containerStatuses[0].restartCount}'; }
H upgrade glovebox "$CHART" "${VALUES[@]}" --set controller.logLevel=debug --wait --timeout 120s > "$WORK/upgrade.log" 2>&1 || bad "helm upgrade" "$(tail -n 5 "$WORK/upgrade.log")"
[ "$(n)" -gt "$second" ] && [ "$(restarts)" = 0 ] || bad "an upgrade stops no sandbox" "restarts $(restarts)"
ok "helm upgrade stops no sandbox"
H rollback glovebox 1 --namespace glovebox --wait --timeout 120s > "$WORK/rollback.log" 2>&1 || bad "helm rollback" "$(tail -n 5 "$WORK/rollback.log")"
[ "$uid" = "$(K get pod counter -o jsonpath='{.metadata.uid}')" ] || bad "a rollback stops no sandbox" "it was replaced"
ok "helm rollback"

K delete sandbox counter --timeout=60s > /dev/null || bad "delete" "sandbox"
K wait --for=delete pod/counter --timeout=60s > /dev/null 2>&1
H uninstall glovebox --namespace glovebox --wait --timeout 240s > "$WORK/uninstall.log" 2>&1 || bad "helm uninstall" "$(tail -n 5 "$WORK/uninstall.log")"
[ ! -e "$D/bin/containerd-shim-glovebox-v1" ] || bad "uninstall removes the shim" "it is there"
cmp -s "$WORK/before.toml" "$D/etc/config.toml" || bad "uninstall restores containerd's configuration" "$(diff "$WORK/before.toml" "$D/etc/config.toml")"
K get nodes -L glovebox.dev/ready --no-headers | grep -q 'true$' && bad "uninstall removes the label" "it is there"
[ "$(K get clusterroles,clusterrolebindings,runtimeclasses -o name | grep -c glovebox)" = 0 ] || bad "uninstall leaves nothing" "$(K get clusterroles,clusterrolebindings,runtimeclasses -o name | grep glovebox)"
ok "helm uninstall undoes all of it"
end
exit $failed
