#!/bin/bash
# layering.sh: every #include "..." is one that this table allows: folder, and the folders whose headers its files may include.
# Lower layers never include upper ones, and neighbours of a layer keep apart; docs/architecture.md says what each folder is for.
# shellcheck source=hack/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$TOP"
TABLE="
base:
shim/ttrpc: base
shim/oci: base
shim/filter: base
shim/egress: base
shim/cgroup: base shim/oci
shim/hibernate: base shim/cgroup
shim/launcher: base shim/oci shim/cgroup shim/filter
shim/sentry: base shim/oci shim/cgroup shim/filter shim/egress shim/launcher
shim/runtime: base shim/ttrpc shim/oci shim/cgroup shim/filter shim/egress shim/hibernate shim/launcher shim/sentry
shim/service: base shim/ttrpc shim/oci shim/cgroup shim/filter shim/egress shim/hibernate shim/launcher shim/sentry shim/runtime
shim/cli: base shim/ttrpc shim/oci shim/cgroup shim/filter shim/launcher shim/sentry shim/runtime shim/service
shim: base shim/oci shim/cli shim/service shim/runtime shim/launcher shim/sentry shim/hibernate
controller/kube: base
controller/core: base controller/kube
controller/sandbox: base controller/kube controller/core
controller/node: base shim/ttrpc controller/kube controller/core controller/sandbox
controller/install: base controller/kube controller/sandbox controller/cli
controller/cli: base controller/kube controller/core controller/sandbox controller/node
controller: base controller/kube controller/core controller/sandbox controller/node controller/install controller/cli
"
rc=0
while IFS=: read -r folder allowed; do
	[ "$folder" ] || continue
	for file in "$folder"/*.[ch]; do
		[ -e "$file" ] || continue
		while read -r target; do
			from=${target%/*}
			[ "$target" != "$from" ] || continue # generated headers have no folder
			[[ " $allowed $folder " == *" $from "* ]] || { echo "$file includes \"$target\", which $folder may not"; rc=1; }
		done < <(sed -n 's/^# *include "\(.*\)".*/\1/p' "$file")
	done
done <<< "$TABLE"
for folder in $(git ls-files 'base/*.c' 'shim/**/*.c' 'controller/**/*.c' | xargs -r -n 1 dirname | sort -u); do
	grep -q "^$folder:" <<< "$TABLE" || { echo "$folder is not in the table of hack/layering.sh"; rc=1; }
done
exit $rc
