# What reaches the kernel (root).
#   probe   38 groups of entry points natively, under runc, under gVisor and under glovebox; some minutes
#   sweep   is the set of calls that the host's kernel ran exactly the set that the table declares native?
probe: $(SHIM)
	tests/reachability/run runc runsc glovebox
sweep: $(SHIM)
	tests/reachability/sweep/run
.PHONY: probe sweep
