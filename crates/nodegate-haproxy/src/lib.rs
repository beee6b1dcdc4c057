//! Configures a HAProxy from a cluster's Nodes and Services.
//!
//! Each module knows only those named before it. [`plan`] turns facts and policy into the desired
//! configuration and its text, without IO or a clock. [`watch`] gets the facts from the API server.
//! [`haproxy`] talks to HAProxy. [`apply`] puts a plan into effect: one file, one check, one reload, one proof.
//! [`status`] writes to the cluster: a Lease, statuses of Services, Events. [`run`] has the arguments, the
//! program's tasks, its pages and metrics.

pub mod apply;
pub mod failure;
pub mod haproxy;
mod lasting;
pub mod plan;
pub mod run;
pub mod status;
pub mod watch;
