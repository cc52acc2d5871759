# tests/integration/test_sentry.py runs programs under the filter and the sentry alone, with this program.
$(O)/tests/integration/sentry_driver: $(O)/tests/integration/sentry_driver.o $(O)/libshim.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie -o $@ $^ $(SHIM_LIBS)
sentry-driver: $(O)/tests/integration/sentry_driver

# The list for readers is made from the table.
docs/syscalls.md: shim/filter/rules.tbl $(O)/tests/unit/shim/test_filter
	GLOVEBOX_WRITE_DOCS=1 $(O)/tests/unit/shim/test_filter >/dev/null 2>&1

.PHONY: sentry-driver
