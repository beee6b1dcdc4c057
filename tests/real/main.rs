//! Tests that need a real control plane and a real kubelet. `make real-cluster-test KUBEBIN=…` starts both
//! and runs these tests in their namespaces; `cargo test` compiles them and runs none.

// docs/versions.md says what most of them show.

mod apiserver;
mod budget;
mod daemonset;
mod distributions;
mod gate;
mod getting_started;
mod hooks;
mod isolated;
mod kubelet;
mod objects;
mod plugin;
mod rights;
mod rollout;
mod scenario;
mod zone;

// The blocks of a page.
#[path = "../documents/docs/pages.rs"]
#[expect(dead_code, reason = "the documents' tests read all pages")]
mod pages;
