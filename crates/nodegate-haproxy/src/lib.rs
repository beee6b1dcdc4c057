//! Configures a HAProxy from a cluster's Nodes and Services.
//!
//! Each module knows only those named before it. `plan` turns facts and policy into the desired configuration and
//! its text, without IO or a clock. `watch` gets the facts from the API server. `haproxy` talks to HAProxy. `apply`
//! puts a plan into effect: one file, one check, one reload, one proof. `lease` decides which of several processes
//! writes to the cluster. [`run`] has the arguments, the program's tasks, its pages and metrics.

mod apply;
mod failure;
#[cfg(test)]
mod fuzzing;
mod haproxy;
mod lasting;
mod lease;
mod plan;
pub mod run;
mod watch;
