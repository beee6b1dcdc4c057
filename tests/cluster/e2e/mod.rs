//! The readiness and freshness rules, shown on any cluster with nothing but what the agent's RBAC allows, and `kubectl`
//! for what an operator does.
//!
//! `cargo test --test cluster e2e` runs them against simulated clusters, one for each test. `make e2e KUBECONFIG=… NODE=…` runs
//! the same tests against a real one: it cordons, taints and labels that node and puts it back after each test. Between
//! the agent and the API server sits a proxy that plays the network's part, so that no privileges are needed for that.
//!
//! `releases` runs the main ones against simulated API servers of older releases, too.
//!
//! | variable | meaning |
//! |---|---|
//! | `NODEGATE_E2E_NODE` | the node to work on; set by `make e2e`. Without it no real cluster is touched |
//! | `KUBECONFIG` | the caller's credentials: may cordon, taint and label the node |
//! | `AGENT_KUBECONFIG` | the agent's credentials; else a token of ServiceAccount nodegate/nodegate if the caller gets one, else the caller's |

mod drains;
mod first_answer;
mod freshness;
mod kubeconfig;
mod kubectl;
mod lab;
mod network;
mod probes;
mod real;
mod releases;
mod status;
mod undo;
