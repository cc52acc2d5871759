# Programs that the tests of the controller's engine run beside a real API server.
ENGINE_PROBE := $(O)/tests/integration/engine_probe
$(ENGINE_PROBE): %: %.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie -o $@ $^ $(CTRL_LIBS)
-include $(wildcard $(O)/tests/integration/*.d)
engine-probe: $(ENGINE_PROBE)
test-engine: $(ENGINE_PROBE)
	ENGINE_PROBE=$(abspath $(ENGINE_PROBE)) tests/integration/test_engine.sh
.PHONY: engine-probe test-engine
WRAP.test_core_queue := clock_mono_ns
WRAP.test_core_store := clock_mono_ns
WRAP.test_core_engine := kube_call kube_cancel watch_new watch_free
# The controller alone, without HTTP: claims per second of CPU.
REPLAY := $(O)/tests/bench/engine_replay
$(REPLAY): %: %.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie $(patsubst %,-Wl$(,)--wrap=%,kube_call kube_cancel watch_new watch_free) -o $@ $^ $(CTRL_LIBS)
, := ,
bench-engine: $(REPLAY)
	$(REPLAY) 5000
.PHONY: bench-engine
