//! Configures a HAProxy from a cluster's Nodes and Services.
//!
//! Each module knows only those named before it. `plan` turns facts and policy into the desired configuration and its
//! text, without IO or a clock. `watch` gets the facts from the API server. `haproxy` puts a plan into effect.
//! `run` has the arguments, the tasks, pages and metrics.

mod failure;
mod haproxy;
mod plan;
mod run;
mod watch;

pub use run::Args;
