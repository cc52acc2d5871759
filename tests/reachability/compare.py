#!/usr/bin/env python3
"""compare.py FOLDER REVIEWED: one line per probe for every column; fails on a group that glovebox reaches without a reviewed reason.

REVIEWED holds lines `GROUP <tab> NAME <tab> REASON`: entries left open on purpose, each named in docs/threat-model.md.
"""
import collections
import pathlib
import sys

COLUMNS = ["native.user", "runc.root", "runc.user", "runc.caps", "runsc.root", "runsc.user", "glovebox.root", "glovebox.user", "glovebox.caps"]


def read(path):
    """A result alone can be imitated by whoever answers instead of the kernel; where an observer watched, it has the last word."""
    rows, trace = {}, path.with_suffix(".trace")
    ran = {tuple(map(int, line.split())) for line in trace.read_text().splitlines()} if trace.exists() else None
    for line in path.read_text().splitlines():
        group, name, result, verdict, index, key = line.split("\t")
        reached = verdict == "REACHED" and (ran is None or key == "-1" or (int(index), int(key)) in ran)
        rows[group, name] = (result, reached)
    return rows


def main(folder, reviewed_file):
    folder = pathlib.Path(folder)
    table = {c: read(folder / f"{c}.tsv") for c in COLUMNS if (folder / f"{c}.tsv").exists()}
    reviewed = {tuple(line.split("\t")[:2]) for line in open(reviewed_file) if line.strip() and not line.startswith("#")}
    probes = list(dict.fromkeys(p for rows in table.values() for p in rows))
    print("\t".join(["group", "probe", *table]))
    for p in probes:
        cells = [f"{'REACHED ' if r[p][1] else ''}{r[p][0]}" if p in r else "-" for r in table.values()]
        print("\t".join([*p, *cells]))

    groups = sorted({g for g, _ in probes})
    print(f"\n{len(probes)} probes in {len(groups)} groups; groups with an entry that the kernel's code answered:")
    for c, rows in table.items():
        hit = collections.Counter(g for (g, _), (_, reached) in rows.items() if reached)
        print(f"  {c:15} {len(hit):2} of {len(groups)}  {' '.join(sorted(hit))}")
    short = [c for c, rows in table.items() if len(rows) != len(probes)]
    for c in short:
        print(f"FAIL {c}: {len(table[c])} results instead of {len(probes)}; the run broke off, so the column proves nothing")
    ours = [c for c in table if c.startswith("glovebox")]
    if not ours:
        print("no glovebox column: nothing was judged")
        return 1
    open_ = sorted({p for c in ours for p, (_, reached) in table[c].items() if reached})
    bad = [p for p in open_ if p not in reviewed]
    stale = [p for p in reviewed if p not in open_]
    for p in bad:
        print(f"FAIL {p[0]} {p[1]}: reached and not on the reviewed list")
    for p in stale:
        print(f"FAIL {p[0]} {p[1]}: on the reviewed list, but no longer reached; take it off")
    absent = sorted({g for g in groups if not any(r for (gg, _), (_, r) in table.get("native.user", {}).items() if gg == g)})
    print(f"groups that even an unconfined process does not reach on this kernel (they prove nothing here): {' '.join(absent) or 'none'}")
    failed = len(bad) + len(stale) + len(short)
    print(f"{len(probes) * len(ours) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
