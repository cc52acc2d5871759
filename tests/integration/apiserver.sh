#!/bin/bash
# apiserver.sh [-a] COMMAND...     runs COMMAND beside an etcd and a kube-apiserver of its own, on free loopback ports, then ends them
# apiserver.sh up|down|stop|cont|kill|start DIR [etcd|api]    the pieces, for tests that break them: DIR holds everything
#   -a   with an audit log: $API_DIR/audit.log, one JSON line per finished request
# The command finds: API_DIR; KUBECONFIG (administrator, client certificate); kubectl on PATH.  Ready in about 4 s.
# No scheduler, no kubelet, no garbage collector: pods stay as they were made, and tests play those parts.
set -euo pipefail
BIN=${GLOVEBOX_BIN:-/var/cache/glovebox/bin}
export PATH=$BIN:$PATH
ME=$(readlink -f "$0")

free_port() { python3 -c 'import socket
s=[socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1",0)) for x in s]
print(*[x.getsockname()[1] for x in s])'; }

pair() { # pair NAME SUBJECT [ALTNAMES]
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
	openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$1.crt" ${3:+-extfile <(echo "subjectAltName=$3")} 2>/dev/null
}

up() {
	mkdir -p "$D"
	cd "$D"
	read -r CLIENT PEER SECURE < <(free_port)
	printf 'CLIENT=%s PEER=%s SECURE=%s\n' "$CLIENT" "$PEER" "$SECURE" > ports
	openssl ecparam -name prime256v1 -genkey -noout -out sa.key 2>/dev/null
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.crt -subj /CN=ca -days 30 2>/dev/null
	pair api /CN=kube-apiserver 'IP:127.0.0.1,DNS:localhost'
	pair admin /O=system:masters/CN=admin
	cat > admin.conf <<-K
		{apiVersion: v1, kind: Config, current-context: x,
		 clusters: [{name: c, cluster: {server: "https://127.0.0.1:$SECURE", certificate-authority: $D/ca.crt}}],
		 users: [{name: u, user: {client-certificate: $D/admin.crt, client-key: $D/admin.key}}], contexts: [{name: x, context: {cluster: c, user: u}}]}
	K
	printf '{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived","ResponseStarted"],"rules":[{"level":"Metadata"}]}' > audit.json
	start etcd
	start api
	wait_ready
}

start() {
	cd "$D"
	# shellcheck source=/dev/null
	. ./ports
	local audit=()
	[ -z "${API_AUDIT:-}" ] || audit=(--audit-policy-file audit.json --audit-log-path audit.log)
	case $1 in
	etcd) setsid etcd --data-dir "$D/etcd" --unsafe-no-fsync --log-level error --listen-client-urls "http://127.0.0.1:$CLIENT" \
		--advertise-client-urls "http://127.0.0.1:$CLIENT" --listen-peer-urls "http://127.0.0.1:$PEER" \
		--initial-advertise-peer-urls "http://127.0.0.1:$PEER" --initial-cluster "default=http://127.0.0.1:$PEER" > etcd.log 2>&1 & ;;
	api) setsid kube-apiserver --etcd-servers "http://127.0.0.1:$CLIENT" --bind-address 127.0.0.1 --secure-port "$SECURE" --advertise-address 127.0.0.1 \
		--service-cluster-ip-range 10.96.0.0/16 --client-ca-file ca.crt --tls-cert-file api.crt --tls-private-key-file api.key --service-account-key-file sa.key \
		--service-account-signing-key-file sa.key --service-account-issuer https://kubernetes.default.svc --authorization-mode RBAC --allow-privileged \
		--disable-admission-plugins ServiceAccount --endpoint-reconciler-type none "${audit[@]}" > api.log 2>&1 & ;;
	esac
	echo $! > "$1.pid"
}

wait_ready() {
	for _ in $(seq 600); do
		kubectl --kubeconfig "$D/admin.conf" get --raw /readyz > /dev/null 2>&1 && kubectl --kubeconfig "$D/admin.conf" get ns default > /dev/null 2>&1 && return
		sleep .1
	done
	tail -n 20 "$D/api.log" >&2
	echo "apiserver.sh: the API server is not ready after 60 s" >&2
	return 1
}

finish() { # finish api|etcd SIGNAL: ends it and waits
	local pid
	pid=$(cat "$D/$1.pid" 2>/dev/null) || return 0
	kill -CONT "$pid" 2>/dev/null || true
	kill "-$2" "$pid" 2>/dev/null || true
	for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || { rm -f "$D/$1.pid"; return 0; }; sleep .1; done
	kill -9 "$pid" 2>/dev/null || true
	rm -f "$D/$1.pid"
}

case ${1:-} in
up | down | stop | cont | kill | start | ready)
	D=$2
	case $1 in
	up) up ;;
	down) finish api TERM; finish etcd TERM; rm -rf "$D" ;;
	kill) finish "$3" KILL ;;
	start) start "$3" ;;
	ready) wait_ready ;;
	stop) kill -STOP "$(cat "$D/$3.pid")" ;;
	cont) kill -CONT "$(cat "$D/$3.pid")" ;;
	esac
	;;
'' | -h) sed -n '2,7s/^# //p' "$0" >&2; exit 2 ;;
*)
	if [ "$1" = -a ]; then export API_AUDIT=1; shift; fi
	API_DIR=$(mktemp -d /tmp/gbapi.XXXXXX)
	trap '"$ME" down "$API_DIR"' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	"$ME" up "$API_DIR"
	export API_DIR KUBECONFIG=$API_DIR/admin.conf
	"$@"
	;;
esac
