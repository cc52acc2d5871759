#!/bin/bash
# cluster: yes
# timeout: 600
# Pods through the real kubelet: what every user of a cluster relies on.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"

it_runs_to_the_end_and_keeps_its_log() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "echo out; echo err >&2; exit 3"]}'
	phase "$CASE" Failed
	same "$(field "$CASE" '.status.containerStatuses[0].state.terminated.exitCode')" 3 'exit code'
	like "$(k logs "$CASE" | sort | tr '\n' ' ')" 'err out' log
	gone "$CASE"
}
it_follows_a_log_without_losing_a_line() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"]}'
	phase "$CASE" Succeeded
	same "$(k logs "$CASE" | wc -l)" 20000 'number of lines'
	gone "$CASE"
}
it_execs_with_status_stdin_and_terminal() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	ready "$CASE"
	status 7 k exec "$CASE" -- sh -c 'exit 7'
	same "$(echo hi | k exec -i "$CASE" -- cat)" hi 'what cat printed'
	same "$(head -c 300000 /dev/zero | k exec -i "$CASE" -- wc -c)" 300000 'number of bytes'
	if [ -z "${KUBECONFIG:-}" ]; then
		like "$(script -qec "$HACK/cluster run kubectl -n $NS exec -it $CASE -- sh -c 'tty; echo \$((6*7))'" /dev/null < /dev/null)" '/dev/pts/.*42' 'the terminal'
	fi
	gone "$CASE"
}
it_attaches() {
	pod "$CASE" <<< '- {name: c, IMAGE, stdin: true, stdinOnce: true, command: [sh, -c, "read x; echo got $x"]}'
	ready "$CASE"
	like "$(echo word | k attach -i "$CASE" 2>/dev/null; k logs "$CASE")" 'got word' 'what the container read'
	phase "$CASE" Succeeded
	gone "$CASE"
}
it_copies_files_both_ways() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	ready "$CASE"
	local d
	d=$(mktemp -d)
	head -c 2000000 /dev/urandom > "$d/in"
	k cp "$d/in" "$CASE:/tmp/file"
	k cp "$CASE:/tmp/file" "$d/out" >/dev/null
	cmp "$d/in" "$d/out"
	rm -r "$d"
	gone "$CASE"
}
it_serves_other_pods_and_a_service() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "mkdir /www; echo served > /www/index.html; exec httpd -f -p 8080 -h /www"]}'
	k expose pod "$CASE" --port 80 --target-port 8080 >/dev/null
	ready "$CASE"
	pod "$CASE-client" <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	ready "$CASE-client"
	local ip service
	ip=$(field "$CASE" .status.podIP)
	service=$(k get service "$CASE" -o jsonpath='{.spec.clusterIP}')
	eventually 10 k exec "$CASE-client" -- wget -q -O - "http://$ip:8080/"
	same "$(k exec "$CASE-client" -- wget -q -O - "http://$ip:8080/")" served 'the page, by address'
	eventually 10 k exec "$CASE-client" -- wget -q -O - "http://$service/"
	same "$(k exec "$CASE-client" -- wget -q -O - "http://$service/")" served 'the page, by service'
	k delete service "$CASE" >/dev/null
	gone "$CASE" "$CASE-client"
}
it_forwards_a_port() {
	[ -z "${KUBECONFIG:-}" ] || skip_case 'forwards in the namespace of the own cluster'
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "mkdir /www; echo forwarded > /www/index.html; exec httpd -f -p 8080 -h /www"]}'
	ready "$CASE"
	same "$("$HACK/cluster" run sh -c "kubectl -n $NS port-forward pod/$CASE 18080:8080 >/dev/null & p=\$!; for i in \$(seq 50); do busybox wget -q -O - http://127.0.0.1:18080/ 2>/dev/null && break; sleep .1; done; kill \$p")" forwarded 'the page'
	gone "$CASE"
}
it_becomes_ready_by_http_tcp_and_exec_probes() {
	pod "$CASE" <<-'Y'
	- {name: http, IMAGE, command: [sh, -c, "mkdir /www; echo x > /www/index.html; sleep 1; exec httpd -f -p 8080 -h /www"],
	   readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}}
	- {name: tcp, IMAGE, command: [httpd, -f, -p, "8081"], readinessProbe: {tcpSocket: {port: 8081}, periodSeconds: 1}}
	- {name: exec, IMAGE, command: [sh, -c, "sleep 1; touch /tmp/ok; sleep 1000"], readinessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 1}}
	Y
	ready "$CASE"
	k exec "$CASE" -c exec -- rm /tmp/ok
	eventually 15 eval "[ \"\$(field $CASE '.status.conditions[?(@.type==\"Ready\")].status')\" = False ]"
	gone "$CASE"
}
it_is_restarted_by_a_failing_liveness_probe() {
	RESTART=Always pod "$CASE" <<-'Y'
	- {name: c, IMAGE, command: [sh, -c, "touch /tmp/ok; sleep 3; rm /tmp/ok; sleep 1000"],
	   livenessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1}}
	Y
	eventually 40 eval "[ \"\$(field $CASE '.status.containerStatuses[0].restartCount')\" -ge 1 ]"
	gone "$CASE"
}
it_restarts_as_its_policy_says() {
	RESTART=OnFailure pod "$CASE" 'volumes: [{name: d, emptyDir: {}}]' <<-'Y'
	- {name: c, IMAGE, command: [sh, -c, "[ -e /data/again ] && exit 0; touch /data/again; exit 1"], volumeMounts: [{name: d, mountPath: /data}]}
	Y
	phase "$CASE" Succeeded 60
	same "$(field "$CASE" '.status.containerStatuses[0].restartCount')" 1 restarts
	gone "$CASE"
}
it_runs_init_containers_in_order_and_then_a_sidecar() {
	pod "$CASE" 'initContainers:
- {name: one, image: "'"$IMAGE"'", imagePullPolicy: Never, command: [sh, -c, "echo 1 >> /d/o"], volumeMounts: [{name: d, mountPath: /d}]}
- {name: side, image: "'"$IMAGE"'", imagePullPolicy: Never, restartPolicy: Always, command: [sh, -c, "echo side >> /d/o; sleep 1000"], volumeMounts: [{name: d, mountPath: /d}]}
- {name: two, image: "'"$IMAGE"'", imagePullPolicy: Never, command: [sh, -c, "until grep -q side /d/o; do sleep .1; done; echo 2 >> /d/o"], volumeMounts: [{name: d, mountPath: /d}]}
volumes: [{name: d, emptyDir: {}}]' <<< '- {name: c, IMAGE, command: [sh, -c, "echo main >> /d/o; cat /d/o"], volumeMounts: [{name: d, mountPath: /d}]}'
	phase "$CASE" Succeeded 40
	same "$(k logs "$CASE" -c c | tr '\n' ' ')" '1 side 2 main ' 'the order'
	gone "$CASE"
}
it_keeps_memory_to_the_limit_and_says_oomkilled() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "x=a; while :; do x=$x$x; done"], resources: {limits: {memory: 40Mi, cpu: 500m}}}'
	phase "$CASE" Failed
	same "$(field "$CASE" '.status.containerStatuses[0].state.terminated.reason')" OOMKilled reason
	same "$(field "$CASE" '.status.containerStatuses[0].state.terminated.exitCode')" 137 'exit code'
	gone "$CASE"
}
it_shows_a_container_its_own_limits() {
	[ "$RUNTIME" != runc ] || skip_case 'runc shows those of the machine'
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "nproc; free -m | awk \"/Mem/ {print \\$2}\""], resources: {limits: {memory: 64Mi, cpu: 1}}}'
	phase "$CASE" Succeeded
	same "$(k logs "$CASE" | tr '\n' ' ')" '1 64 ' 'processors and MiB'
	gone "$CASE"
}
it_counts_what_a_pod_uses() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "dd if=/dev/zero of=/tmp/f bs=1M count=5 2>/dev/null; while :; do :; done"]}'
	ready "$CASE"
	local node
	node=$(field "$CASE" .spec.nodeName)
	eventually 30 eval "k get --raw /api/v1/nodes/$node/proxy/stats/summary | jq -e '.pods[] | select(.podRef.name == \"$CASE\") | .containers[0] | .cpu.usageCoreNanoSeconds > 100000000 and .memory.workingSetBytes > 100000'"
	gone "$CASE"
}
it_lets_two_containers_share_network_and_volume() {
	pod "$CASE" 'volumes: [{name: d, emptyDir: {}}]' <<-'Y'
	- {name: a, IMAGE, command: [sh, -c, "echo page > /d/index.html; exec httpd -f -p 8080 -h /d"], volumeMounts: [{name: d, mountPath: /d}]}
	- {name: b, IMAGE, command: [sh, -c, "until wget -q -O - http://127.0.0.1:8080/; do sleep .1; done; cat /d/index.html; sleep 1000"], volumeMounts: [{name: d, mountPath: /d}]}
	Y
	ready "$CASE"
	eventually 10 eval "[ \"\$(k logs $CASE -c b | tr '\\n' ' ')\" = 'page page ' ]"
	like "$(k exec "$CASE" -c a -- ps)" 'httpd' 'processes of a'
	[[ ! $(k exec "$CASE" -c b -- ps) =~ httpd ]] || broken 'container b sees the processes of a'
	gone "$CASE"
}
it_shares_processes_when_the_pod_asks() {
	pod "$CASE" 'shareProcessNamespace: true' <<-'Y'
	- {name: a, IMAGE, command: [sleep, "1111"]}
	- {name: b, IMAGE, command: [sleep, "2222"]}
	Y
	ready "$CASE"
	like "$(k exec "$CASE" -c b -- ps)" 'sleep 1111' 'what b sees of a'
	gone "$CASE"
}
it_mounts_config_maps_secrets_and_sub_paths() {
	k create configmap "$CASE" --from-literal=key=value --from-literal=other=two >/dev/null
	k create secret generic "$CASE" --from-literal=password=secret >/dev/null
	pod "$CASE" "volumes:
- {name: cm, configMap: {name: $CASE}}
- {name: s, secret: {secretName: $CASE, defaultMode: 0400}}
- {name: d, emptyDir: {medium: Memory, sizeLimit: 10Mi}}
- {name: p, projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, {configMap: {name: $CASE, items: [{key: other, path: deep/other}]}}]}}" <<-Y
	- {name: c, IMAGE, command: [sleep, "1000"], env: [{name: V, valueFrom: {configMapKeyRef: {name: $CASE, key: key}}}],
	   volumeMounts: [{name: cm, mountPath: /cm}, {name: s, mountPath: /s, readOnly: true}, {name: d, mountPath: /d}, {name: p, mountPath: /p},
	     {name: cm, mountPath: /etc/only/one, subPath: key}, {name: d, mountPath: /sub, subPath: inner/folder}]}
	Y
	ready "$CASE"
	same "$(k exec "$CASE" -- sh -c 'cat /cm/key /etc/only/one /s/password /p/name /p/deep/other; echo $V; touch /sub/x; ls /d/inner/folder')" \
		"valuevaluesecret${CASE}twovalue
x" 'what the volumes hold'
	same "$(k exec "$CASE" -- stat -L -c '%a %u' /s/password)" '400 0' 'mode and owner of the secret'
	status 1 k exec "$CASE" -- sh -c 'echo x > /s/password' 2>/dev/null
	k patch configmap "$CASE" -p '{"data":{"key":"changed"}}' >/dev/null
	eventually 100 eval "[ \"\$(k exec $CASE -- cat /cm/key)\" = changed ]"
	gone "$CASE"
}
it_keeps_users_groups_and_a_read_only_root() {
	pod "$CASE" 'securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000, runAsNonRoot: true}
volumes: [{name: d, emptyDir: {}}]' <<-'Y'
	- {name: c, IMAGE, command: [sleep, "1000"], securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}},
	   volumeMounts: [{name: d, mountPath: /d}]}
	Y
	ready "$CASE"
	same "$(k exec "$CASE" -- sh -c 'id -u; id -G; touch /d/f && stat -c %g /d/f; grep -E "CapEff|NoNewPrivs" /proc/self/status | tr -s "\t\n" " "')" \
		"1000
1000 2000
2000
CapEff: 0000000000000000 NoNewPrivs: 1 " 'identity'
	status 1 k exec "$CASE" -- touch /f 2>/dev/null
	gone "$CASE"
}
it_ends_gracefully_and_is_killed_when_it_does_not() {
	GRACE=10 pod "$CASE" <<< '- {name: c, IMAGE, command: [sh, -c, "trap \"echo bye; exit 0\" TERM; echo up; while :; do sleep .1; done"], lifecycle: {preStop: {exec: {command: [sh, -c, "echo pre > /proc/1/fd/1"]}}}}'
	ready "$CASE"
	k logs -f "$CASE" > "/tmp/$NS-$CASE" & local follow=$!
	eventually 5 grep -q up "/tmp/$NS-$CASE"
	k delete pod "$CASE" --grace-period=10 >/dev/null
	wait $follow || true
	same "$(tr '\n' ' ' < "/tmp/$NS-$CASE")" 'up pre bye ' 'the last words'
	rm "/tmp/$NS-$CASE"
	pod "$CASE-2" <<< '- {name: c, IMAGE, command: [sh, -c, "trap : TERM; while :; do sleep .1; done"]}'
	ready "$CASE-2"
	local began=$SECONDS
	k delete pod "$CASE-2" --grace-period=2 --timeout=20s >/dev/null
	[ $((SECONDS - began)) -lt 15 ] || broken 'it took too long'
}
it_takes_new_limits_while_running() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sleep, "1000"], resources: {requests: {cpu: 100m, memory: 50Mi}, limits: {cpu: 200m, memory: 50Mi}}}'
	ready "$CASE"
	k patch pod "$CASE" --subresource resize -p '{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"300m","memory":"80Mi"}}}]}}' >/dev/null
	eventually 30 eval "[ \"\$(field $CASE '.status.containerStatuses[0].resources.limits.cpu')\" = 300m ]"
	same "$(field "$CASE" '.status.containerStatuses[0].restartCount')" 0 restarts
	gone "$CASE"
}
it_debugs_with_an_ephemeral_container() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	ready "$CASE"
	k debug "$CASE" --image="$IMAGE" --image-pull-policy=Never -c dbg --profile=general -- sh -c 'echo debugging' >/dev/null
	eventually 20 eval "[ \"\$(k logs $CASE -c dbg 2>/dev/null)\" = debugging ]"
	gone "$CASE"
}
it_finishes_a_job() {
	k apply -f - >/dev/null <<-Y
	{apiVersion: batch/v1, kind: Job, metadata: {name: $CASE}, spec: {completions: 3, parallelism: 3, template: {spec: {runtimeClassName: $RUNTIME, restartPolicy: Never,
	  containers: [{name: c, image: "$IMAGE", imagePullPolicy: Never, command: [echo, done]}]}}}}
	Y
	k wait --for=condition=Complete "job/$CASE" --timeout=40s >/dev/null
	k delete job "$CASE" >/dev/null
}
it_refuses_what_would_open_the_box_and_says_why_in_the_events() {
	[ "$RUNTIME" = glovebox ] || skip_case "only glovebox refuses"
	pod "$CASE-net" 'hostNetwork: true' <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	pod "$CASE-pid" 'hostPID: true' <<< '- {name: c, IMAGE, command: [sleep, "1000"]}'
	pod "$CASE-priv" <<< '- {name: c, IMAGE, command: [sleep, "1000"], securityContext: {privileged: true}}'
	eventually 20 eval "k get events --field-selector involvedObject.name=$CASE-net | grep -i 'host.*network'"
	eventually 20 eval "k get events --field-selector involvedObject.name=$CASE-pid | grep -i 'host.*pid\|host.*process'"
	eventually 20 eval "k get events --field-selector involvedObject.name=$CASE-priv | grep -i privileged"
	gone "$CASE-net" "$CASE-pid" "$CASE-priv"
}
it_says_which_program_is_missing() {
	pod "$CASE" <<< '- {name: c, IMAGE, command: [no-such-program]}'
	eventually 20 eval "k get pod $CASE -o jsonpath='{.status.containerStatuses[0].state}' | grep no-such-program"
	gone "$CASE"
}
run_cases
