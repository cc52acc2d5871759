#!/bin/bash
# budget.sh: sizes that keep code readable. Fails at a function over 80 lines, a file over 800, a header over 200, more than 7 parameters;
# -w also prints what is over 60 and 500. hack/budget-allowed.txt names exceptions with a reason; it only shrinks.
# shellcheck source=hack/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$TOP"
need ctags
git ls-files 'base/*.[ch]' 'shim/*.[ch]' 'controller/*.[ch]' | ctags -L - -o - --languages=C --kinds-C=f --fields=+neS --output-format=json |
	/usr/bin/python3 -c '
import json, subprocess, sys
warn = "-w" in sys.argv
allowed = {line.split()[0] for line in open("hack/budget-allowed.txt") if line.strip() and not line.startswith("#")}
bad = []
def check(where, what, size, soft, hard):
    if size > hard and where.split(" ")[0] not in allowed:
        bad.append(f"{where}: {what} {size}, at most {hard}")
    elif warn and size > soft:
        print(f"{where}: {what} {size}, better {soft}")
def parameters(signature):
    """Commas outside of the parentheses of function types."""
    depth, n = 0, 1
    for c in signature:
        depth += (c == "(") - (c == ")")
        n += c == "," and depth == 1
    return n
for line in sys.stdin:
    tag = json.loads(line)
    where = tag["path"] + ":" + tag["name"]
    check(where, "lines", tag.get("end", tag["line"]) - tag["line"] + 1, 60, 80)
    check(where, "parameters", parameters(tag.get("signature", "")), 5, 7)
for path in subprocess.run(["git", "ls-files", "base/*.[ch]", "shim/*.[ch]", "controller/*.[ch]"], capture_output=True, text=True).stdout.split():
    lines = sum(1 for _ in open(path))
    check(path, "lines", lines, *((100, 200) if path.endswith(".h") else (500, 800)))
print("\n".join(bad))
sys.exit(bool(bad))' "$@"
