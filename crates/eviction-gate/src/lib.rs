//! Holds evictions of pods from a draining node until every load balancer has acknowledged the drain.
//!
//! The gate is a validating webhook for `pods/eviction`. `webhook` answers each `AdmissionReview` over HTTPS, with a
//! certificate from `keeper`. `gate` reads the Pod and the Node from the API server, and asks the node's agent.
//! `decide` is a pure function of these and of the time. `run` has the wiring.

mod admission_review;
mod args;
mod certificate;
mod decide;
mod decision;
mod drains;
mod gate;
mod gate_metrics;
mod keeper;
mod notices;
mod reduced_objects;
mod review_limit;
mod run;
mod shared_reads;
mod times;
mod upkeep;
mod webhook;

pub use args::Args;
pub use certificate::{Issued, issue};
pub use gate_metrics::GateMetrics;
