//! The HTTP server of nodegate: answers load balancers from memory, metrics, status.
//!
//! It runs on one current-thread runtime: [`bind`], then [`serve`] an [`App`] until its shutdown future
//! resolves. An answer to `/health` is picked from the [`Board`](nodegate_readiness::Board): it waits for
//! nothing, allocates nothing, and makes no system call but the read and the write.
//!
//! Five modules and their dependencies: `serve`, a connection from accept to close, uses the [`App`] of
//! `answer`; `answer`, from a route to the response, uses `page`, `metrics` and `probers`; `metrics` uses
//! `probers`; and `metrics` and `probers` use `route`, the label of their counts.

mod answer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod metrics;
mod networks;
mod page;
mod probers;
mod route;
mod serve;

pub use answer::{Activate, AnswerBody, App, AppParts, NoLocalChecks, ResponseFuture};
pub use metrics::Metrics;
pub use networks::{BadNetworks, Networks};
pub use probers::{CountTraffic, ProberSettings};
pub use serve::{BindError, Limits, Listener, ServeError, ServeOptions, bind, serve, serve_agent_check};

// What other crates need to add their own metric families.
pub use prometheus_client;
