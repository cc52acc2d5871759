# A test program that starts a bundle through pod, cgroup and launcher alone; see tests/integration/launch_driver.c.
launch-driver: $(O)/tests/launch-driver
$(O)/tests/launch-driver: $(O)/tests/integration/launch_driver.o $(O)/libshim.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) $(STATIC.$(PROFILE)) -o $@ $^ $(SHIM_LIBS)
.PHONY: launch-driver
