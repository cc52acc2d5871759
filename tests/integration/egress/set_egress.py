"""set_egress.py SOCKET POLICY|confirm: what the node agent does, by hand."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from ttrpc import Peer, Refused, field  # noqa: E402

path, policy = sys.argv[1:]
payload = field(2, 1) if policy == "confirm" else field(1, policy)
try:
    Peer(path).call("SetEgress", payload, service="glovebox.shim.v1.Control")
except Refused as r:
    sys.exit(r.text)
