# What a person does with this tree. `make help` lists it.

CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)$(CARGO_BUILD_TARGET:%=/%)
STAGE  := target/stage
PREFIX ?= /usr
SYSCONFDIR ?= /etc
# What is installed: release, or debug for what `make build` built.
BUILT  ?= release
PARTS  := SHIMS=$(TARGET)/shim THIRD_PARTY=$(TARGET)/third-party
PLACES := DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" BUILT=$(TARGET)/$(BUILT) $(PARTS)
PHASE  := sh .ci/phase
# What is made of a real kubelet's parts, in Go.
KUBELET := TRANCHE_STAGE=$(abspath $(STAGE)) tests/kubelet/run.sh
# What `make build` built, for tests that pack it.
DEBUG  := BUILT=$(TARGET)/debug $(PARTS)
# A whole cluster of one node, its programs built from Go modules.
CLUSTER := $(DEBUG) TRANCHE_STAGE=$(abspath $(STAGE)) tests/cluster/run.sh
# Crates whose tests run programs of the stage.
STAGED := e2e stress chaos teams pytorch fakekubelet compat
# Tests of packages: of the whole workspace by name where all is built, as another selection would be compiled anew.
TESTS_OF = $(if $(IS_BUILT),--workspace $(call NAMES_OF,$(1)),--tests $(addprefix -p ,$(1)))
NAMES_OF = $(or $(shell .ci/tests $(1)),$(error .ci/tests has no names))
# Tests with real processes wait longer than they compute.
TEST_THREADS := RUST_TEST_THREADS=$(or $(RUST_TEST_THREADS),$(shell n=$$(nproc); echo $$((n < 4 ? 4 : n))))
# Built one at a time: they share a package that exports for each of them something else.
SHIMS  := preload libcuda libnvml

.PHONY: refresh-symbols help build install uninstall release debug third-party deb dist demo demo-kubelet demo-cluster demo-teams demo-park demo-torch play bench bench-claims bench-jobs bench-park bench-views test check lint doc site unit arm e2e torch compat chart kubelet kubelet-build cluster cluster-build cluster-build-all cluster-shell test-cluster test-boot escape stress properties chaos hostile zoo gpu-script test-packages test-dist test-reproducible freeze fuzz clean

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

# Phases of `make test` share what its phase `build` made: the stage, and programs and tests of one selection of packages.
ifdef IS_BUILT
build:
else
build: ## Build everything into target/stage
	$(CARGO) build --workspace $(if $(WITH_TESTS),--lib --bins --tests --examples,--exclude stress --exclude chaos --exclude teams --exclude parkdemo --exclude pytorch)
	$(foreach shim,$(SHIMS),$(CARGO) build --profile shim -p tranche-$(shim) &&) true
	@mkdir -p $(STAGE)/bin $(STAGE)/lib/tranche/replace $(STAGE)/sim
	@install -m 755 $(addprefix $(TARGET)/debug/,tranched tranche tranche-page tranche-demo tranche-deviceplugin tranche-dradriver tranche-nriplugin workload simgpu) $(STAGE)/bin
	@install -m 755 $(TARGET)/shim/libtranche_preload.so $(STAGE)/lib/tranche
	@install -m 755 $(TARGET)/debug/tranche-shepherd $(STAGE)/lib/tranche
	@install -m 755 $(TARGET)/shim/libtranche_libcuda.so $(STAGE)/lib/tranche/replace/libcuda.so.1
	@install -m 755 $(TARGET)/shim/libtranche_libnvml.so $(STAGE)/lib/tranche/replace/libnvidia-ml.so.1
	@install -m 755 $(TARGET)/debug/libfakenvml.so $(STAGE)/sim/libnvidia-ml.so.1
	@$(TARGET)/debug/fakecuda-stage $(TARGET)/debug/libfakecuda.so $(STAGE)/sim
	@$(TARGET)/debug/fakecudart-stage $(TARGET)/debug/libfakecudart.a $(STAGE)/sim/cuda
	@$(STAGE)/bin/tranche generate completions --out $(STAGE)/share/completions
	@$(STAGE)/bin/tranche generate man --out $(STAGE)/share/man/man1
	@$(MAKE) --no-print-directory -s -C tests/gpu OUT=$(abspath $(STAGE))/tests
	@$(MAKE) --no-print-directory -s -C tests/bench/c OUT=$(abspath $(STAGE))/bench
	@install -m 755 $(addprefix $(TARGET)/debug/,bench-compute facts fakecudart-stage) $(STAGE)/tests
	@install -m 644 $(TARGET)/debug/libfakecudart.a $(STAGE)/tests
	@git rev-parse --short HEAD >$(STAGE)/commit 2>/dev/null || true
endif

demo: build ## Two programs share a GPU, on a real one if it is free, else simulated (GPU=sim|real)
	@mkdir -p target/report
	$(STAGE)/bin/tranche demo --gpu $(or $(GPU),auto) --report target/report/demo.json

demo-kubelet: build ## A real kubelet's device manager hands out 0.6 + 0.4, 0.5 + 0.3 + 0.2, 2 and 4 GPUs (simulated)
	@$(KUBELET) demo

demo-cluster: build cluster-build ## The same in a real Kubernetes cluster, by resource claims; 4 GPUs wait for room (wants root; simulated)
	@$(CLUSTER) demo

demo-teams: build ## Four teams share sixteen GPUs: they borrow, give back, and divide what is left (simulated)
	@TRANCHE_STAGE=$(abspath $(STAGE)) $(if $(IS_BUILT),$(TARGET)/debug/teams,$(CARGO) run -q -p teams --) --report target/report/demo-teams.json --svg target/report/demo-teams.svg

demo-park: build ## A notebook sleeps, a training has its memory, and the notebook wakes (simulated)
	@TRANCHE_STAGE=$(abspath $(STAGE)) $(if $(IS_BUILT),$(TARGET)/debug/parkdemo,$(CARGO) run -q -p parkdemo --) --report target/report/demo-park.json --svg target/report/demo-park.svg

demo-torch: build ## Two PyTorch trainings share a GPU at 70 and 30 %, through a full slice, a resize and a killed daemon (simulated)
	@TRANCHE_STAGE=$(abspath $(STAGE)) $(CARGO) run -q -p pytorch -- --report target/report/demo-torch.json --svg target/report/demo-torch.svg

play: build ## A shell on a simulated node of eight V100s, with the daemon running
	@$(STAGE)/bin/tranche play

install: $(BUILT) ## Build for use and put everything under $(DESTDIR)$(PREFIX)
	@$(PLACES) systemd/install.sh install

uninstall: ## Take away exactly what `make install` put under $(DESTDIR)$(PREFIX)
	@$(PLACES) systemd/install.sh uninstall

release: third-party # What is installed
	$(CARGO) build --release -p tranche-agent -p tranche-jobs -p tranche-ctl -p tranche-page -p tranche-deviceplugin -p tranche-dradriver -p tranche-nriplugin -p tranche-demo -p simgpu -p workload -p fakecuda -p fakenvml
	$(foreach shim,$(SHIMS),$(SHIM_ENV) $(CARGO) build --profile shim -p tranche-$(shim) &&) true

debug: build third-party # The same from `make build`, for tests

third-party: # Licences and bill of materials of what is shipped of others
	$(if $(IS_BUILT),$(TARGET)/debug/examples/third-party,$(CARGO) run -q -p architecture --example third-party --) $(TARGET)/third-party

deb: $(BUILT) ## Build a Debian package, target/deb/tranche_*.deb (VERSION=1.2.3)
	@rm -rf target/deb/root
	@$(PLACES) DESTDIR=target/deb/root PREFIX=/usr SYSCONFDIR=/etc systemd/install.sh install
	@$(if $(filter debug,$(BUILT)),strip --strip-debug target/deb/root/usr/bin/*)
	@sh systemd/deb.sh target/deb/root target/deb $(VERSION)

dist: ## Everything that a release consists of, from one build that is the same anywhere: target/dist (ARCH=aarch64)
	@MAKE="$(MAKE)" sh systemd/dist/dist.sh

bench: build ## What slices cost and get, beside the bare driver (PEER_SHIM=/path/to/lib.so PEER_ENV="K=V ..." BENCH="--gpu sim --only shares")
	$(CARGO) build --release -p tranche-agent -p tranche-ctl
	$(TARGET)/debug/bench-memory --stage $(STAGE) --programs $(TARGET)/release --report target/report/bench-memory.json; \
	memory=$$?; $(TARGET)/debug/bench-compute $(BENCH) --stage $(STAGE) --programs $(TARGET)/release && exit $$memory
	@$(MAKE) --no-print-directory bench-jobs; \
	jobs=$$?; $(MAKE) --no-print-directory bench-park && $(MAKE) --no-print-directory bench-views && exit $$jobs

bench-jobs: build ## One of them: ten thousand jobs of two hundred projects on sixteen GPUs (JOBS="--quick --only decisions")
	$(CARGO) build --release -p tranche-agent -p tranche-ctl -p bench --bin tranched --bin tranche --bin bench-jobs
	$(TARGET)/release/bench-jobs $(JOBS) --stage $(STAGE) --programs $(TARGET)/release

bench-claims: build ## Times to prepare resource claims with release programs; fails beyond 100 ms (CLAIMS=1000 AT_A_TIME=20)
	$(CARGO) build --release -p tranche-agent -p tranche-ctl -p tranche-dradriver
	rm -rf $(TARGET)/stage-release && cp -a $(STAGE) $(TARGET)/stage-release
	cp $(addprefix $(TARGET)/release/,tranched tranche tranche-dradriver) $(TARGET)/stage-release/bin
	CLAIMS=$(or $(CLAIMS),1000) AT_A_TIME=$(or $(AT_A_TIME),20) GOAL_MS=100 TRANCHE_STAGE=$(abspath $(TARGET)/stage-release) \
	$(CARGO) test -p fakekubelet --test claims -- --nocapture claims_are_prepared_in_time

bench-park: build ## One of them: times to park a slice and to bring it back beside the bus, and a minute of four slices of 0.6 (simulated)
	@TRANCHE_STAGE=$(abspath $(STAGE)) $(CARGO) run -q -p parkdemo -- --measure --report target/report/bench-park.json
	@TRANCHE_STAGE=$(abspath $(STAGE)) $(CARGO) run -q -p parkdemo -- --rotate --report target/report/bench-rotate.json

bench-views: build ## One of them: processor time of `tranche top` and the page, beside the daemon's
	$(CARGO) build --release -p tranche-agent -p tranche-ctl -p tranche-page
	$(TARGET)/debug/bench-views --stage $(STAGE) --programs $(TARGET)/release

test: ## Everything that must hold, with the time of each phase
	@rm -f target/report/phases.txt
	@$(PHASE) cluster-build $(MAKE) --no-print-directory cluster-build
	@$(PHASE) lint $(MAKE) --no-print-directory lint
	@$(PHASE) build $(MAKE) --no-print-directory build WITH_TESTS=1
	@$(PHASE) unit $(MAKE) --no-print-directory unit IS_BUILT=1
	@$(PHASE) e2e $(MAKE) --no-print-directory e2e IS_BUILT=1
	@$(PHASE) torch $(MAKE) --no-print-directory torch IS_BUILT=1
	@$(PHASE) gpu-script $(MAKE) --no-print-directory gpu-script IS_BUILT=1
	@.ci/beside "$(PHASE)" "$(MAKE) --no-print-directory IS_BUILT=1" "arm compat" "chart cluster test-boot test-packages demo demo-teams demo-park"
	@printf '\n'; cat target/report/phases.txt

check: ## Formatting, warnings, and unit tests of the crates that differ from the last commit (SINCE=origin/main)
	@CARGO="$(CARGO)" STAGED="$(STAGED)" .ci/check

lint: ## Formatting and warnings
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(foreach shim,$(SHIMS),$(CARGO) clippy --profile shim -p tranche-hooks -p tranche-$(shim) -- -D warnings &&) true
	@$(KUBELET) lint

# Compiles the workspace once more: a minute and a half on two cores, so it is no part of `make test`.
doc: ## Documentation of the crates in target/doc; a broken link is an error
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

site: ## The pages of docs/ as a website in target/site; a warning or a dead link is an error
	@$(CARGO) run -q -p site

# Documentation has no code to be tested, which tests/architecture checks: compiling each crate for it takes a minute.
unit: ## Tests of each crate by itself
	$(if $(IS_BUILT),,$(CARGO) build --examples -p tranche-symbols) # its tests run them
	$(CARGO) test --no-fail-fast --workspace $(if $(IS_BUILT),--lib --bins $(call NAMES_OF,--but $(STAGED)),--tests $(STAGED:%=--exclude %))

e2e: build ## Tests with real processes on the simulated GPU
	TRANCHE_STAGE=$(abspath $(STAGE)) $(TEST_THREADS) $(CARGO) test --no-fail-fast $(call TESTS_OF,e2e fakekubelet stress chaos teams)

escape: build ## Every escape route on every driver personality (PERSONALITIES=535,580 ROUTES=reset TIMES=30)
	TRANCHE_STAGE=$(abspath $(STAGE)) PERSONALITIES=$(or $(PERSONALITIES),all) $(CARGO) test --no-fail-fast --tests -p e2e --test escape

arm: build ## The library on 64-bit Arm, emulated: its own tests, and programs in slices
	@CARGO="$(CARGO)" SELECT="$(if $(IS_BUILT),--workspace,-p e2e)" tests/e2e/tests/arm/run.sh $(abspath $(STAGE)) $(abspath target/arm) $(SHIMS)

torch: build ## PyTorch and JAX in slices of the simulated GPU (fetches 1.2 GB the first time)
	TRANCHE_STAGE=$(abspath $(STAGE)) $(CARGO) test --no-fail-fast $(call TESTS_OF,pytorch)

compat: build ## Tests of what other releases rely on, with the programs, the shim and the daemon of the one before
	@CARGO="$(CARGO)" tests/compat/previous.sh target/compat $(STAGE)
	TRANCHE_STAGE=$(abspath $(STAGE)) TRANCHE_PREVIOUS=$(abspath target/compat) $(CARGO) test --no-fail-fast $(call TESTS_OF,compat)

chart: # Documents of the chart, as a cluster would admit them
	@$(KUBELET) chart

kubelet: build ## Tests with the device manager of a real kubelet, also a part of `make test-cluster` (wants Go 1.26)
	@$(KUBELET) test

kubelet-build: # The parts of Kubernetes that it takes: minutes the first time, then seconds
	@$(KUBELET) build

cluster: build third-party ## The chart in a real Kubernetes cluster of one node: fractions, waiting, claims, a power cut (wants root and cluster-build)
	@$(CLUSTER) short

test-cluster: build third-party cluster-build-all ## All that is tested there: lost GPUs, restarts, a power cut, dynamic profiles, other installations (ONLY="shares")
	@$(if $(ONLY),,$(KUBELET) test)
	@$(CLUSTER) test $(ONLY)

cluster-shell: build cluster-build ## A shell with kubectl and helm beside such a cluster (docs/tour-kubernetes.md)
	@$(CLUSTER) shell

cluster-build: # Kubernetes, etcd, containerd and helm, and what an image takes of Debian: minutes the first time, then seconds
	@$(CLUSTER) build

cluster-build-all: # Kueue beside them, which `make cluster` does without
	@$(CLUSTER) build-all

test-boot: build ## Boot a Debian in namespaces and have the package live through everything there (simulated)
	@MAKE="$(MAKE)" tests/boot/run.sh

test-packages: build third-party ## Archive and wheel of what `make build` built, unpacked and played with
	@$(DEBUG) tests/dist/packages.sh

test-dist: dist ## Each artefact of `make dist` on bare Debians 11 to 13, from one line to `tranche play` (ROOTS="bookworm", ARCH=aarch64)
	@tests/dist/run.sh

test-reproducible: dist ## Two builds of the last commit in two folders, compared byte for byte (another release build)
	@MAKE="$(MAKE)" tests/dist/reproducible.sh

chaos: build ## Kill daemons at every step, fill disks, tear files, set clocks, lose GPUs, flood sockets (DEATHS=600, CYCLES=10000, SEED=N)
	$(CARGO) build -p chaos
	TRANCHE_STAGE=$(abspath $(STAGE)) $(TARGET)/debug/chaos --deaths $(or $(DEATHS),600) --cycles $(or $(CYCLES),10000) --seed $(or $(SEED),1) --report target/report/chaos.json

stress: build ## Kill tenants and daemons at every step, 30000 times, and promise each GPU to 10000 claims (DEATHS=N, SEED=N, CLAIMS=N)
	CLAIMS=$(or $(CLAIMS),10000) TRANCHE_STAGE=$(abspath $(STAGE)) $(CARGO) test -p fakekubelet --test claims -- --nocapture double_promises
	$(CARGO) run -p stress -- run --deaths $(or $(DEATHS),30000) --seed $(or $(SEED),1) --report target/report/stress.json

# A property that fails for one history in ten thousand fails in one of forty runs of `make test`.
properties: ## Every property test with many cases (CASES=1000, five minutes once compiled): what fails seldom
	PROPTEST_CASES=$(or $(CASES),1000) PROPTEST_MAX_GLOBAL_REJECTS=1000000 $(CARGO) test --no-fail-fast --workspace --lib --bins $(call NAMES_OF,tranche-policy tranche-cdi)

hostile: build ## Write hostile bytes into live usage regions beside an honest neighbour (MINUTES=10, SEED=N)
	$(CARGO) build --release -p tranche-agent -p tranche-ctl
	$(TARGET)/debug/bench-hostile --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) --stage $(STAGE) --programs $(TARGET)/release --report target/report/hostile.json

zoo: ## Judge every law of the arena on every hardware model, in virtual time: some minutes (ONLY="events priority")
	@$(CARGO) run -q -p arena --example zoo -- target/report $(ONLY)

gpu-script: build ## The script for GPU machines, on the simulated one; programs are those of target/venv or this machine
	$(STAGE)/tests/run.sh --sim --quick
	PYTHON=$(or $(wildcard $(CURDIR)/target/venv/bin/python),python3) $(STAGE)/tests/run.sh --sim --programs --out target/report/gpu-programs

refresh-symbols: ## Enter a newer driver's exports and enumerators in the tables (DRIVER=/path/to/libcuda.so [NVML=...] [HEADER=.../cuda.h])
	$(if $(DRIVER)$(NVML)$(HEADER),,$(error DRIVER=/path/to/libcuda.so, NVML=/path/to/libnvidia-ml.so or HEADER=/path/to/cuda.h is needed))
	$(if $(HEADER),$(CARGO) run -q -p tranche-symbols --example refresh_enumerators -- $(HEADER) shim/symbols/data/enumerators.tsv)
	$(if $(DRIVER),$(CARGO) run -q -p tranche-symbols --example refresh -- $(DRIVER) shim/symbols/data/cuda.tsv)
	$(if $(NVML),$(CARGO) run -q -p tranche-symbols --example refresh -- $(NVML) shim/symbols/data/nvml.tsv)

freeze: ## Promise to other releases what was added to tranche.v1 and to shared memory; refuses what would break them
	@$(CARGO) run -q -p compat

fuzz: ## Hand every target hostile bytes for a while each (SECONDS_EACH=30)
	@CARGO="$(CARGO)" SECONDS_EACH=$(or $(SECONDS_EACH),30) tests/fuzz/run.sh

clean: ## Remove all that was built
	$(CARGO) clean
	rm -rf target
