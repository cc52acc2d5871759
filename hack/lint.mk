# Static analysis: everything that judges the source without running it, in some three minutes.  Each part is a target of its own.
C_FILES := $(shell git ls-files 'base/*.c' 'shim/*.c' 'controller/*.c')
H_FILES := $(shell git ls-files 'base/*.h' 'shim/*.h' 'controller/*.h')
T_FILES := $(shell git ls-files 'tests/*.c' 'tests/*.h')
SCRIPTS := $(shell git grep -lE '^\#!/bin/(ba)?sh' -- hack .ci tests charts)
# Functions that are not used: unbounded copies, hidden state, shells.
BANNED  := strcpy|strcat|strncpy|sprintf|vsprintf|strtok|atoi|atol|system|popen|alloca|gets|localtime|tmpnam|mktemp|rand

lint: lint-format lint-layering lint-budget lint-words lint-headers lint-scripts lint-cppcheck lint-analyzer
	@echo "lint: nothing found"
format:
	@for f in $(C_FILES) $(H_FILES) $(T_FILES); do clang-format -i $$f; done
# File by file: version 14 crashes on some long lists of them.
lint-format:
	@mkdir -p $(O); for f in $(C_FILES) $(H_FILES) $(T_FILES); do clang-format --dry-run -Werror $$f >$(O)/format.txt 2>&1 || echo "$$f: $$(grep -c error: $(O)/format.txt) lines"; done | \
	    { ! grep . || { echo "run make format"; exit 1; }; }
lint-layering:
	@hack/layering.sh
lint-budget:
	@hack/budget.sh
lint-words:
	@! git grep -nwE '($(BANNED)) ?\(' -- 'base/*.[ch]' 'shim/*.[ch]' 'controller/*.[ch]' | grep -vE '^[^:]*:[0-9]*: ?(/?\*|//)'
	@codespell -q 3 -L covert,ba,fo,te,nd,ot,ans,inout,parm,wit,crate,readd,fpr,ue,hist,ser $(C_FILES) $(H_FILES) README.md docs hack/*.sh hack/[a-z]*[!a-z.] 2>/dev/null
# Every header compiles alone.
lint-headers: $(GEN_H)
	@for h in $(H_FILES); do $(CC) -D_GNU_SOURCE -I. -isystem $(O)/gen -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -Wno-unused-function -xc $$h || exit 1; done 2>&1 | grep -v 'pragma once in main file' | grep -B1 -A3 error: && exit 1 || true
lint-scripts:
	@shellcheck -x -P SCRIPTDIR -S warning $(SCRIPTS)
# accept4: it takes NULL for an address that nobody wants to know, against what cppcheck has heard.
lint-cppcheck:
	@cppcheck -q -j 2 --std=c11 --error-exitcode=1 --enable=warning,portability --inline-suppr --suppressions-list=hack/cppcheck.txt \
	    --library=gnu -D_GNU_SOURCE -Daccept4=accept_any -I. $(C_FILES)
# gcc's own data-flow analysis; what it warns of is an error.
ANALYZED := $(C_FILES:%.c=$(O)/analyzer/%.o)
lint-analyzer: $(ANALYZED)
$(O)/analyzer/%.o: %.c hack/lint.mk | $(GEN_H)
	$(call say,ANALYZE)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -Wno-error -fanalyzer $(ANALYZER_OFF) \
	    -Werror=analyzer-double-free -Werror=analyzer-use-after-free -Werror=analyzer-double-fclose -Werror=analyzer-free-of-non-heap \
	    -Werror=analyzer-write-to-const -c -o $@ $<
# Off: gcc 12 does not know the cleanup attribute's effect, nor that xcalloc() ends the program.
ANALYZER_OFF := -Wno-analyzer-malloc-leak -Wno-analyzer-possible-null-dereference -Wno-analyzer-possible-null-argument -Wno-analyzer-null-dereference -Wno-analyzer-null-argument
-include $(wildcard $(O)/analyzer/*/*.d $(O)/analyzer/*/*/*.d)

.PHONY: lint format lint-format lint-layering lint-budget lint-words lint-headers lint-scripts lint-cppcheck lint-analyzer
