//! Tests of the readiness and freshness rules that run on any cluster. They need only the agent's RBAC rules,
//! and `kubectl` for the operator's changes.
//!
//! `cargo test --test cluster e2e` runs them against simulated clusters, one for each test. `make real-cluster-test NODE=…
//! KUBECONFIG=… NODE=…` runs the same tests against a real one: it cordons, taints and labels that node and
//! restores it after each test. A proxy between the agent and the API server simulates network faults, so the
//! tests need no privileges for them.
//!
//! | variable | meaning |
//! |---|---|
//! | `NODEGATE_E2E_NODE` | the node to work on; set by `make real-cluster-test NODE=…`. Without it no real cluster is touched |
//! | `KUBECONFIG` | the caller's credentials: may cordon, taint and label the node |
//! | `AGENT_KUBECONFIG` | the agent's credentials; else a token of ServiceAccount nodegate/nodegate if the caller gets one, else the caller's |

mod drains;
mod freshness;
mod kubeconfig;
mod kubectl;
mod lab;
mod probes;
mod real;
mod undo;
