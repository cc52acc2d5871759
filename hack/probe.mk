# What reaches the kernel: natively, under runc, under gVisor and under glovebox (root; some minutes).
probe: $(SHIM)
	tests/reachability/run runc runsc glovebox
.PHONY: probe
