# Two commands do everything: `make demo` and `make test`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help demo test root lint fast unit faults checks-test rtnl-test lb-test drains haproxy-test haproxy-matrix prometheus-test simulate mutants soak scale bench e2e build image push image-test release-tools release publish sign-published release-test reproducible sbom fuzz manifests chart man site tools wheels

help: ## What can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Three nodes with agents, pods and traffic on a simulated Kubernetes API; flips and drains live (ARGS=--tour plays a script, ARGS=--haproxy installs a HAProxy)
	@if [[ " $(ARGS) " == *" --haproxy "* ]]; then hack/install-tools haproxy; fi
	@cargo build -p nodegate -p nodegate-kubectl --bin nodegate --bin kubectl-nodegate --example demo
	@exec "$${CARGO_TARGET_DIR:-target}/debug/examples/demo" $(ARGS)

test: root tools wheels packagers debian unit ## All tests; installs what is missing

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "make test: run it as root: the tests make network namespaces, mounts and loop devices of their own" >&2; exit 1; }

tools: ## Install the programs that the tests need (Debian packages)
	@hack/install-tools

wheels: ## Fetch the load balancers that Debian does not have, by pip; without them their stories are not played
	@hack/install-wheels || true

.PHONY: packagers debian packages packages-test
packagers: ## Install cargo-deb and cargo-generate-rpm into target/tools
	@hack/packages --tools

debian: ## Fetch the Debian on which the tests install packages: target/debian-13
	@hack/install-debian >/dev/null

packages: ## The .deb and .rpm of nodegate-haproxy and of kubectl's plugin: target/packages (ARCH="amd64 arm64")
	@hack/install-tools readelf aarch64-linux-gnu-gcc
	@rm -rf "$${CARGO_TARGET_DIR:-target}/packages"
	@hack/packages $(ARCH)

packages-test: tools packagers debian ## The packages with static programs: lintian, and all of their tests on Debian 12 and 13 (a quarter of an hour)
	@hack/install-tools lintian
	@hack/install-debian 12 >/dev/null
	@set -e; . hack/architectures; here=$$(architecture_here); target="$$(realpath "$${CARGO_TARGET_DIR:-target}")"; \
	  rm -rf "$$target/packages"; \
	  PROFILE=quick hack/packages "$$here"; \
	  lintian --allow-root --fail-on error,warning "$$target"/packages/*.deb; \
	  for release in 12 13; do \
	    NODEGATE_DEBIAN=$$release NODEGATE_HAPROXY="$$target/$$(triple "$$here")/quick/nodegate-haproxy" \
	      cargo test --quiet --locked -p nodegate-haproxy --test haproxy -- --include-ignored --nocapture packages:: ansible::; \
	  done

lint: ## Format, clippy, spelling, licences, workflows, the documents of the code
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
# The fuzz targets, without the fuzzer, which takes a C++ compiler; in the same place, for what they depend on is there.
	cargo clippy --manifest-path fuzz/Cargo.toml --no-default-features --locked --target-dir "$${CARGO_TARGET_DIR:-target}" -- -D warnings
# What they reach is in no other build.
	! cargo tree --workspace --locked --prefix none --format '{lib}: {f}' | grep -w fuzzing
	hack/install-wheels typos zizmor
	"$${CARGO_TARGET_DIR:-target}/balancers/typos"
	"$${CARGO_TARGET_DIR:-target}/balancers/zizmor" --offline --quiet .github
# Advisories need a network of their own: the workflow asks for them.
	@tools="$${CARGO_TARGET_DIR:-target}/tools"; [ -x "$$tools/bin/cargo-deny" ] || \
	  cargo install --quiet --locked --debug --root "$$tools" cargo-deny@0.20.2
	PATH="$$(realpath "$${CARGO_TARGET_DIR:-target}")/tools/bin:$$PATH" cargo deny --log-level error --workspace check bans licenses sources
# A doc comment of an argument is its help text, in which <key> is a placeholder.
	RUSTDOCFLAGS="-D warnings -A rustdoc::invalid_html_tags" cargo doc --quiet --workspace --no-deps --locked

fast: ## What takes minutes: format, clippy, spelling, and the tests that stand beside the code
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	hack/install-wheels typos
	"$${CARGO_TARGET_DIR:-target}/balancers/typos"
	cargo test --workspace --lib --bins --locked

# AGAIN=1, as CI sets it: a test program that fails is run once more, alone, and named.
unit:
	cargo test --workspace --locked --no-run
	hack/in-own-network $(if $(AGAIN),hack/test-twice,cargo test) --workspace --locked --offline

faults: tools ## Every fault that the agent survives, as a table: what a load balancer saw, and how long it took; then each attack of strangers (forty minutes; STRANGERS="HEADs": one attack)
	@cargo build --quiet --locked -p nodegate-kube-sim --bin kube-sim
	@[[ -n "$(STRANGERS)" ]] || cargo test --quiet --locked --test cluster -- --ignored --exact faults::table --nocapture
	@cargo build --quiet --locked --profile quick -p nodegate -p nodegate-eviction-gate -p nodegate-haproxy --bin nodegate --bin nodegate-eviction-gate --bin nodegate-haproxy
	@built="$$(realpath "$${CARGO_TARGET_DIR:-target}")/quick"; STRANGERS="$(STRANGERS)" STRANGERS_SECONDS="$(STRANGERS_SECONDS)" \
	  STRANGERS_AGENT="$$built/nodegate" STRANGERS_GATE="$$built/nodegate-eviction-gate" STRANGERS_HAPROXY="$$built/nodegate-haproxy" \
	  cargo test --quiet --locked --test cluster -- --ignored --exact strangers::table --nocapture

checks-test: tools ## Each check beside what it looks at, in every state of it, as a table (five minutes; CHECKS=kubelet: one; WRITE=1 writes docs/checks.md)
# Without them the others are played, and it ends with an error unless CHECKS names one of those.
	@hack/build-kubernetes-node || true
	@cargo build --quiet --locked --bin nodegate
	@CHECKS="$(CHECKS)" CHECKS_WRITE="$(WRITE)" \
	  cargo test --quiet --locked --test agent -- --ignored --exact check_states::table --nocapture

rtnl-test: tools ## The kernel's lock on all interfaces held for a minute: one thread of the agent waits, all else goes on
	@cargo test --quiet --locked --test agent -- --ignored --exact rtnl::for_a_minute --nocapture

lb-test: tools wheels ## Every balancer that can be had, every event, as a table (half an hour; LB=Envoy: one; WRITE=1 writes docs/load-balancers.md)
	@for version in 2.6 3.0 3.2 newest; do hack/install-haproxy "$$version" >/dev/null; done
	@cargo build --quiet --locked --bin nodegate
	@LB="$(LB)" LB_WRITE="$(WRITE)" cargo test --quiet --locked --test balancers -- --ignored --exact stories::table --nocapture

drains: tools ## A hundred drains under traffic behind one HAProxy, and behind two with keepalived; then each drainer behind the eviction gate, as tables (forty minutes; DRAINS=5)
	@cargo build --quiet --locked -p nodegate -p nodegate-eviction-gate --bin nodegate --bin nodegate-eviction-gate
	@DRAINS="$(DRAINS)" cargo test --quiet --locked --test balancers -- --ignored --exact drains::table --nocapture

e2e: ## The readiness and freshness rules against a real cluster: make e2e KUBECONFIG=… NODE=…
	@: "$${KUBECONFIG:?make e2e KUBECONFIG=<file> NODE=<node to cordon and uncordon>}" "$${NODE:?make e2e KUBECONFIG=<file> NODE=<node to cordon and uncordon>}"
	@KUBECONFIG="$$(realpath "$$KUBECONFIG")" NODEGATE_E2E_NODE="$$NODE" \
	  cargo test --quiet --locked --test cluster -- e2e:: --nocapture --test-threads=1 | sed -u 's/^\.*//'

.PHONY: real-cluster-test
real-cluster-test: root ## What only real Kubernetes shows, on a cluster of its own: make real-cluster-test KUBEBIN=<directory> (an hour; TESTS="isolated kubelet")
	@: "$${KUBEBIN:?make real-cluster-test KUBEBIN=<directory of kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy>}"
	@KUBEBIN="$(KUBEBIN)" hack/real-cluster-test $(TESTS)

# A HAProxy of another version than the system's, first in the PATH.
with_haproxy = $(if $(HAPROXY),at="$$(hack/install-haproxy $(HAPROXY))"; PATH="$$at:$$PATH";)

haproxy-test: tools ## nodegate-haproxy against a real HAProxy: every promise as a line of a table (three minutes; HAPROXY=3.2)
# Its figures are those of an optimised program.
	@cargo build --quiet --locked --profile quick -p nodegate-haproxy --bin nodegate-haproxy
	@cargo build --quiet --locked -p nodegate-haproxy --tests
	@$(with_haproxy) NODEGATE_HAPROXY="$$(realpath "$${CARGO_TARGET_DIR:-target}")/quick/nodegate-haproxy" cargo test --quiet --locked -p nodegate-haproxy --test haproxy -- --ignored --nocapture table

haproxy-matrix: ## The same against every HAProxy that Debian's suites have, from 2.6 to the newest (a quarter of an hour)
	@failed=(); for version in 2.6 3.0 3.2 newest; do \
	  $(MAKE) --no-print-directory haproxy-test HAPROXY="$$version" || failed+=("$$version"); \
	done; [ $${#failed[@]} -eq 0 ] || { echo "make haproxy-matrix: failed with $${failed[*]}" >&2; exit 1; }

prometheus-test: tools ## A real Prometheus: each alert when it is due, and each panel for two clusters (half a minute)
	@cargo test --quiet --locked --test documents -- --nocapture prometheus::

simulate: ## 100,000 episodes of faults under simulated time, judged by an oracle (SIM_EPISODES=1000; SIM_SEED=7 shows one seed)
	@cargo build --quiet --locked --profile simulation -p nodegate-simulation --bin simulate
	@exec "$${CARGO_TARGET_DIR:-target}/simulation/simulate"

mutants: ## Each rule of freshness, told, drains and the gate changed, and what no test catches: target/mutants (hours; ARGS="-f crates/readiness/src/drain.rs")
	@tools="$${CARGO_TARGET_DIR:-target}/tools"; [ -x "$$tools/bin/cargo-mutants" ] || \
	  cargo install --quiet --locked --root "$$tools" cargo-mutants@27.1.0
# The gate's own tests start a whole program for each rule; those beside the code are enough.
	@target="$$(realpath "$${CARGO_TARGET_DIR:-target}")"; PATH="$$target/tools/bin:$$PATH"; mkdir -p "$$target"/mutants/{core,gate}; failed=0; \
	cargo mutants -o "$$target/mutants/core" -p nodegate-node-watch -p nodegate-readiness $(ARGS) -- --lib --tests || failed=$$?; \
	cargo mutants -o "$$target/mutants/gate" -p nodegate-eviction-gate $(ARGS) -- --lib || failed=$$?; \
	exit $$failed

soak: ## An hour of 1,000 probes a second, an event a second and an outage a minute, judged by an oracle (SOAK=5m)
	@cargo build --quiet --release --locked --bin nodegate
	@SOAK="$(SOAK)" SOAK_AGENT="$${CARGO_TARGET_DIR:-target}/release/nodegate" \
	  cargo test --quiet --locked --test endurance -- --ignored --exact soak::soak --nocapture

scale: ## An agent in a cluster of 1 and of 5,000 nodes: what it costs (SCALE=5000)
	@cargo build --quiet --release --locked --bin nodegate
	@SCALE="$(SCALE)" SCALE_SECONDS="$(SCALE_SECONDS)" SCALE_AGENT="$${CARGO_TARGET_DIR:-target}/release/nodegate" \
	  cargo test --quiet --locked --test endurance -- --ignored --exact scale::scale --nocapture

bench: ## nodegate beside nginx, HAProxy and Go's net/http: CPU, latency, memory, flips (five minutes; ARGS=--quick: one)
	@hack/install-tools nginx haproxy go taskset
	@cargo build --release --locked --bin nodegate
	@cargo build --profile bench --locked -p nodegate-benches --bin side-by-side
	@built="$${CARGO_TARGET_DIR:-target}/release"; exec "$$built/side-by-side" --nodegate "$$built/nodegate" $(ARGS)

build: ## The optimised binary, target/release/nodegate
	cargo build --release --locked --bin nodegate

.PHONY: plugin plugin-test plugin-windows plugin-windows-test
plugin: ## kubectl's plugin, target/release/kubectl-nodegate: once it is in the PATH, kubectl nodegate
	cargo build --release --locked -p nodegate-kubectl --bin kubectl-nodegate

plugin-test: ## kubectl nodegate with kubectl 1.28 to 1.37, a real drain, and a thousand agents through the API server (five minutes; KUBECTLS="1.33")
	@cargo build --quiet --locked --bin nodegate
	@set -e; paths=""; for release in $(or $(KUBECTLS),1.28 1.29 1.30 1.31 1.32 1.33 1.34 1.35 1.36 1.37); do \
	  paths="$$paths:$$(hack/install-kubectl $$release)"; \
	done; KUBECTLS="$$paths" cargo test --quiet --locked -p nodegate-kubectl --test stories -- \
	  --ignored --nocapture --test-threads=1 plugin:: real_agents:: thousand::

plugin-windows: ## The plugin for Windows, target/x86_64-pc-windows-gnu/release/kubectl-nodegate.exe
	@hack/install-tools readelf x86_64-w64-mingw32-gcc
	rustup target add x86_64-pc-windows-gnu
	hack/build-binary windows-amd64 kubectl-nodegate

plugin-windows-test: ## The plugin for Windows under Wine with two simulated clusters: fleet, drain, dry run (installs Wine; ten minutes the first time)
	@hack/install-tools readelf x86_64-w64-mingw32-gcc /usr/lib/wine/wine64 kubectl
	rustup target add x86_64-pc-windows-gnu
	PROFILE=dev hack/build-binary windows-amd64 kubectl-nodegate
	@WINDOWS_PLUGIN="$$(PROFILE=dev; . hack/architectures; built windows-amd64 kubectl-nodegate)" \
	  cargo test --quiet --locked -p nodegate-kubectl --test stories -- --ignored --nocapture --test-threads=1 windows::

image: ## The container image: a static binary and nothing else (ARCH="amd64 arm64": an index of both)
	hack/build-image nodegate:dev $(ARCH)

.PHONY: gate-image haproxy-image gate-test
gate-image: ## The image of the eviction gate: a static binary and nothing else (ARCH="amd64 arm64": an index of both)
	PROGRAM=nodegate-eviction-gate hack/build-image nodegate-eviction-gate:dev $(ARCH)

haproxy-image: ## The image of nodegate-haproxy, likewise; HAProxy is another container of the Pod
	PROGRAM=nodegate-haproxy hack/build-image nodegate-haproxy:dev $(ARCH)

gate-test: tools ## The eviction gate with a real agent under two balancers and plain kubectl drain; what it costs an eviction that it does not hold (three minutes)
	@cargo build --quiet --locked --bin nodegate
	@cargo test --quiet --locked -p nodegate-eviction-gate --test gate -- --ignored --nocapture --test-threads=1

push: ## The image built and pushed, and target/install.yaml, which deploys it by digest: make push IMAGE=registry.example.com/nodegate:0.2.0
	@hack/push-image "$(IMAGE)" $(ARCH)

image-test: ## The image built, pushed to a registry, started as a node would, and asked; its size (takes a release build)
	@hack/install-tools buildah readelf setpriv curl docker-registry
	@hack/try-registry nodegate:test
	@hack/try-image nodegate:test

release-tools: mdbook ## Install what a release is built with besides Rust: cross compilers, buildah, skopeo, cargo-auditable, mdBook
	@hack/install-tools buildah readelf skopeo helm openssl aarch64-linux-gnu-gcc x86_64-w64-mingw32-gcc
	rustup target add aarch64-unknown-linux-gnu x86_64-pc-windows-gnu
	cargo install --quiet --locked cargo-auditable@0.7.7

release: ## All that a release's page has, in target/release-VERSION: make release VERSION=0.2.0 (IMAGE=registry.example.com/nodegate DARWIN=<directory with the plugin for macOS> RELEASE_KEY=<file>)
	@DARWIN="$(DARWIN)" RELEASE_KEY="$(RELEASE_KEY)" hack/release "$(VERSION)" $(IMAGE)

publish: ## The release's images and chart pushed to a registry: make publish VERSION=0.2.0 IMAGE=registry.example.com/nodegate
	@hack/publish "$(VERSION)" "$(IMAGE)"

sign-published: ## What make publish has pushed, signed by digest: make sign-published VERSION=0.2.0 (RELEASE_KEY=<file>; without it by cosign, keyless)
	@RELEASE_KEY="$(RELEASE_KEY)" hack/sign-published "$(VERSION)"

release-test: ## The image for arm64 and its agent in whole-program tests, under qemu (takes a release build)
	@hack/install-tools buildah readelf setpriv curl aarch64-linux-gnu-gcc qemu-aarch64-static
	@hack/try-arm64

reproducible: ## The binary built twice, in two places, and compared byte for byte (VERSION=0.2.0: all files of the release; AGAINST=<directory>: once, and compared with a release's files)
	@DARWIN="$(DARWIN)" AGAINST="$(AGAINST)" hack/reproduce $(VERSION) $(IMAGE)

sbom: ## What the binary is made of, as CycloneDX JSON: target/nodegate.cdx.json
	@hack/sbom

fuzz: ## Each fuzz target for FUZZ_SECONDS (60), one after the other, as a table (nightly compiler)
	@hack/fuzz

manifests: ## Render the files of manifests/ from the chart
	@hack/install-tools helm
	@hack/render-manifests

chart: ## Write the table of values in charts/nodegate/README.md
	@cargo test --quiet --locked --test documents -- --ignored --exact chart::readme::write --nocapture

man: ## Write man pages and completions from the argument parsers: target/packaging
	@cargo test --quiet --locked --test documents -- --ignored --exact man::write --nocapture

.PHONY: mdbook
mdbook:
	@tools="$${CARGO_TARGET_DIR:-target}/tools"; [ -x "$$tools/bin/mdbook" ] || \
	  cargo install --quiet --locked --debug --no-default-features --features search --root "$$tools" mdbook@0.5.4

site: mdbook ## The documents as a site with search, target/site/index.html; each of its links is looked up
	@hack/site
