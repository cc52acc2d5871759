# shellcheck shell=bash
# Shared by the scripts in this folder: where things are kept, and how the scripts speak.  Source it first.
#   GB_CACHE    programs, images and other things that are made once   (default: $XDG_CACHE_HOME/glovebox, else /var/cache/glovebox)
#   GB_SCRATCH  what one run needs and removes                         (default: /var/lib/glovebox-test)
# shellcheck disable=SC2034
set -euo pipefail
umask 022
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${GB_CACHE:-${XDG_CACHE_HOME:+$XDG_CACHE_HOME/glovebox}}
CACHE=${CACHE:-/var/cache/glovebox}
SCRATCH=${GB_SCRATCH:-/var/lib/glovebox-test}
BIN=$CACHE/bin
PROFILE=${PROFILE:-debug}
SHIM=${GLOVEBOX_SHIM:-$TOP/build/$PROFILE/containerd-shim-glovebox-v1}
# The distribution's own python and tools come first: a version manager's shims are slow and lack the distribution's modules.
PATH=${RIG_DIR:+$RIG_DIR/bin:$RIG_PROGRAMS:$BIN:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin:$PATH
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1 # each call of ctr would speak of cgroup v1
export TOP CACHE SCRATCH BIN PATH

ME=${0##*/}
say() { printf '%s: %s\n' "$ME" "$*" >&2; }
fail() { say "$@"; exit 1; }
skip() { say "skipped: $*"; exit 77; }
need_root() { [ "$(id -u)" = 0 ] || fail "must run as root"; }
# need PROGRAM...: all of them, or one sentence that says what to install
need() {
	local p missing=()
	for p in "$@"; do command -v "$p" >/dev/null || missing+=("$p"); done
	[ ${#missing[@]} = 0 ] || fail "missing: ${missing[*]}; install the packages in hack/packages, then run hack/build"
}
# until_ SECONDS COMMAND...: repeats it until it succeeds; 1 when the time is over
until_() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || return 1
		sleep .1
	done
}
