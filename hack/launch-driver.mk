# A test program that starts a bundle through pod, cgroup and launcher alone; see tests/integration/launch_driver.c.
LAUNCH_SRC := $(wildcard shim/launcher/*.c shim/oci/*.c shim/cgroup/*.c shim/filter/*.c)
launch-driver: $(O)/tests/launch-driver
$(O)/tests/launch-driver: $(O)/tests/integration/launch_driver.o $(LAUNCH_SRC:%.c=$(O)/%.o) $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -Wl,--wrap=filter_build $(STATIC.$(PROFILE)) -o $@ $^ $(SHIM_LIBS)
.PHONY: launch-driver
