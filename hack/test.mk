# Tests. The fast ones are `make test`; what takes minutes each says "# slow" at its top and runs in `make test-slow`.
#   F=word       only tests whose name contains it       RUNTIME=runc   the same tests on another runtime
INTEGRATION := $(wildcard tests/integration/test_*)
E2E         := $(wildcard tests/e2e/test_*)
RUN_TESTS   := hack/run-tests $(if $(F),-f $(F)) $(if $(RUNTIME),-r $(RUNTIME))
asan-unit   = $(subst $(O)/,build/asan/,$(UNIT))

# Programs that only tests use; each is built by a file of its own in this folder.
TEST_TOOLS := hollow engine-probe launch-driver cgroup-driver sentry-driver

# Unit tests run in the sanitizer build, everything else on the programs of this profile.
test: all $(TEST_TOOLS)
	@$(MAKE) --no-print-directory PROFILE=asan O=build/asan unit-programs
	GLOVEBOX_SHIM=$(abspath $(SHIM)) GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) $(RUN_TESTS) $(asan-unit) $(INTEGRATION) $(E2E)
test-integration: all $(TEST_TOOLS)
	GLOVEBOX_SHIM=$(abspath $(SHIM)) $(RUN_TESTS) $(INTEGRATION)
test-e2e: all $(TEST_TOOLS)
	GLOVEBOX_SHIM=$(abspath $(SHIM)) GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) $(RUN_TESTS) $(E2E)
test-slow: all $(TEST_TOOLS)
	GLOVEBOX_SHIM=$(abspath $(SHIM)) GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) $(RUN_TESTS) -s $(INTEGRATION) $(E2E)
unit-programs: $(UNIT)
# What a unit test replaces at link time.
WRAP.test_loop := clock_mono_ns

.PHONY: test test-integration test-e2e test-slow unit-programs

# The conformance suite of the Container Runtime Interface, with runc and with glovebox: some six minutes for each containerd.
critest: all
	GLOVEBOX_SHIM=$(abspath $(SHIM)) hack/critest -c 2.4
	GLOVEBOX_SHIM=$(abspath $(SHIM)) hack/critest -c 1.6
# Measures; fails on nothing.  S="work start" picks sections.  N=repetitions
bench:
	@$(MAKE) --no-print-directory PROFILE=release O=build/release all
	@$(MAKE) --no-print-directory PROFILE=release O=build/release launch-driver
	LAUNCH_DRIVER=$(abspath build/release/tests/launch-driver) GLOVEBOX_SHIM=$(abspath build/release/containerd-shim-glovebox-v1) hack/bench $(if $(N),-n $(N)) $(S)
demo:
	@$(MAKE) --no-print-directory PROFILE=release O=build/release all
	GLOVEBOX_SHIM=$(abspath build/release/containerd-shim-glovebox-v1) GLOVEBOX_CONTROLLER=$(abspath build/release/glovebox-controller) hack/demo
.PHONY: critest bench demo
