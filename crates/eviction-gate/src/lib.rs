//! Holds evictions of pods from a draining node until every load balancer has acknowledged the drain.
//!
//! The gate is a validating webhook for `pods/eviction`. `decision` is a pure function of the Pod, the Node, the
//! agent's reply and the time. `facts` reads these from the API server and from the agent. `review` turns an
//! `AdmissionReview` into an answer; `webhook` answers over HTTPS, with a certificate from `certificates`.
//! `run` has the arguments and the wiring.

mod certificates;
mod decision;
mod facts;
mod gate_metrics;
mod review;
mod run;
mod times;
mod webhook;

pub use certificates::{Issued, issue};
pub use gate_metrics::GateMetrics;
pub use run::Args;
