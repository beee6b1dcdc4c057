//! The HTTP server of nodegate: answers load balancers from memory, metrics, status.
//!
//! One runtime, made for a current-thread one of its own: [`bind`], then [`serve`] an [`App`] until its shutdown future
//! resolves. An answer to `/health` is picked from the [`Board`](nodegate_readiness::Board); no lock is taken for it,
//! nothing of ours is allocated, and no system call is made but the read and the write.

mod accept;
mod agent;
mod allow_from;
mod app;
mod backoff;
mod connections;
mod door;
mod draft;
#[cfg(fuzzing)]
pub mod fuzzing;
mod limits;
mod listener;
mod metrics;
mod page;
mod route;
mod service;
mod session;
mod stream;

pub use accept::{ServeError, serve};
pub use agent::serve_agent;
pub use allow_from::{AllowFrom, BadAllowFrom};
pub use app::{Activate, App, NoLocalChecks, ServiceHealth, Services, Wiring};
pub use limits::Limits;
pub use listener::{BindError, Listener, bind};
pub use metrics::Metrics;
pub use service::Responding;

// What other crates need to add their own metric families.
pub use prometheus_client;
