# A stand-in for the kubelet, for tests and benchmarks of the controller with many pods.
HOLLOW := $(O)/tests/bench/hollow
$(HOLLOW): %: %.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie -o $@ $^ $(CTRL_LIBS)
-include $(wildcard $(O)/tests/bench/*.d)
hollow: $(HOLLOW)
.PHONY: hollow
# The controller's figures, with hollow pods, beside an API server of its own.  CASES='claims rate' for some of them.
bench-controller: $(CTRL) $(HOLLOW)
	GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) HOLLOW=$(abspath $(HOLLOW)) tests/integration/apiserver.sh -a /usr/bin/python3 tests/bench/bench_controller.py $(CASES)
.PHONY: bench-controller
test-controller: $(CTRL) $(HOLLOW)
	GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) HOLLOW=$(abspath $(HOLLOW)) tests/integration/test_controller.sh $(CASES)
.PHONY: test-controller
# The CRDs against what clients rely on, the chart's copies of them, and the pages made from them.
check-crds:
	/usr/bin/python3 tests/unit/controller/test_crd_fields.py
	/usr/bin/python3 hack/api-docs -c
check: check-crds
.PHONY: check-crds
# Pause, resume and claims on a real kubelet.
bench-kubelet: $(CTRL) $(SHIM)
	GLOVEBOX_CONTROLLER=$(abspath $(CTRL)) GLOVEBOX_SHIM=$(abspath $(SHIM)) tests/bench/kubelet
.PHONY: bench-kubelet
