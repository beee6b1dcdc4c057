//! Keeps HAProxy's configuration and server states in step with a cluster's Nodes and Services.
//!
//! Rooms, each of which knows only those before it. [`plan`]: facts and policy become the desired configuration and its
//! text, without IO or a clock. [`watch`]: facts, from the API server. [`haproxy`]: what is said to HAProxy, and what it
//! says. [`apply`]: what changes the structure goes through the file and a reload (or dynamic servers), what changes a
//! state goes to HAProxy at once. [`run`]: arguments, the program's tasks, its pages and metrics.

pub mod apply;
pub mod haproxy;
pub mod plan;
pub mod run;
pub mod watch;
