//! The HTTP server of nodegate: answers load balancers from memory, metrics, status.
//!
//! One runtime, made for a current-thread one of its own: [`bind`], then [`serve`] an [`App`] until its shutdown future
//! resolves. An answer to `/health` is picked from the [`Board`](nodegate_readiness::Board); no lock is taken for it,
//! nothing of ours is allocated, and no system call is made but the read and the write.

mod answer;
#[cfg(fuzzing)]
pub mod fuzzing;
mod metrics;
mod page;
mod route;
mod serve;

pub use answer::agent_check::serve_agent;
pub use answer::app::{Activate, App, NoLocalChecks, ServiceHealth, Services, Wiring};
pub use answer::respond::Responding;
pub use metrics::Metrics;
pub use serve::accept::{ServeError, serve};
pub use serve::allow_from::{AllowFrom, BadAllowFrom};
pub use serve::limits::Limits;
pub use serve::listener::{BindError, Listener, bind};

// What other crates need to add their own metric families.
pub use prometheus_client;
