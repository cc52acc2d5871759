# make [PROFILE=debug|asan|release] [V=1]    each profile keeps its own tree, so switching is free
#
#   all check        the programs; the unit tests (no privileges needed)
#   test             what the README promises: unit tests, then everything on real containerd and Kubernetes (root)
#   lint format      static analysis and formatting
#   clean            removes build/
# The targets that need real servers are in hack/*.mk.
PROFILE ?= debug
O       := build/$(PROFILE)
CC      := gcc

FLAGS.debug   := -O1 -g3
FLAGS.asan    := -O1 -g3 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
FLAGS.release := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fcf-protection \
                 -ftrivial-auto-var-init=zero
WARN     := -Wall -Wextra -Werror -Wshadow -Wvla -Wwrite-strings -Wundef -Wstrict-prototypes -Wmissing-prototypes \
            -Wformat=2 -Wcast-qual -Werror=override-init
CFLAGS   += -std=gnu11 -fPIE -ffunction-sections -fdata-sections $(FLAGS.$(PROFILE)) $(WARN)
# Generated headers count as system headers: their macros are not ours to warn about.
CPPFLAGS += -D_GNU_SOURCE -I. -isystem $(O)/gen -MD -MP
# The shim is one static program: a node needs nothing but the file, and starting it loads nothing else.
STATIC.debug   := -static-pie
STATIC.asan    := -pie
STATIC.release := -static-pie
LDFLAGS  += -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections

# Source sets. A folder belongs to exactly one of them; see docs/architecture.md for the layers.
BASE_SRC := $(wildcard base/*.c)
SHIM_SRC := $(wildcard shim/*/*.c)
CTRL_SRC := $(wildcard controller/*/*.c)
# The node agent speaks to the shims: the client half of the protocol is in both programs.
WIRE_SRC := $(patsubst %,shim/ttrpc/%.c,client code conn frame text)
WIRE_GEN := $(patsubst %,$(O)/gen/%.pb-c.o,ttrpc control google)
PROTO    := $(wildcard shim/ttrpc/proto/*.proto)
GEN_C    := $(PROTO:shim/ttrpc/proto/%.proto=$(O)/gen/%.pb-c.c)
GEN_H    := $(GEN_C:.c=.h)

SHIM     := $(O)/containerd-shim-glovebox-v1
CTRL     := $(O)/glovebox-controller
PROGRAMS := $(if $(wildcard shim/main.c),$(SHIM)) $(if $(wildcard controller/main.c),$(CTRL))

SHIM_LIBS := -lprotobuf-c -ljansson -lm -lpthread
CTRL_LIBS := -lcurl -lprotobuf-c -ljansson -lyajl -lyaml -lcrypto -lpthread

UNIT_BASE := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(wildcard tests/unit/base/test_*.c))
UNIT_SHIM := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(wildcard tests/unit/shim/test_*.c))
UNIT_CTRL := $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(wildcard tests/unit/controller/test_*.c))
UNIT      := $(UNIT_BASE) $(UNIT_SHIM) $(UNIT_CTRL)

say = $(if $(V),,@echo "  $(1)	$@";)

all: $(PROGRAMS)
shim: $(SHIM)
controller: $(CTRL)

# Unit tests. A test runs again only when its binary changed.
check: check-base check-shim check-controller
check-base: $(UNIT_BASE:=.ok)
check-shim: $(UNIT_SHIM:=.ok)
check-controller: $(UNIT_CTRL:=.ok)
$(O)/%.ok: $(O)/%
	$(call say,TEST)$< >$@.log 2>&1 && { grep -E 'PASSED|SKIPPED|tests? passed' $@.log || true; touch $@; } || { cat $@.log; exit 1; }

$(SHIM): $(O)/shim/main.o $(O)/libshim.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) $(STATIC.$(PROFILE)) -o $@ $^ $(SHIM_LIBS)
$(CTRL): $(O)/controller/main.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie -o $@ $^ $(CTRL_LIBS)
$(UNIT_BASE): $(O)/%: $(O)/%.o $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie $(WRAP.$(notdir $@):%=-Wl,--wrap=%) -o $@ $^ -lcmocka -ljansson -lpthread
$(UNIT_SHIM): $(O)/%: $(O)/%.o $(O)/libshim.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie $(WRAP.$(notdir $@):%=-Wl,--wrap=%) -o $@ $^ -lcmocka $(SHIM_LIBS)
$(UNIT_CTRL): $(O)/%: $(O)/%.o $(O)/libcontroller.a $(O)/libbase.a
	$(call say,LD)$(CC) $(CFLAGS) $(LDFLAGS) -pie $(WRAP.$(notdir $@):%=-Wl,--wrap=%) -o $@ $^ -lcmocka $(CTRL_LIBS)

$(O)/libbase.a: $(BASE_SRC:%.c=$(O)/%.o)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
$(O)/libshim.a: $(SHIM_SRC:%.c=$(O)/%.o) $(GEN_C:.c=.o)
	$(call say,AR)rm -f $@ && ar rcs $@ $^
$(O)/libcontroller.a: $(CTRL_SRC:%.c=$(O)/%.o) $(WIRE_SRC:%.c=$(O)/%.o) $(WIRE_GEN)
	$(call say,AR)rm -f $@ && ar rcs $@ $^

# protoc-c output; the generated code is not ours to warn about.
$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h &: shim/ttrpc/proto/%.proto
	$(call say,PROTOC)mkdir -p $(O)/gen && protoc-c --proto_path=shim/ttrpc/proto --c_out=$(O)/gen $<
$(O)/gen/%.o: $(O)/gen/%.c $(GEN_H) $(O)/flags
	$(call say,CC)$(CC) $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<
$(SHIM_SRC:%.c=$(O)/%.o) $(O)/shim/main.o $(patsubst %,%.o,$(UNIT_SHIM)): | $(GEN_H)
$(patsubst %.c,$(O)/%.o,$(wildcard controller/node/*.c)): | $(GEN_H)

$(O)/%.o: %.c $(O)/flags
	$(call say,CC)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<
$(O)/flags: FORCE                       # touched only when the command line really changed
	@mkdir -p $(@D); echo '$(CC) $(CPPFLAGS) $(CFLAGS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(CFLAGS)' >$@

clean:
	rm -rf build

-include $(wildcard hack/*.mk)

.PHONY: all shim controller check check-base check-shim check-controller clean FORCE
.SECONDARY:
.DELETE_ON_ERROR:
-include $(wildcard $(O)/base/*.d $(O)/shim/*.d $(O)/shim/*/*.d $(O)/controller/*.d $(O)/controller/*/*.d $(O)/tests/unit/*/*.d)
