# A stand-in for the kubelet, for tests and benchmarks of the controller with many pods.
HOLLOW := $(O)/tests/bench/hollow
$(HOLLOW): %: %.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie -o $@ $^ $(CTRL_LIBS)
-include $(wildcard $(O)/tests/bench/*.d)
hollow: $(HOLLOW)
.PHONY: hollow
