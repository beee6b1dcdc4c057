//! What only a real control plane and a real kubelet can show. `make real-cluster-test KUBEBIN=…` starts both and runs these
//! tests inside of their namespaces; `cargo test` compiles them and runs none.
//!
//! | test | what is real about it |
//! |---|---|
//! | `isolated` | an API server cut off from etcd |
//! | `kubelet` | the kubelet and the node controller: cut off, frozen, without a runtime |
//! | `zone` | what the node controller does to four nodes of which some fall silent |
//! | `daemonset` | the image in pods: the manifests, the chart, rollouts by the DaemonSet controller |
//! | `rights` | RBAC and the audit log |
//! | `simulated` | what a simulated API server is compared with |
//! | `plugin` | evictions, and the API server's proxy to a pod |
//!
//! The e2e rules (`tests/cluster/e2e`) and the judged run of events and outages (`tests/endurance/soak/real.rs`) run there, too.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may end where a story breaks off"
)]

mod daemonset;
mod isolated;
mod kubelet;
mod plugin;
mod rights;
mod simulated;
mod zone;
