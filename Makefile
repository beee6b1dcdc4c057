# Two commands do everything: `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help demo test root lint faults lb-test drains haproxy-test plugin-test real-cluster-test simulate mutants soak bench fuzz build image push image-test packages release publish release-test reboots generate

# What hack/install puts there. It is called by its path: with another PATH, cargo would build half of the programs again.
export TOOLS := $(abspath $(or $(CARGO_TARGET_DIR),target))/tools
pinned := $(TOOLS)/bin
built := $$(realpath -m "$${CARGO_TARGET_DIR:-target}")
comma := ,
# A test that prints a table, or takes long: $(play) PACKAGE AND PROGRAM -- NAME
play := cargo test --quiet --locked
table := -- --ignored --nocapture --exact

help: ## What can be made; this file has the variables of each
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ARGS=--haproxy installs HAProxy if it is missing.
demo: ## A simulated cluster with agents, pods and traffic (ARGS=--tour: a script)
	@if [[ " $(ARGS) " == *" --haproxy "* ]]; then hack/install haproxy; fi
	@cargo build -p nodegate -p nodegate-kubectl --bin nodegate --bin kubectl-nodegate --example demo
	@exec "$${CARGO_TARGET_DIR:-target}/debug/examples/demo" $(ARGS)

# ARGS are those of nextest.
test: root ## All tests; installs what is missing (ARGS="-E 'binary(=agent)'": some)
	@hack/install cc cargo-nextest >/dev/null
# What waits for the network, beside what computes.
	@hack/install tools envoy caddy traefik nfpm debian-13 >/dev/null & status=0; \
	  "$(pinned)/cargo-nextest" nextest run --workspace --locked --no-run || status=$$?; \
	  wait $$! && exit $$status
	cargo test --workspace --doc --locked --quiet
	hack/in-own-network "$(pinned)/cargo-nextest" nextest run --workspace --locked --offline $(ARGS)
	@grep -oh 'not played: [^<]*' target/nextest/default/junit.xml | sort -u || true

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "make: run it as root: the tests make network namespaces, mounts and loop devices of their own" >&2; exit 1; }

lint: ## Format, clippy, spelling, licences, workflows, documents of the code
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --quiet --locked --test documents -- circles::
# The fuzz targets, without the fuzzer, which takes a C++ compiler; in the same place, for what they depend on is there.
	cargo clippy --manifest-path fuzz/Cargo.toml --no-default-features --locked --target-dir "$${CARGO_TARGET_DIR:-target}" -- -D warnings
# What they reach is in no other build.
	! cargo tree --workspace --locked --prefix none --format '{lib}: {f}' | grep -w fuzzing
	hack/install typos zizmor cargo-deny
	"$(pinned)/typos"
	"$(pinned)/zizmor" --offline --quiet .github
# Advisories need a network of their own: the workflow asks for them.
	"$(pinned)/cargo-deny" --log-level error --workspace check bans licenses sources
# A doc comment of an argument is its help text, in which <key> is a placeholder.
	RUSTDOCFLAGS="-D warnings -A rustdoc::invalid_html_tags" cargo doc --quiet --workspace --no-deps --locked

# STRANGERS="kept, 130," plays that attack alone, STRANGERS_PORT=Probes|AgentCheck|Metrics|Haproxy|Gate those of one port.
faults: ## Faults that the agent survives, and a table of the attacks of strangers (an hour)
	@hack/install tools
	@[[ -n "$(STRANGERS)" ]] || $(play) --test cluster -- faults:: --nocapture --test-threads=4 | sed -u 's/^\.*//'
	@cargo build --quiet --locked --profile quick -p nodegate -p nodegate-haproxy -p nodegate-eviction-gate
	@STRANGERS="$(STRANGERS)" STRANGERS_PORT="$(STRANGERS_PORT)" STRANGERS_SECONDS="$(STRANGERS_SECONDS)" NODEGATE_PROGRAMS="$(built)/quick" \
	  $(play) --test cluster $(table) strangers::table

# WRITE=1 writes docs/load-balancers.md.
lb-test: ## Table: every load balancer, every event (half an hour; LB=Envoy: one)
	@hack/install tools envoy caddy traefik haproxy-2.6 haproxy-3.0 haproxy-3.2 haproxy-newest >/dev/null
	@cargo build --quiet --locked --bin nodegate
	@LB="$(LB)" LB_WRITE="$(WRITE)" $(play) --test balancers $(table) configurations::table

# The second table has what the gate costs an eviction that it does not hold.
drains: ## Tables: a hundred drains under traffic, also with the gate (DRAINS=5)
	@hack/install tools
	@cargo build --quiet --locked -p nodegate -p nodegate-eviction-gate --bin nodegate --bin nodegate-eviction-gate
	@DRAINS="$(DRAINS)" $(play) --test balancers $(table) drains::table
	@$(play) -p nodegate-eviction-gate --test gate -- --ignored --nocapture --test-threads=1

# Three minutes for each version: 2.6, 3.0, 3.2, newest.
haproxy-test: ## Every promise of nodegate-haproxy, with figures (HAPROXY="2.6 newest": with these)
	@hack/install tools
# Its figures are those of an optimised program.
	@cargo build --quiet --locked --profile quick -p nodegate-haproxy --bin nodegate-haproxy
	@failed=""; for version in $(or $(HAPROXY),system); do \
	  first=""; [[ $$version == system ]] || first="$$(hack/install haproxy-$$version):"; \
	  PATH="$$first$$PATH" NODEGATE_PROGRAMS="$(built)/quick" HAPROXY_ROUNDS=many \
	    $(play) -p nodegate-haproxy --test haproxy -- --nocapture --test-threads=1 \
      --skip packages:: --skip ansible:: || failed+=" $$version"; \
	done; [[ -z $$failed ]] || { echo "make haproxy-test: failed with$$failed" >&2; exit 1; }

plugin-test: ## kubectl nodegate with kubectl 1.28 to 1.37 (KUBECTLS="1.33": with one)
	@paths=""; for release in $(or $(KUBECTLS),1.28 1.29 1.30 1.31 1.32 1.33 1.34 1.35 1.36 1.37); do \
	  paths="$$paths:$$(hack/install kubectl-$$release)"; \
	done; KUBECTLS="$$paths" $(play) -p nodegate-kubectl --test scenarios -- \
	  --nocapture --test-threads=1 plugin::

# TESTS="isolated kubelet" plays some.
real-cluster-test: ## What only real Kubernetes shows: KUBEBIN=<its programs> (an hour)
	@$(MAKE) --no-print-directory root
	@KUBEBIN="$${KUBEBIN:?make real-cluster-test KUBEBIN=<directory of kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy>}" \
	  hack/real-cluster-test $(TESTS)

# An oracle judges them. SIM_SEED=7 shows one seed.
simulate: ## 100,000 episodes of faults under simulated time (SIM_EPISODES=1000)
	@cargo build --quiet --locked --profile simulation -p nodegate-simulation --bin simulate
	@exec "$${CARGO_TARGET_DIR:-target}/simulation/simulate"

mutants: ## Each rule changed, and what no test catches (hours; ARGS="--re <file>")
	@hack/install cargo-mutants
# The gate's own tests start a whole program for each rule; those beside the code are enough. A failed property needs no smaller example.
	@target="$(built)"; mkdir -p "$$target"/mutants/{core,gate}; failed=0; export PROPTEST_MAX_SHRINK_ITERS=0; \
	"$(pinned)/cargo-mutants" mutants -o "$$target/mutants/core" -p nodegate-node-watch -p nodegate-readiness $(ARGS) -- --lib --tests || failed=$$?; \
	"$(pinned)/cargo-mutants" mutants -o "$$target/mutants/gate" -p nodegate-eviction-gate $(ARGS) -- --lib || failed=$$?; \
	exit $$failed

# SCALE=5000 measures instead what a cluster of so many nodes costs an agent.
soak: ## An hour of probes, events and outages: what fails, and what grows (SOAK=5m)
	@cargo build --quiet --release --locked --bin nodegate
	@SOAK="$(SOAK)" SCALE="$(SCALE)" SCALE_SECONDS="$(SCALE_SECONDS)" NODEGATE_PROGRAMS="$(built)/release" \
	  $(play) --test endurance $(table) $(if $(SCALE),scale::scale,soak::soak)

bench: ## nodegate beside nginx (5 minutes; ARGS=--quick: one)
	@hack/install nginx taskset
	@cargo build --release --locked --bin nodegate
	@cargo build --profile bench --locked -p nodegate-benches --bin side-by-side
	@release="$(built)/release"; exec "$$release/side-by-side" --nodegate "$$release/nodegate" $(ARGS)

# With the nightly compiler and cargo-fuzz. What grows from the seeds stays in fuzz/corpus, and what breaks something in fuzz/artifacts.
# Longer inputs would not fit into a socket's buffer, and find nothing that shorter ones don't.
fuzz: ## Each fuzz target for FUZZ_SECONDS (60; TARGETS="http cri": some)
	@failed=""; for target in $(or $(TARGETS),$$(cargo fuzz list)); do \
	  dictionary="fuzz/dictionaries/$$target.dict"; mkdir -p "fuzz/corpus/$$target"; \
	  cargo +nightly fuzz run "$$target" "fuzz/corpus/$$target" "fuzz/seeds/$$target" -- -max_total_time=$(or $(FUZZ_SECONDS),60) \
	    -timeout=60 -rss_limit_mb=2048 -max_len=8192 $$([[ ! -e $$dictionary ]] || echo "-dict=$$dictionary") || failed+=" $$target"; \
	done; [[ -z $$failed ]] || { echo "make fuzz: failed with$$failed" >&2; exit 1; }

# PLATFORM=windows-amd64 builds the plugin for Windows.
build: ## target/release/nodegate, optimised (PROGRAM=kubectl-nodegate: the plugin)
ifeq ($(PLATFORM),windows-amd64)
	@hack/install readelf x86_64-w64-mingw32-gcc
	rustup target add x86_64-pc-windows-gnu
	hack/build-binary windows-amd64 $(or $(PROGRAM),nodegate)
else
	. hack/architectures.sh; cargo build --release --locked --package "$$(package_of $(or $(PROGRAM),nodegate))" --bin $(or $(PROGRAM),nodegate)
endif

# A static binary and nothing else. ARCH="amd64 arm64" makes an index of both.
image: ## Container images (IMAGES="nodegate nodegate-eviction-gate nodegate-haproxy")
	for program in $(or $(IMAGES),nodegate); do PROGRAM=$$program hack/build-image $$program:dev $(ARCH); done

# Writes target/install.yaml, which deploys it by its digest.
push: ## The image pushed: make push IMAGE=registry.example.com/nodegate:0.2.0
	@hack/build-image --push "$(IMAGE)" $(ARCH)

image-test: ## The image, started as a node would, and asked
	@hack/install buildah readelf setpriv curl
	@hack/build-image nodegate:test
	@hack/try-image nodegate:test

# Those of nodegate-haproxy and of kubectl's plugin.
packages: ## The .deb and .rpm in target/packages (ARCH="amd64 arm64")
	@hack/install readelf aarch64-linux-gnu-gcc
	@rm -rf "$${CARGO_TARGET_DIR:-target}/packages"
	@hack/packages $(ARCH)

# IMAGE=registry.example.com/nodegate, DARWIN=<directory with the plugin for macOS>.
release: ## All files of a release, in target/release-VERSION: make release VERSION=0.2.0
	@hack/install buildah readelf skopeo helm aarch64-linux-gnu-gcc x86_64-w64-mingw32-gcc cargo-auditable cargo-cyclonedx mdbook
	rustup target add aarch64-unknown-linux-gnu x86_64-pc-windows-gnu
	@DARWIN="$(DARWIN)" hack/release "$(VERSION)" $(IMAGE)

# SIGN=keyless also signs them, by the identity of the workflow that runs this.
publish: ## Images and chart of a release pushed: make publish VERSION=… IMAGE=…
	@SIGN="$(SIGN)" hack/publish "$(VERSION)" "$(IMAGE)"

release-test: root ## The image for arm64 under qemu; the packages on Debian 12 and 13
	@hack/install buildah readelf setpriv curl aarch64-linux-gnu-gcc qemu-aarch64-static
	@hack/try-arm64
	@hack/install tools lintian
	@. hack/architectures.sh; here=$$(architecture_here); target="$(built)"; \
	  rm -rf "$$target/packages"; \
	  PROFILE=quick hack/packages "$$here"; \
	  lintian --allow-root --fail-on error,warning "$$target"/packages/*.deb; \
	  for release in 12 13; do \
	    hack/install debian-$$release >/dev/null; \
	    NODEGATE_DEBIAN=$$release NODEGATE_PROGRAMS="$$target/$$(triple "$$here")/quick" \
	      $(play) -p nodegate-haproxy --test haproxy -- --include-ignored --nocapture packages:: ansible::; \
	  done
	@$(MAKE) --no-print-directory reboots BUS=dbus CASES="without systemctl cancel package"

# DEBIAN="13", BUS="dbus-broker" and CASES="systemctl:20" play some.
reboots: root ## Reboots of a Debian under traffic, and what they lose (an hour)
	@hack/install tools
	@cargo build --quiet --locked -p nodegate -p nodegate-shutdown --bin nodegate --bin nodegate-shutdown
	@$(MAKE) --no-print-directory generate WHAT=man >/dev/null
	@. hack/architectures.sh; built="$(built)"; programs="$$built/reboots"; rm -rf "$$programs"; mkdir -p "$$programs"; \
	  cp -r "$$built/packaging/man" "$$built/packaging/completions" "$$built/debug/nodegate-shutdown" "$$programs"; \
	  for version in 0.0.1 0.0.2; do PROGRAMS="$$programs" VERSION=$$version hack/packages "$$(architecture_here)"; done; \
	  mv "$$built"/packages/nodegate-shutdown[-_]0.0.[12]-1[._]* "$$programs"
	@status=0; for release in $(or $(DEBIAN),12 13); do for bus in $(or $(BUS),dbus dbus$(comma)polkitd dbus-broker); do \
	  echo "Debian $$release, $$bus"; REBOOTS="$(CASES)" REBOOTS_PACKAGES="$(built)/reboots" \
	    REBOOTS_ROOT="$$(hack/install "debian-$$release,$$bus")" $(play) -p nodegate-shutdown --test shutdown $(table) reboots::table || status=1; \
	done; done; exit $$status

generate: ## Manifests, table of values, man pages, site (WHAT="manifests chart man site")
	@for what in $(or $(WHAT),manifests chart man site); do case $$what in \
	  manifests) hack/install helm; hack/render-manifests ;; \
	  chart) $(play) --test documents $(table) chart::readme::write ;; \
	  man) $(play) --test documents $(table) man::write ;; \
	  site) hack/install mdbook; hack/site.py ;; \
	  *) echo "make generate: $$what is none of: manifests chart man site" >&2; exit 2 ;; \
	esac; done
