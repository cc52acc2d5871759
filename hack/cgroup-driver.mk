# shim/cgroup alone on the real kernel; see tests/integration/cgroup_driver.c.
CGROUP_SRC := $(wildcard shim/cgroup/*.c shim/oci/*.c)
cgroup-driver: $(O)/tests/cgroup-driver
$(O)/tests/cgroup-driver: $(O)/tests/integration/cgroup_driver.o $(CGROUP_SRC:%.c=$(O)/%.o) $(O)/libbase.a
	$(call say,LD)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) $(STATIC.$(PROFILE)) -o $@ $^ $(SHIM_LIBS)
.PHONY: cgroup-driver
