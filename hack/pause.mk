# What a pause gives back and what a resume costs, beside runc's freezer (root).   MIB=512 CYCLES=5
bench-pause:
	@$(MAKE) --no-print-directory PROFILE=release O=build/release shim
	GLOVEBOX_SHIM=$(abspath build/release/containerd-shim-glovebox-v1) RIG_LOG=info hack/rig.sh tests/bench/bench_pause.py $(or $(MIB),512) $(or $(CYCLES),5)
.PHONY: bench-pause
