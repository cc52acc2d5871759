#!/usr/bin/python3
"""Every field that clients of the field's common API rely on is in our CRDs as they expect it (crd_fields.tsv), and the chart's CRDs
are the same files.  Structure only; what the API server makes of them is tested beside a real one."""
import glob
import os
import sys

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..", "..")
FAILED = []

NAMES = {  # plural, singular, short names, columns that must come first in this order, scale
    "sandboxes.agents.x-k8s.io": ("Sandbox", ["sandbox"], ["Ready", "Reason"], False),
    "sandboxclaims.extensions.agents.x-k8s.io": ("SandboxClaim", ["sandboxclaim"], ["Ready", "Sandbox", "Reason", "Age"], False),
    "sandboxtemplates.extensions.agents.x-k8s.io": ("SandboxTemplate", ["sandboxtemplate"], [], False),
    "sandboxwarmpools.extensions.agents.x-k8s.io": ("SandboxWarmPool", ["swp"], ["Ready", "Desired"], True),
}


def expect(what, have, want):
    if have != want:
        FAILED.append(f"{what}: is {have!r}, expected {want!r}")


def find(schema, path):
    """The schema at a path and whether its parent requires it; None when it is absent."""
    required = False
    for part in path.split("."):
        array = part.endswith("[]")
        name = part[:-2] if array else part
        required = name in schema.get("required", [])
        schema = schema.get("properties", {}).get(name)
        if schema is None:
            return None, False
        if array:
            schema = schema["items"]
    return schema, required


def look(schema, required, prop):
    if prop == "type":
        return "map" if "additionalProperties" in schema else schema.get("type")
    return {"default": str(schema.get("default", "none")), "enum": ",".join(sorted(schema.get("enum", []))), "min": str(schema.get("minimum")), "required": "yes" if required else "no",
            "list-type": schema.get("x-kubernetes-list-type", "none"), "format": schema.get("format"), "absent": "no"}[prop]


def main():
    crds = {}
    for path in sorted(glob.glob(os.path.join(TOP, "crds", "*.yaml"))):
        crd = yaml.safe_load(open(path))
        crds[crd["metadata"]["name"]] = crd
        copy = os.path.join(TOP, "charts", "glovebox", "crds", os.path.basename(path))
        expect(f"charts copy of {os.path.basename(path)} is the same", os.path.exists(copy) and open(copy).read() == open(path).read(), True)
        group = crd["spec"]["group"]
        if group.endswith(".k8s.io") and not group.endswith("x-k8s.io"):
            expect(f"{group} is marked as not approved", crd["metadata"]["annotations"]["api-approved.kubernetes.io"].startswith("unapproved"), True)
        names = crd["spec"]["names"]
        # kubectl expands categories before kinds, so one by the name of a kind breaks every command on it.
        expect(f"categories of {crd['metadata']['name']}", [c for c in names.get("categories", []) if c in ("sandbox", "sandboxes")], [])
    rows = 0
    for line in open(os.path.join(HERE, "crd_fields.tsv")):
        if line.startswith("#") or not line.strip():
            continue
        rows += 1
        name, path, prop, want = line.rstrip("\n").split("\t")
        version = crds[name]["spec"]["versions"][0]
        schema, required = find(version["schema"]["openAPIV3Schema"], path)
        if prop == "absent":
            expect(f"{name} {path} exists", schema is not None, False)
        elif schema is None:
            FAILED.append(f"{name} {path} is missing")
        else:
            expect(f"{name} {path} {prop}", look(schema, required, prop), want)
    for name, (kind, short, columns, scale) in NAMES.items():
        spec = crds[name]["spec"]
        expect(name + " kind", (spec["names"]["kind"], spec["names"]["listKind"]), (kind, kind + "List"))
        expect(name + " short names", spec["names"]["shortNames"], short)
        expect(name + " versions", [(v["name"], v["served"], v["storage"]) for v in spec["versions"]], [("v1beta1", True, True)])
        have = [c["name"] for c in spec["versions"][0].get("additionalPrinterColumns", [])]
        expect(name + " columns", have[:len(columns)], columns)
        expect(name + " has Age", not columns or "Age" in have, True)
        want = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"} if scale else None
        expect(name + " scale", spec["versions"][0].get("subresources", {}).get("scale"), want)
        expect(name + " conversion", spec.get("conversion"), None)
    rule = crds["sandboxes.agents.x-k8s.io"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"][0]
    expect("volumeClaimTemplates rule", rule["message"], "volumeClaimTemplates is immutable")
    for f in FAILED:
        print("FAIL", f)
    print(f"{rows} properties of {len(NAMES)} kinds looked at, {len(FAILED)} wrong")
    sys.exit(1 if FAILED else 0)


main()
