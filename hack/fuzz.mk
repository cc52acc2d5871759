# make fuzz [SECONDS_EACH=60]    feed made-up bytes to everything that decodes bytes of others (clang, libFuzzer)
#
# A target is tests/fuzz/fuzz_NAME.c; its seeds are in tests/fuzz/corpus/NAME.  What the fuzzer finds on the way is kept in
# build/fuzz/found/NAME, so that the next run goes on from there; an input that breaks something is build/fuzz/NAME-crash-*.
SECONDS_EACH ?= 60
FUZZ_CC      := clang
FUZZ_O       := build/fuzz
FUZZ_FLAGS   := -std=gnu11 -O1 -g -D_GNU_SOURCE -I. -isystem $(FUZZ_O)/gen -fsanitize=address,undefined \
                -fno-sanitize-recover=all -fno-omit-frame-pointer -MD -MP
FUZZ_NAMES   := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SRC     := $(BASE_SRC) $(wildcard shim/ttrpc/*.c shim/oci/*.c shim/cgroup/*.c shim/cli/*.c shim/egress/*.c shim/sentry/address.c shim/sentry/msghdr.c shim/sentry/egress.c) $(wildcard controller/kube/*.c controller/core/*.c)
FUZZ_GEN     := $(PROTO:shim/ttrpc/proto/%.proto=$(FUZZ_O)/gen/%.pb-c.c)

fuzz: $(FUZZ_NAMES:%=fuzz-%)
fuzz-build: $(FUZZ_NAMES:%=$(FUZZ_O)/%)
# ASan's leak check runs at the end of the run; -timeout catches an input that makes us think for ever.
$(FUZZ_NAMES:%=fuzz-%): fuzz-%: $(FUZZ_O)/%
	@mkdir -p $(FUZZ_O)/found/$*
	$(FUZZ_O)/$* -max_total_time=$(SECONDS_EACH) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 -verbosity=0 \
	    -artifact_prefix=$(FUZZ_O)/$*- $(FUZZ_O)/found/$* $(wildcard tests/fuzz/corpus/$*)

$(FUZZ_O)/%: $(FUZZ_O)/tests/fuzz/fuzz_%.o $(FUZZ_O)/libfuzz.a
	$(call say,LD)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(sort $(SHIM_LIBS) $(CTRL_LIBS))
$(FUZZ_O)/libfuzz.a: $(FUZZ_SRC:%.c=$(FUZZ_O)/%.o) $(FUZZ_GEN:.c=.o)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
$(FUZZ_O)/gen/%.pb-c.c $(FUZZ_O)/gen/%.pb-c.h &: shim/ttrpc/proto/%.proto
	$(call say,PROTOC)mkdir -p $(FUZZ_O)/gen && protoc-c --proto_path=shim/ttrpc/proto --c_out=$(FUZZ_O)/gen $<
$(FUZZ_O)/%.o: %.c | $(FUZZ_GEN:.c=.h)
	$(call say,CC)mkdir -p $(@D) && $(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c -o $@ $<
$(FUZZ_O)/gen/%.o: $(FUZZ_O)/gen/%.c | $(FUZZ_GEN:.c=.h)
	$(call say,CC)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -w -c -o $@ $<

.PHONY: fuzz fuzz-build $(FUZZ_NAMES:%=fuzz-%)
-include $(wildcard $(FUZZ_O)/*/*.d $(FUZZ_O)/*/*/*.d)
