# SPDX-License-Identifier: Apache-2.0
#
# make quickstart   install what is missing, build, train a model on a local cluster
# make check        install what is missing, build, run every test
# make              build everything into $(BUILD)
# make check-rdma   what needs RDMA verbs, in a virtual machine with soft RoCE
# make check-rdma-stories   there, too: stories of failures, payloads by RDMA
# make check-systemd        what is installed, and the Debian packages, run by systemd in a virtual
#                   machine
# make check-packages       the Debian packages and the wheel, built and installed
# make check-torch  the PyTorch tests, with Debian's torch and with the newest of the package
#                   index, in build/ (PYTHON=interpreter: with the torch of that one alone;
#                   TORCH=current or a version: with that one of the package index alone)
# make check-gpu    what needs a GPU, where there is one; make bench-gpu
# make help         the other targets and the variables

VERSION := 0.1.0
BUILD ?= build
ifeq ($(strip $(BUILD)),)
$(error BUILD is empty, everything would go to /: leave it out, or name a directory)
endif
# One name, however it is said: what was compiled by another one has its headers by that.
override BUILD := $(patsubst $(CURDIR)/%,%,$(BUILD))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
CC ?= gcc
CLANG ?= clang
PKG_CONFIG ?= pkg-config
SAN ?=
# A sanitizer's build is for its reports: twice as fast to make.
OPT ?= $(if $(SAN),-O1 -g1,-O2 -g)
V ?=

# A directory of its own, also where BUILD comes from the command line or a make above.
comma := ,
ifneq ($(SAN),)
SAN_DIR := san-$(subst $(comma),-,$(SAN))
ifneq ($(notdir $(BUILD)),$(SAN_DIR))
override BUILD := $(BUILD)/$(SAN_DIR)
endif
# Under a sanitizer gcc takes lengths that it knows for any; the plain build warns of these.
SANFLAGS := -fsanitize=$(SAN) -fno-omit-frame-pointer -Wno-format-truncation
endif
Q := $(if $(V),,@)
# All processors, where nobody says how many.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

X86_64 := $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null))
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
	-Wno-missing-field-initializers
# What is built takes no code from its data, calls and returns only where calls and returns go,
# and stops where a buffer ends (tests/stories/hardened.sh).  FORTIFY wants an optimizer, and gets
# in the way of sanitizers.
HARDEN := -fstack-protector-strong $(if $(X86_64),-fcf-protection=full) $(if $(SAN),,\
	$(if $(filter-out -O0,$(filter -O%,$(OPT))),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN_LD := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack
# No contraction into fused multiply-adds: the bits of a sum are a promise.
CFLAGS_ALL := -std=gnu17 $(OPT) -ffp-contract=off -fno-math-errno -fvisibility=hidden -fPIC \
	-pthread -D_GNU_SOURCE -DTALLY_VERSION=\"$(VERSION)\" -I. -I$(BUILD)/gen $(WARN) $(HARDEN) \
	$(SANFLAGS) $(CFLAGS)
LDFLAGS_ALL := -pthread $(HARDEN_LD) $(SANFLAGS) $(LDFLAGS)

# ---- what is built from what -------------------------------------------------

# Sums have vector code for x86-64; other processors are left to the plain C.
COMMON_SRC := $(filter-out $(if $(X86_64),,%_avx2.c %_avx512.c),$(wildcard common/*/*.c)) \
	$(wildcard proto/*.c)
SCHED_SRC  := $(wildcard scheduler/*.c)
SERVER_SRC := $(wildcard server/*.c)
AGENT_SRC  := $(wildcard worker-agent/*.c)
CLI_SRC    := $(wildcard cli/*.c)
CLIENT_SRC := $(wildcard client/*.c)
LIB_SRC    := $(CLIENT_SRC) $(wildcard common/base/*.c common/shm/*.c) $(wildcard proto/*.c)
CHARLM_SRC := $(wildcard examples/charlm/*.c)
BENCH_SRC  := $(wildcard bench/*.c)
UNIT_SRC   := $(wildcard tests/unit/test_*.c)
FUZZ_SRC   := $(wildcard tests/fuzz/fuzz_*.c)
SIM_SRC    := $(wildcard tests/sim/*.c)
STORM_SRC  := $(wildcard tests/storm/*.c)
E2E_SRC    := $(wildcard tests/e2e/*.c)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
GEN_OBJ := $(BUILD)/obj/gen/proto/tally.pb-c.o
COMMON_LIB := $(BUILD)/obj/libcommon.a
# Everything of the daemons but their main(): what tests and simulator link.
PARTS_LIB := $(BUILD)/obj/libparts.a
PARTS_SRC := $(filter-out %/main.c,$(SCHED_SRC) $(SERVER_SRC) $(AGENT_SRC) $(CLI_SRC) $(CHARLM_SRC))

LIBS := $(shell $(PKG_CONFIG) --libs libuv libprotobuf-c hwloc libibverbs libmnl 2>/dev/null) -lm
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)

LIBTALLY_SO := $(BUILD)/lib/libtally.so.$(VERSION)
LIBTALLY_A := $(BUILD)/lib/libtally.a
PROGRAMS := $(addprefix $(BUILD)/bin/,tally tally-scheduler tally-server tally-agent charlm)
BENCHES := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCH_SRC))
UNITS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(UNIT_SRC))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
SIM := $(if $(SIM_SRC),$(BUILD)/tests/sim)
STORM := $(BUILD)/tests/storm
E2E := $(if $(E2E_SRC),$(BUILD)/tests/e2e)
DEB := $(BUILD)/deb
WHEEL := $(BUILD)/wheel
GPU_TESTS := $(addprefix $(BUILD)/tests/gpu/,libtally-cuda.so.0 rank gpu_bench)

.PHONY: all help deps deps-vm build quickstart check check-rdma check-rdma-stories check-systemd check-torch check-gpu tests sim
.PHONY: mutants e2e-full
.PHONY: lint quick t comments fuzz bench bench-gpu soak
.PHONY: install manual clean
.DELETE_ON_ERROR:
.SECONDARY:

all: build

help:
	@echo 'make quickstart      install missing packages, build, train examples/charlm on a local cluster'
	@echo '                     (TEXT=path: on that text)'
	@echo 'make check           install missing packages, build, run every test'
	@echo 'make check-rdma      what needs RDMA verbs, in a virtual machine with soft RoCE'
	@echo 'make check-rdma-stories  there, too: stories of failures'
	@echo 'make check-systemd   what is installed, and the Debian packages, run by systemd in a'
	@echo '                     virtual machine'
	@echo 'make check-torch     the PyTorch tests, with Debian'"'"'s torch, then with the newest of the'
	@echo '                     package index (some GB, once). TORCH=current or a version: that one'
	@echo '                     alone; PYTHON=/path/to/python: the torch of that one alone'
	@echo 'make check-gpu       what needs a GPU, where there is one, with CUDA and NCCL'
	@echo 'make sim             the simulator: SEEDS=n runs, or SEED=s with its transcript'
	@echo 'make mutants         deliberate protocol bugs, which the simulator has to find'
	@echo 'make e2e-full        every bit of the sums, over all numbers of ranks, machines and servers'
	@echo 'make soak            MINUTES=10 of trouble for real daemons in namespaces (SEED=)'
	@echo 'make SAN=address,undefined check   unit tests, simulator and daemons under a sanitizer'
	@echo 'make SAN=thread check'
	@echo 'make lint            layering, bans, circles of files, documentation'
	@echo 'make quick           lint, unit tests, 50 seeds of the simulator: under a minute once built'
	@echo 'make t T=name        the tests of that name (CASE=: one test case of a unit test)'
	@echo 'make comments        60 function comments, drawn at random by SEED=n'
	@echo 'make compile_commands.json   for editors'
	@echo 'make fuzz            every fuzz target for FUZZ_SECONDS=10 each'
	@echo 'make bench           Tally and its peers measured side by side: docs/BENCHMARKS.md'
	@echo '                     (ONLY=word: those rows; BENCH_FLAGS=--quick: 5 minutes)'
	@echo 'make bench-gpu       gradients on GPUs next to plain copies and a kernel, where there is one'
	@echo 'make install         into PREFIX=/usr/local (DESTDIR is honoured; PYTHON_DIR=dir: the'
	@echo '                     Python package, else where the python3 of that PREFIX looks)'
	@echo 'make deb             Debian packages in BUILD/deb'
	@echo 'make wheel           a wheel for pip in BUILD/wheel, with libtally in it'
	@echo 'make check-packages  builds, checks and installs these'
	@echo 'make manual          manual pages and completions, as install has them, in BUILD/manual'
	@echo 'variables: BUILD=dir CC= OPT= SAN= V=1'

# ---- the two commands --------------------------------------------------------

# TEXT comes to the script by the environment, with whatever is in its name; make would expand the
# `$x` of one that stands on its command line.
ifdef TEXT
override export TEXT := $(value TEXT)
endif
quickstart: deps
	$(Q)$(MAKE) --no-print-directory build
	$(Q)BUILD=$(BUILD) examples/quickstart.sh

ifneq ($(SAN),)
# What can run under a sanitizer does: unit tests, simulator, daemons with ranks of a plain build.
PLAIN := $(BUILD:%/$(SAN_DIR)=%)
check: deps
	$(Q)$(MAKE) --no-print-directory SAN= BUILD=$(PLAIN) build tests-build
	$(Q)$(MAKE) --no-print-directory SAN=$(SAN) BUILD=$(PLAIN) build tests
	$(Q)BUILD=$(PLAIN) tests/sanitized.sh $(SAN)
else
check: deps
	$(Q)deploy/install-packages.sh vm || echo 'what needs RDMA will be left out'
	$(Q)deploy/install-packages.sh torch || echo 'what needs PyTorch will be left out'
	$(Q)$(MAKE) --no-print-directory build tests-build
	$(Q)BUILD=$(BUILD) tests/check.sh
endif

check-rdma: deps-vm
	$(Q)$(MAKE) --no-print-directory build tests-build
	$(Q)BUILD=$(BUILD) tests/vm/check.sh

# STORY=: their names; by itself all.
check-rdma-stories: deps-vm
	$(Q)$(MAKE) --no-print-directory build tests-build
	$(Q)BUILD=$(BUILD) tests/vm/check.sh stories $(STORY)

check-systemd: deps-vm
	$(Q)deploy/install-packages.sh packages
	$(Q)$(MAKE) --no-print-directory build deb
	$(Q)rm -rf $(DEB)/next && tests/packages/next.sh $(DEB) $(DEB)/next $(VERSION)+1
	$(Q)for what in systemd packages; do \
		BUILD=$(BUILD) VM_SECONDS=$${VM_SECONDS:-900} tests/vm/check.sh $$what || exit 1; done

# Debian's torch, and where the package index can be asked, its newest.
check-torch:
	$(Q)deploy/install-packages.sh $(if $(TORCH)$(PYTHON),,torch) $(if $(PYTHON),,venv)
	$(Q)$(MAKE) --no-print-directory build $(BUILD)/tests/gpu/libtally-cuda.so.0
ifeq ($(TORCH)$(PYTHON),)
	$(Q)BUILD=$(BUILD) tests/run.sh --stories -k torch_
	$(Q)if python=$$(BUILD=$(BUILD) tests/torch/venv.sh current); then \
		BUILD=$(BUILD) PYTHON=$$python tests/run.sh --stories -k torch_; \
	else echo 'the newest torch is left out'; fi
else
	$(Q)python='$(PYTHON)'; $(if $(TORCH),\
	python=$$(BUILD=$(BUILD) tests/torch/venv.sh $(TORCH)) || exit 1;) \
	BUILD=$(BUILD) PYTHON=$$python tests/run.sh --stories -k torch_
endif

deps:
	$(Q)deploy/install-packages.sh

deps-vm:
	$(Q)deploy/install-packages.sh vm

# ---- programs ----------------------------------------------------------------

build: $(PROGRAMS) $(LIBTALLY_SO) $(LIBTALLY_A) libtally-cuda

.PHONY: tests-build
tests-build: $(UNITS) $(SIM) $(STORM) $(E2E) $(BENCHES) $(GPU_TESTS)

define program
$(BUILD)/bin/$(1): $(call obj,$(2)) $(3) $(COMMON_LIB)
	@mkdir -p $$(@D)
	@echo "  LD      $$@"
	$(Q)$(CC) -pie $(LDFLAGS_ALL) -o $$@ $$(filter %.o,$$^) $$(filter %.a,$$^) $(LIBS)
endef
$(eval $(call program,tally-scheduler,$(SCHED_SRC)))
$(eval $(call program,tally-server,$(SERVER_SRC)))
$(eval $(call program,tally-agent,$(AGENT_SRC)))
$(eval $(call program,tally,$(CLI_SRC),$(call obj,$(CLIENT_SRC))))

$(BUILD)/bin/charlm: $(call obj,$(CHARLM_SRC)) $(LIBTALLY_A)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) -pie $(LDFLAGS_ALL) -o $@ $^ -lprotobuf-c -lm

# ---- libtally ----------------------------------------------------------------

$(LIBTALLY_SO): $(call obj,$(LIB_SRC)) $(GEN_OBJ) client/libtally.map
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libtally.so.0 \
		-Wl,--version-script=client/libtally.map -Wl,--no-undefined -o $@ \
		$(filter %.o,$^) -lprotobuf-c
	$(Q)ln -sf $(@F) $(@D)/libtally.so.0
	$(Q)ln -sf libtally.so.0 $(@D)/libtally.so

# One relocatable object whose inner names are local: nothing can clash with the user's.
$(LIBTALLY_A): $(call obj,$(LIB_SRC)) $(GEN_OBJ)
	@mkdir -p $(@D)
	@echo "  AR      $@"
	$(Q)$(LD) -r -o $(BUILD)/obj/libtally.o $^
	$(Q)objcopy --wildcard --keep-global-symbol='tally_*' \
		--localize-symbol='tally__*' $(BUILD)/obj/libtally.o
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(BUILD)/obj/libtally.o

# ---- libtally-cuda -----------------------------------------------------------

# CUDA_HOME and NCCL_HOME: prefixes of a toolkit and of NCCL, where they are not found.
CUDA_HOME ?= /usr/local/cuda
NCCL_HOME ?= $(CUDA_HOME)
gpu_dir = $(firstword $(patsubst %/include/$(1),%,$(wildcard $(addsuffix /include/$(1),$(2)))))
gpu_lib = $(firstword $(wildcard $(foreach d,lib64 lib lib/x86_64-linux-gnu,$(2)/$(d)/$(1) \
	$(2)/$(d)/$(1).*)))
CUDA_DIR := $(call gpu_dir,cuda_runtime_api.h,$(CUDA_HOME) /usr)
NCCL_DIR := $(call gpu_dir,nccl.h,$(NCCL_HOME) $(CUDA_HOME) /usr/local /usr)
CUDART := $(if $(CUDA_DIR),$(call gpu_lib,libcudart.so,$(CUDA_DIR)))
NCCL := $(if $(NCCL_DIR),$(call gpu_lib,libnccl.so,$(NCCL_DIR)))
LIBTALLY_CUDA := $(if $(CUDART),$(if $(NCCL),$(BUILD)/lib/libtally-cuda.so.0))

.PHONY: libtally-cuda
libtally-cuda: $(LIBTALLY_CUDA)
	$(if $(LIBTALLY_CUDA),@:,@echo '  no CUDA toolkit and NCCL found (CUDA_HOME, NCCL_HOME): libtally-cuda is left out')

$(BUILD)/lib/libtally-cuda.so.0: client/gpu/cuda.c client/gpu/plugin.h \
		$(call obj,$(wildcard common/base/*.c) client/clock.c)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -isystem $(CUDA_DIR)/include -isystem $(NCCL_DIR)/include \
		-shared -Wl,-soname,$(@F) -Wl,--no-undefined -o $@ $(filter %.c %.o,$^) $(CUDART) $(NCCL)

# The rank of the tests, on real GPUs.
GPU_RANK := $(if $(LIBTALLY_CUDA),$(BUILD)/tests/gpu/rank-cuda)

$(BUILD)/tests/gpu/rank-cuda: tests/gpu/rank.c $(LIBTALLY_A)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -isystem $(CUDA_DIR)/include -o $@ $^ $(CUDART) \
		-lprotobuf-c -lm

# And what push_pulls of them cost.
GPU_BENCH := $(if $(LIBTALLY_CUDA),$(BUILD)/bench/gpu/gpu_bench)
GPU_BENCH_SRC := $(wildcard bench/gpu/*.c)

$(BUILD)/bench/gpu/gpu_bench: $(GPU_BENCH_SRC) $(wildcard bench/gpu/*.h) $(LIBTALLY_A)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -isystem $(CUDA_DIR)/include -o $@ \
		$(filter %.c %.a,$^) $(CUDART) -lprotobuf-c -lm

tests-build: $(GPU_RANK) $(GPU_BENCH)

check-gpu: build $(GPU_RANK)
	$(Q)BUILD=$(BUILD) tests/gpu/check.sh || [ $$? = 77 ]

# BENCH_FLAGS: see gpu_bench --help.
bench-gpu: build $(GPU_BENCH)
	$(Q)BUILD=$(BUILD) bench/gpu/run.sh $(BENCH_FLAGS) || [ $$? = 77 ]

# The same plugin over CUDA and NCCL of host memory, which are for tests alone.
DOUBLE := $(BUILD)/tests/gpu/libcuda.so.1
GPU_CC = $(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -Itests/gpu/include -Wl,-rpath,'$$ORIGIN'

$(DOUBLE): $(wildcard tests/gpu/*_double.c tests/gpu/*.h tests/gpu/include/*.h) $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(GPU_CC) -shared -Wl,-soname,$(@F) -o $@ $(filter %.c %.a,$^)

$(BUILD)/tests/gpu/libtally-cuda.so.0: client/gpu/cuda.c client/gpu/plugin.h $(DOUBLE) \
		$(call obj,$(wildcard common/base/*.c) client/clock.c)
	@echo "  LD      $@"
	$(Q)$(GPU_CC) -shared -Wl,-soname,$(@F) -o $@ $(filter %.c %.o %.1,$^)

$(BUILD)/tests/gpu/rank: tests/gpu/rank.c $(DOUBLE) $(LIBTALLY_A)
	@echo "  LD      $@"
	$(Q)$(GPU_CC) -o $@ $^ -lprotobuf-c -lm

$(BUILD)/tests/gpu/gpu_bench: $(GPU_BENCH_SRC) $(wildcard bench/gpu/*.h) $(DOUBLE) $(LIBTALLY_A)
	@echo "  LD      $@"
	$(Q)$(GPU_CC) -o $@ $(filter-out %.h,$^) -lprotobuf-c -lm

# ---- objects -----------------------------------------------------------------

$(COMMON_LIB): $(call obj,$(COMMON_SRC)) $(GEN_OBJ)
	@mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(PARTS_LIB): $(call obj,$(PARTS_SRC)) $(call obj,$(CLIENT_SRC))
	@mkdir -p $(@D)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/gen/proto/tally.pb-c.c: proto/tally.proto
	@mkdir -p $(@D)
	$(Q)protoc-c --c_out=$(BUILD)/gen $<

$(BUILD)/gen/proto/tally.pb-c.h: $(BUILD)/gen/proto/tally.pb-c.c

$(GEN_OBJ): $(BUILD)/gen/proto/tally.pb-c.c
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CFLAGS_ALL) -c -o $@ $<

# -O3 where a loop over elements is the work.
%_avx2.o: ISA := -O3 -mavx2 -mf16c
%_avx512.o: ISA := -O3 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mf16c
$(BUILD)/obj/common/kern/kern%.o $(BUILD)/obj/common/kern/quant%.o: OPT_FILE := -O3
$(BUILD)/obj/examples/charlm/%.o: OPT_FILE := -O3
$(BUILD)/obj/tests/e2e/value.o: OPT_FILE := -O3

$(BUILD)/obj/%.o: %.c $(BUILD)/gen/proto/tally.pb-c.h
	@mkdir -p $(@D)
	@echo "  CC      $<"
	$(Q)$(CC) $(CFLAGS_ALL) $(OPT_FILE) $(ISA) -MMD -MP -c -o $@ $<

# ---- tests and benchmarks ----------------------------------------------------

# A test may ask for a library of its own by a line "/* LIBS: -lfoo */".
$(BUILD)/tests/test_%: $(BUILD)/obj/tests/unit/test_%.o $(PARTS_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(PARTS_LIB) $(COMMON_LIB) $(CHECK_LIBS) $(LIBS) \
		$$(sed -n 's|.*/\* LIBS: \(.*\) \*/.*|\1|p' tests/unit/test_$*.c)

$(BUILD)/tests/sim: $(call obj,$(SIM_SRC)) $(PARTS_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

$(STORM): $(call obj,$(STORM_SRC)) $(PARTS_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

# The rank of the end-to-end stories: a user of libtally, with nothing else of ours.
$(BUILD)/tests/e2e: $(call obj,$(E2E_SRC)) $(LIBTALLY_A)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -lprotobuf-c -lm

$(BUILD)/bench/%: $(BUILD)/obj/bench/%.o $(PARTS_LIB) $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $< $(PARTS_LIB) $(COMMON_LIB) $(LIBS)

# ONLY=word: the rows with that word; BENCH_FLAGS: see bench/run.py --help.
bench: build $(BENCHES)
	$(Q)BUILD=$(BUILD) bench/run.py $(if $(ONLY),-k "$$ONLY") $(BENCH_FLAGS)

# What is one thread has nothing in it for TSan, which takes minutes over it.
tests: build tests-build
	$(Q)BUILD=$(BUILD) tests/run.sh $(if $(filter thread,$(SAN)),--threads,--unit --sim)

# make sim: SEEDS=n runs from FIRST=s on; make sim SEED=s: that one, and what happened in it.
SEEDS ?= 20000
FIRST ?= 1
sim: $(SIM)
	$(Q)$(if $(SEED),$(SIM) --seed $(SEED) --trace,tests/sim_set.sh $(SIM) $(SEEDS) $(FIRST))

# The simulator over deliberate protocol bugs, chosen when it runs: it has to find them all.
# Only what has bugs in it is compiled again; the libraries give the rest.
MUTANT_OBJ := $(patsubst %.c,$(BUILD)/mutants/%.o,$(SIM_SRC) \
	$(shell grep -l MUTATE scheduler/*.c server/*.c worker-agent/*.c))

$(BUILD)/mutants/%.o: %.c $(BUILD)/gen/proto/tally.pb-c.h
	@mkdir -p $(@D)
	@echo "  CC      $@"
	$(Q)$(CC) $(CFLAGS_ALL) -DTALLY_MUTANTS -MMD -MP -c -o $@ $<

$(BUILD)/mutants/sim: $(MUTANT_OBJ) $(PARTS_LIB) $(COMMON_LIB)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

mutants: $(BUILD)/mutants/sim
	$(Q)tests/mutants.sh $<

# The stories of tests/e2e with their whole matrices, and their times to match.
e2e-full: build tests-build
	$(Q)BUILD=$(BUILD) E2E_FULL=1 E2E_SECONDS=600 tests/run.sh --stories -t 3600 -k stories/e2e_

# Real daemons, and something that goes wrong every second.
MINUTES ?= 10
soak: build
	$(Q)BUILD=$(BUILD) tests/soak.sh $$(( $(MINUTES) * 60 )) $(SEED)

lint:
	$(Q)python3 tests/lint.py
	$(Q)python3 tests/cycles.py
	$(Q)python3 tests/comments.py --openings

# Before each commit: under a minute on two CPUs, once all is built.
quick: lint $(UNITS) $(SIM)
	$(Q)BUILD=$(BUILD) tests/run.sh --unit
	$(Q)$(SIM) --seeds 50

# T=name: the unit test of that name (CASE=: one test case of it), else all tests with that word.
t:
ifneq ($(wildcard tests/unit/test_$(T).c),)
	$(Q)$(MAKE) --no-print-directory $(BUILD)/tests/test_$(T)
	$(Q)$(if $(CASE),CK_RUN_CASE='$(CASE)') $(BUILD)/tests/test_$(T)
else
	$(Q)[ -n '$(T)' ] || { echo 'make t T=name: of tests/unit/test_NAME.c or tests/stories' >&2; exit 2; }
	$(Q)$(MAKE) --no-print-directory build tests-build
	$(Q)BUILD=$(BUILD) tests/run.sh -k '$(T)'
endif

# 60 function comments drawn at random: can each be understood without another file?
comments:
	$(Q)python3 tests/comments.py $(if $(SEED),--seed $(SEED))

# How each file is compiled, for editors and clang's tools.
compile_commands.json: Makefile
	$(Q)$(MAKE) --no-print-directory -nBs V=1 build tests-build 2>/dev/null | \
		python3 tests/compile_commands.py > $@.new
	$(Q)mv $@.new $@

FUZZ_SECONDS ?= 10
FUZZ_FLAGS := -std=gnu17 -g -O1 -D_GNU_SOURCE -DTALLY_VERSION=\"$(VERSION)\" -I. -I$(BUILD)/gen \
	-ffp-contract=off -fno-sanitize-recover=all -pthread -Wno-missing-field-initializers
FUZZ_OBJ := $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(filter-out common/kern/% common/lane/%,$(COMMON_SRC)) \
	gen/proto/tally.pb-c.c scheduler/state.c client/conn.c client/clock.c client/mem.c \
	worker-agent/agent_core_mark.c)

$(BUILD)/fuzz/obj/gen/%.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link,address,undefined -c -o $@ $<

$(BUILD)/fuzz/obj/%.o: %.c $(BUILD)/gen/proto/tally.pb-c.h
	@mkdir -p $(@D)
	@echo "  FUZZ CC $<"
	$(Q)$(CLANG) $(FUZZ_FLAGS) $(ISA) -fsanitize=fuzzer-no-link,address,undefined -MMD -MP -c -o $@ $<

# Those of whole cores need these, and how sums are made.
STORM_FUZZ_OBJ := $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(filter-out %/main.c %/storm_jobs.c %/storm_peer.c,$(STORM_SRC)) \
	$(filter common/kern/%,$(COMMON_SRC)) $(filter-out %/main.c,$(SCHED_SRC)) \
	$(wildcard server/server_core*.c worker-agent/agent_core*.c))
$(filter $(BUILD)/fuzz/fuzz_storm_%,$(FUZZERS)): $(STORM_FUZZ_OBJ)

$(BUILD)/fuzz/%: $(BUILD)/fuzz/obj/tests/fuzz/%.o $(FUZZ_OBJ)
	@echo "  FUZZ LD $@"
	$(Q)$(CLANG) -fsanitize=fuzzer,address,undefined -pthread -o $@ $^ $(LIBS)

# What some of them begin with.
FUZZ_SEEDS := $(BUILD)/fuzz/seeds

$(FUZZ_SEEDS): $(BUILD)/obj/tests/fuzz/seeds.o $(COMMON_LIB)
	@mkdir -p $(@D)
	@echo "  LD      $@"
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

fuzz: $(FUZZERS) $(FUZZ_SEEDS)
	$(Q)for f in $(FUZZERS); do tests/fuzz/run.sh $$f $(FUZZ_SECONDS) || exit 1; done

.PHONY: fuzz-build
fuzz-build: $(FUZZERS) $(FUZZ_SEEDS)

# ---- packages ----------------------------------------------------------------

# Debian packages in $(DEB), from a copy of the tree that has debian/ where Debian wants it;
# libtally-cuda among them where the toolkit is.
.PHONY: deb wheel check-packages
deb:
	$(Q)rm -rf $(DEB) && mkdir -p $(DEB)/tally-$(VERSION)
	$(Q)tar -c --exclude-vcs --exclude='./$(BUILD)' --exclude=./build --exclude=__pycache__ . | \
		tar -x -C $(DEB)/tally-$(VERSION)
	$(Q)cp -a deploy/debian $(DEB)/tally-$(VERSION)/debian
	$(Q)cd $(DEB)/tally-$(VERSION) && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u MAKEOVERRIDES \
		dpkg-buildpackage -b -us -uc -j$$(nproc) $(if $(LIBTALLY_CUDA),-Ppkg.tally.cuda) \
		> ../build.log 2>&1 || { tail -n 30 ../build.log >&2; exit 1; }
	$(Q)rm -rf $(DEB)/tally-$(VERSION)
	@ls $(DEB)/*.deb

# A wheel with libtally in it, which needs libc alone: protobuf-c is linked into it.
wheel: $(call obj,$(LIB_SRC)) $(GEN_OBJ)
	$(Q)rm -rf $(WHEEL) && mkdir -p $(WHEEL)/src/tally/torch
	$(Q)cp client/python/tally/*.py $(WHEEL)/src/tally
	$(Q)cp client/python/tally/torch/*.py $(WHEEL)/src/tally/torch
	$(Q)cp deploy/wheel/setup.py README.md LICENSE $(WHEEL)/src
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libtally.so.0 \
		-Wl,--version-script=client/libtally.map -Wl,--no-undefined -s \
		-o $(WHEEL)/src/tally/libtally.so.0 $^ -l:libprotobuf-c.a
	$(Q)cd $(WHEEL)/src && for p in $(PYTHON) /usr/bin/python3 python3; do \
		$$p -c 'import setuptools, wheel' 2> /dev/null && break; done && \
		$$p setup.py -q bdist_wheel -d .. > ../build.log 2>&1 || { cat ../build.log >&2; exit 1; }
	$(Q)rm -rf $(WHEEL)/src
	@ls $(WHEEL)/*.whl

check-packages:
	$(Q)deploy/install-packages.sh packages torch
	$(Q)$(MAKE) --no-print-directory build deb wheel
	$(Q)BUILD=$(BUILD) python3 tests/run.py -j 1 -t 900 -- tests/packages/debian.sh \
		tests/packages/wheel.sh

# ---- the rest ----------------------------------------------------------------

# Where python3 looks below this PREFIX: Debian's has other places for /usr and /usr/local.
python_sites = import site; print(next((d for d in site.getsitepackages() \
	if d.startswith("$(abspath $(PREFIX))/lib/")), ""))
python_dir = $(shell for p in $(PYTHON) python3 /usr/bin/python3; do \
	d=$$($$p -c '$(python_sites)' 2>/dev/null); [ -z "$$d" ] || { echo "$$d"; break; }; done)
PYTHON_DIR ?= $(or $(python_dir),$(PREFIX)/lib/python3/dist-packages)
UNITS_SYSTEMD := $(wildcard deploy/systemd/*.service deploy/systemd/*.target)
dest = $(DESTDIR)$(PREFIX)
lib_dest = $(DESTDIR)$(LIBDIR)
python_dest = $(DESTDIR)$(PYTHON_DIR)/tally

# Manual pages and completions: what the programs say by --help, and what tally.h says.
manual: $(BUILD)/manual/made
$(BUILD)/manual/made: $(filter-out %/charlm,$(PROGRAMS)) client/tally.h common/base/err.h \
		$(wildcard deploy/manual/*.py) deploy/debian/changelog
	@echo "  MANUAL  $(@D)"
	$(Q)PYTHONDONTWRITEBYTECODE=1 python3 deploy/manual/generate.py $(BUILD) $(@D)
	$(Q)touch $@

# Units and pkg-config name paths, so they are written for this PREFIX, not copied.  All is
# install's, which makes files anew, for everybody to read whatever the umask: a library that
# was written over would end the processes that have it.
install: build manual
	@case '$(PREFIX)' in /*) ;; *) echo "PREFIX=$(PREFIX): not an absolute path" >&2; exit 2 ;; esac
	@case '$(PREFIX)' in *[[:space:]]*) echo "PREFIX=$(PREFIX): a blank, which parts words in" \
		"units and libtally.pc" >&2; exit 2 ;; esac
	install -d '$(dest)/bin' '$(lib_dest)/pkgconfig' '$(dest)/include' \
		'$(dest)/lib/systemd/system' '$(dest)/lib/sysusers.d' '$(dest)/lib/tmpfiles.d' \
		'$(dest)/share/doc/tally/docs' \
		'$(python_dest)/torch' '$(dest)/share/bash-completion/completions' \
		'$(dest)/share/zsh/site-functions'
	install -m 755 $(filter-out %/charlm,$(PROGRAMS)) '$(dest)/bin'
	install -m 644 $(LIBTALLY_A) '$(lib_dest)'
	install -m 755 $(LIBTALLY_SO) $(LIBTALLY_CUDA) '$(lib_dest)'
	ln -sf $(notdir $(LIBTALLY_SO)) '$(lib_dest)/libtally.so.0'
	ln -sf libtally.so.0 '$(lib_dest)/libtally.so'
	install -m 644 client/tally.h '$(dest)/include'
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR:$(PREFIX)/%=$${prefix}/%)|g' \
		-e 's|@VERSION@|$(VERSION)|g' client/libtally.pc.in | install -m 644 /dev/stdin '$(lib_dest)/pkgconfig/libtally.pc'
	for f in $(UNITS_SYSTEMD); do \
		sed 's|/usr/|$(PREFIX)/|g' $$f | \
		install -m 644 /dev/stdin '$(dest)/lib/systemd/system/'$${f##*/} || exit 1; done
	install -m 644 deploy/systemd/tally.sysusers '$(dest)/lib/sysusers.d/tally.conf'
	install -m 644 deploy/systemd/tally.tmpfiles '$(dest)/lib/tmpfiles.d/tally.conf'
	install -m 644 README.md CONTRIBUTING.md LICENSE '$(dest)/share/doc/tally'
	install -m 644 $(wildcard docs/*.md) '$(dest)/share/doc/tally/docs'
	cp -a --no-preserve=ownership $(BUILD)/manual/man '$(dest)/share'
	chmod -R u=rwX,go=rX '$(dest)/share/man'
	install -m 644 $(BUILD)/manual/bash/tally '$(dest)/share/bash-completion/completions'
	for d in tally-scheduler tally-server tally-agent; do ln -sf tally \
		'$(dest)/share/bash-completion/completions/'$$d || exit 1; done
	install -m 644 $(BUILD)/manual/zsh/_tally '$(dest)/share/zsh/site-functions'
	install -m 644 client/python/tally/*.py '$(python_dest)'
	install -m 644 client/python/tally/torch/*.py '$(python_dest)/torch'

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD)/obj $(BUILD)/fuzz $(BUILD)/mutants -name '*.d' 2>/dev/null)
