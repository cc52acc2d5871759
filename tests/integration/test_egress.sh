#!/bin/bash
# rig: 2.4
# timeout: 240
# Egress policies from inside a pod: real clients, a world of servers in the rig's own network namespace.
. "$(dirname "$0")/../../hack/lib.sh"
. "$(dirname "$0")/lib.sh"
[ "$RIG_RUNTIME" = io.containerd.glovebox.v1 ] || skip "only glovebox has egress policies"
HERE=$TOP/tests/integration/egress
WORK=$(mktemp -d "$RIG_DIR/egress.XXXXXX")
chmod 755 "$WORK"
cp "$HERE/client.py" "$HERE/hold.py" "$WORK/"
for ip in 198.51.100.10 198.51.100.20 198.51.100.30 198.51.100.53 169.254.169.254; do ip addr add $ip/32 dev lo; done
python3 "$HERE/servers.py" "$WORK/world.log" > "$WORK/ready" & WORLD=$!
trap 'kill $WORLD 2>/dev/null' EXIT
until_ 10 grep -q ready "$WORK/ready" || fail "the servers do not start"

P1='{"name":"P1","generation":1,"rules":[
 {"name":"api","hosts":["api.test.example","rebind.test.example"],"ports":[443]},
 {"name":"wild","hosts":["**.wild.test.example"],"ports":[443]},
 {"name":"raw","cidrs":["198.51.100.20/32"],"ports":[9000]},
 {"name":"echo","cidrs":["198.51.100.30"],"ports":[7],"protocol":"UDP"}]}'

# pod POLICY: a pod with this annotation; $POD and $BOX are its sandbox and its container
pod() {
	python3 - "$1" "$WORK" "$RIG_IMAGE" <<-'P'
		import json, sys
		policy, work, image = sys.argv[1:]
		pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u", "attempt": 1}, "log_directory": work, "linux": {"cgroup_parent": "/k8s.io/egress"},
		       "dns_config": {"servers": ["198.51.100.53"], "searches": ["ns1.svc.cluster.local", "svc.cluster.local"], "options": ["ndots:5"]}}
		if policy:
		    pod["annotations"] = {"glovebox.dev/egress": policy}
		mounts = [{"host_path": h, "container_path": c, "readonly": True} for h, c in (("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64"), (work, "/t"))]
		box = {"metadata": {"name": "c"}, "image": {"image": image}, "command": ["sleep", "1000"], "log_path": "c.log", "mounts": mounts, "linux": {}}
		json.dump(pod, open(f"{work}/pod.json", "w"))
		json.dump(box, open(f"{work}/box.json", "w"))
	P
	POD=$(crictl runp -r "$RIG_HANDLER" "$WORK/pod.json")
	BOX=$(crictl create "$POD" "$WORK/box.json" "$WORK/pod.json")
	crictl start "$BOX" >/dev/null
}
gone() { crictl rmp -f "$POD" >/dev/null; }
client() { crictl exec -i "$BOX" /usr/bin/python3 /t/client.py; }
expect() { # expect LINES: "attempt: result" lines; the attempts are made, the results compared
	local got
	got=$(sed 's/: [^:]*$//' <<<"$1" | client)
	[ "$got" = "$1" ] || { diff <(printf '%s\n' "$1") <(printf '%s\n' "$got") | sed 's/^/  /'; broken "other results than expected"; }
}
audit() { cat /var/log/glovebox/*"$POD"*.jsonl 2>/dev/null; }

it_lets_through_what_a_rule_names_and_refuses_the_rest_at_once() {
	pod "$P1"
	expect 'tcp 198.51.100.10 443: Connection refused
tcp api.test.example 443: hello
tcp 198.51.100.10 443: hello
tcp 198.51.100.10 80: Connection refused
tcp 198.51.100.20 9000: hello
tcp 198.51.100.20 443: Connection refused
tcp evil.test.example 443: no such name
tcp 169.254.169.254 80: Permission denied
tcp ::ffff:169.254.169.254 80: Permission denied
tcp ::ffff:198.51.100.20 9000: hello
udp 198.51.100.30 7: echo
udpmsg 198.51.100.30 7: echo
udpconnect 198.51.100.30 7: echo
udp 198.51.100.10 443: Operation not permitted
udpmsg 198.51.100.10 443: Operation not permitted
udpconnect 198.51.100.10 443: Connection refused'
	audit > "$WORK/audit"
	for reason in no_grant port hard_deny; do grep -q "egress P1 generation 1: $reason" "$WORK/audit" || broken "no audit record says $reason"; done
	gone
}
it_asks_the_cluster_only_for_names_that_a_rule_lists() {
	: > "$WORK/world.log"
	pod "$P1"
	expect 'tcp evil.test.example 443: no such name
tcp cdn.test.example 443: no such name
tcp deep.a.wild.test.example 443: hello'
	like "$(crictl exec "$BOX" nslookup evil.test.example 2>&1 || true)" REFUSED
	! grep -qE 'evil|cdn' "$WORK/world.log" || broken "a name that no rule lists was asked for: $(cat "$WORK/world.log")"
	gone
}
it_never_hands_out_addresses_that_are_closed_for_good() {
	pod "$P1"
	expect 'tcp rebind.test.example 443: hello'
	! crictl exec "$BOX" nslookup rebind.test.example | grep -q 169.254 || broken "the metadata address was given out"
	gone
}
it_answers_no_other_server_for_the_pod() {
	pod "$P1"
	expect 'udp 8.8.8.8 53: Operation not permitted
tcp 198.51.100.20 53: Connection refused'
	gone
}
it_decides_on_its_own_copy_while_another_thread_rewrites_the_address() {
	pod "$P1"
	expect 'race 198.51.100.20 198.51.100.10 9000 20000: 198.51.100.20'
	gone
}
it_refuses_everything_but_loopback_under_none_and_under_a_name_that_nobody_has_sent() {
	local policy
	for policy in none some-policy; do
		pod $policy
		expect 'tcp 198.51.100.20 9000: Connection refused
tcp api.test.example 443: no such name
own 5000: own'
		gone
	done
}
it_cuts_what_a_new_policy_no_longer_allows_within_a_second_and_leaves_the_rest() {
	local socket
	pod "$P1"
	socket=$(echo /run/glovebox/pods/"$POD".sock)
	crictl exec "$BOX" /usr/bin/python3 -u /t/hold.py 198.51.100.20:9000 198.51.100.30:7 > "$WORK/held" & HOLD=$!
	eventually 5 grep -q holding "$WORK/held"
	python3 "$HERE/set_egress.py" "$socket" '{"name":"P2","generation":2,"rules":[{"name":"echo","cidrs":["198.51.100.30"],"ports":[7],"protocol":"UDP"}]}'
	eventually 2 grep -q '198.51.100.20:9000 ended' "$WORK/held"
	sleep .5
	! grep -q '198.51.100.30:7 ended' "$WORK/held" || broken "an allowed flow was cut"
	expect 'tcp 198.51.100.20 9000: Connection refused
udp 198.51.100.30 7: echo'
	refused 'rules\[0\] must name' python3 "$HERE/set_egress.py" "$socket" '{"rules":[{"name":"x"}]}'
	expect 'udp 198.51.100.30 7: echo'
	python3 "$HERE/set_egress.py" "$socket" "$P1"
	expect 'tcp 198.51.100.20 9000: hello'
	kill $HOLD 2>/dev/null || true
	gone
}
it_refuses_new_connections_when_the_lease_is_over_and_allows_them_when_it_is_confirmed() {
	pod '{"name":"L","leaseSeconds":2,"rules":[{"name":"raw","cidrs":["198.51.100.20/32"]}]}'
	expect 'tcp 198.51.100.20 9000: hello'
	sleep 2.2
	expect 'tcp 198.51.100.20 9000: Connection refused'
	python3 "$HERE/set_egress.py" /run/glovebox/pods/"$POD".sock confirm
	expect 'tcp 198.51.100.20 9000: hello'
	gone
}
it_leaves_a_pod_without_the_annotation_to_its_network() {
	pod ''
	expect 'tcp 198.51.100.10 443: hello
tcp evil.test.example 443: hello'
	gone
}
it_refuses_a_pod_whose_policy_is_not_one_with_the_field() {
	local text
	text=$( (pod '{"rules":[{"hosts":["*"]}]}') 2>&1) && broken "the pod was made"
	like "$text" 'glovebox.dev/egress: rules\[0\].hosts\[0\] must be a host name'
}
run_cases
