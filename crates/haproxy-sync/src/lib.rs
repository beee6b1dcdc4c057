//! Keeps HAProxy's configuration and server states in step with a cluster's Nodes and Services.
//!
//! Three floors. At the bottom [`plan::plan`] turns [`facts::Facts`] and a [`policy::Policy`] into a [`desired::Desired`]
//! configuration, and [`render::render`] turns that into text: no IO, no clock. Above them the adapters: watches, files,
//! HAProxy's sockets. On top [`sync::run`] wires them: what changes the structure goes through the file and a reload (or
//! dynamic servers), what changes a state goes to HAProxy at once.

pub mod annotation;
pub mod applier;
pub mod config_file;
pub mod desired;
pub mod dynamic;
pub mod facts;
pub mod guard;
pub mod health;
pub mod http;
pub mod layout;
mod life;
mod listeners;
pub mod master;
pub mod metrics;
pub mod mover;
pub mod names;
mod objects;
pub mod observed;
pub mod once;
mod pace;
pub mod plan;
pub mod policy;
pub mod ports;
pub mod render;
mod report;
mod settle;
mod shift;
pub mod socket;
pub mod state_file;
pub mod sync;
pub mod validate;
pub mod watch;

pub use life::Life;
