# A thin front for CMake and the tools; `make help` lists the targets.
BUILD ?= build
DIR ?= ./run
SERVERS ?= 4
FUZZ_SECONDS ?= 60
ROUNDS ?= 60
SEED ?=
SIM_SEEDS ?= 1500:21500
MUTANT_FLAGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TEST_FLAGS ?=
SAN_ONLY ?= unit,fuzz,sim,system
BENCH_FLAGS ?=
BENCH_MEMORY ?= /dev/shm
BENCH_DISK ?= .
PREFIX ?= /usr/local
DESTDIR ?=

# A warning of a compiler that we have not met must not keep anybody from building; the tests' own builds mind it.
WERROR ?= OFF
check check-long check-vm check-web clang clang-check asan tsan fuzz: export WERROR = ON

CONFIGURE = cmake -S . -G Ninja -Wno-dev -DSHEAF_WERROR=$(WERROR)
# $(call configure,DIR,OPTIONS): once, and when warnings begin to matter; CMake runs itself again when its input changes
configure = @test -f $(1)/build.ninja && { test $(WERROR) = OFF || grep -q SHEAF_WERROR:BOOL=ON $(1)/CMakeCache.txt; } || \
	$(CONFIGURE) -B $(1) $(2)

.PHONY: build up down check check-long check-vm check-web clang-check asan tsan fuzz crash clang bench format clean help deps deps-check install deb \
	sim-long mutants

build:
	$(call configure,$(BUILD),-DCMAKE_BUILD_TYPE=Release)
	@cmake --build $(BUILD) -j $(JOBS)

deps:
	@tools/deps.sh

deps-check:
	@tools/deps.sh --check

# Builds what is installed and the examples, without tests and benchmark programs. A new build directory does not optimize
# across source files, which would take as long again; `make install` and `make bench` do.
up: deps
	$(call configure,$(BUILD),-DCMAKE_BUILD_TYPE=Release -DSHEAF_LTO=OFF)
	@cmake --build $(BUILD) -j $(JOBS) --target product
	@GIVEN=$(if $(filter file,$(origin SERVERS)),,1) tools/up.sh "$(DIR)" "$(SERVERS)"

down:
	@tools/down.sh "$(DIR)"

# Both compilers: no warnings, and the simulation runs the same with either.
check: deps-check
	@$(MAKE) --no-print-directory build clang-check
	@python3 tools/run_tests.py --build $(BUILD) $(TEST_FLAGS)

# Every test with its full counts, and everything built with clang.
check-long: deps-check
	@$(MAKE) --no-print-directory build clang
	@python3 tools/run_tests.py --build $(BUILD) --long $(TEST_FLAGS)

# In a guest (QEMU) with netem and Soft-RoCE. The first run downloads a kernel; without QEMU the tests are skipped.
check-vm: deps-check
	@$(MAKE) --no-print-directory build
	@python3 tools/run_tests.py --build $(BUILD) --only vm $(TEST_FLAGS)

# The status page in headless Chromium.
check-web:
	@tools/deps.sh --web
	$(call configure,$(BUILD),-DCMAKE_BUILD_TYPE=Release)
	@cmake --build $(BUILD) -j $(JOBS) --target product
	@python3 tools/run_tests.py --build $(BUILD) --only web $(TEST_FLAGS)

asan tsan: deps-check
	$(call configure,build-$@,-DCMAKE_BUILD_TYPE=Release -DSHEAF_SAN=$@)
	@cmake --build build-$@ -j $(JOBS)
	@python3 tools/run_tests.py --build build-$@ --only $(SAN_ONLY) $(TEST_FLAGS)

fuzz: deps-check
	$(call configure,build-fuzz,-DCMAKE_C_COMPILER=clang -DSHEAF_FUZZ=ON)
	@cmake --build build-fuzz -j $(JOBS)
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS)

# What `make check` runs too; more of it, or a seed again. A failure leaves its directory and says where.
crash: deps-check
	@$(MAKE) --no-print-directory build
	@SHEAF_BUILD=$(abspath $(BUILD)) $(BUILD)/tests/sys_crash --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

CLANG = -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang
clang: deps-check
	$(call configure,build-clang,$(CLANG))
	@cmake --build build-clang -j $(JOBS)

# What `make check` needs of clang: the simulation, and no warnings in any source.
clang-check: deps-check
	$(call configure,build-clang,$(CLANG))
	@cmake --build build-clang -j $(JOBS) --target sheaf-sim
	@python3 tools/check_syntax.py build-clang sheaf-sim --jobs $(JOBS)

# Seeds that make check does not run.
sim-long: deps-check
	@$(MAKE) --no-print-directory build
	@$(BUILD)/bin/sheaf-sim --seeds $(SIM_SEEDS) --jobs $(JOBS) --stats

# One mistake at a time: the simulation must find each.
mutants: deps-check
	@python3 tools/mutants.py --jobs $(JOBS) $(MUTANT_FLAGS)

# In memory and on disk; a quiet machine, please.
bench: deps-check
	$(call configure,$(BUILD),-DCMAKE_BUILD_TYPE=Release)
	@cmake -B $(BUILD) -DSHEAF_LTO=ON >/dev/null
	@$(MAKE) --no-print-directory build
	@$(BUILD)/bin/sheaf bench all --dir $(BENCH_MEMORY) --report $(BUILD)/bench-report/memory $(BENCH_FLAGS)
	@$(BUILD)/bin/sheaf bench all --dir $(BENCH_DISK) --report $(BUILD)/bench-report/disk $(BENCH_FLAGS)
	@python3 tools/perf_tables.py --index $(BUILD)/bench-report

# The prefix is part of sheaf.pc and of the systemd unit: CMake hears of it before it installs.
install: deps
	$(call configure,$(BUILD),-DCMAKE_BUILD_TYPE=Release)
	@cmake -B $(BUILD) -DSHEAF_LTO=ON -DSHEAF_WERROR=$(WERROR) -DCMAKE_INSTALL_PREFIX="$(PREFIX)" >/dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target product
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD)
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; \
		[ "$(PREFIX)/sbin" -ef /sbin ] || ln -sfn "$(PREFIX)/sbin/mount.fuse.sheaf" /sbin/; fi

deb:
	@tools/deps.sh --deb
	@tools/deb.sh build-deb

format:
	@find src include tests bench examples -name '*.[ch]' | xargs -r clang-format -i

clean:
	@rm -rf build build-asan build-tsan build-clang build-fuzz build-deb build-mutants

help:
	@echo "make          build into build/ (programs in build/bin, libraries in build/lib)"
	@echo "make up       install what is missing, build, start SERVERS=$(SERVERS) servers in DIR=$(DIR)"
	@echo "make down     stop them"
	@echo "make check    install what is missing, build, run all tests: about 12 minutes on 2 cores"
	@echo "make check-long  the same with full counts: more rounds, steps and seeds; some hours"
	@echo "make check-vm tests in a guest (QEMU) whose kernel has netem and Soft-RoCE"
	@echo "make check-web tests of the status page in a browser, which it installs (Chromium)"
	@echo "make asan     tests under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make tsan     tests under ThreadSanitizer"
	@echo "make fuzz     each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make crash    ROUNDS=$(ROUNDS) rounds of kill -9 against real servers and clients; SEED=n chooses them"
	@echo "make clang    build with clang into build-clang/"
	@echo "make sim-long seeds SIM_SEEDS=$(SIM_SEEDS) of the simulation"
	@echo "make mutants  builds with one mistake each: does the simulation find it?"
	@echo "make install  install below PREFIX=$(PREFIX), or below DESTDIR for a package"
	@echo "make deb      Debian packages into build-deb/"
	@echo "make bench    every benchmark in BENCH_MEMORY=$(BENCH_MEMORY) and BENCH_DISK=$(BENCH_DISK): $(BUILD)/bench-report/"
	@echo "make format   clang-format over all sources"
	@echo "make clean    remove the build folders"
