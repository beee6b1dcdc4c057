//! The HTTP server of nodegate: answers load balancers from memory, serves metrics and the status.
//!
//! It runs on one current-thread runtime, and starts threads that accept connections and answer known
//! requests: [`bind`], then [`serve`] an [`App`] until its shutdown future resolves. An answer to `/health`
//! comes from the [`Board`](nodegate_readiness::Board). If it is rendered, it waits for nothing, allocates
//! nothing, and on a kept connection needs only two system calls besides the wait: the read and the write.
//!
//! The five modules and their dependencies:
//!
//! - `serve`, a connection from accept to close, uses the [`App`] of `answer`.
//! - `answer`, from a route to the response, uses `page`, `metrics` and `probers`.
//! - `metrics` uses `probers`.
//! - `metrics` and `probers` use `route`, the label of their counts.

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
pub use probers::{CountTraffic, ProberArgs, ProberSettings};
pub use serve::{BindError, Limits, Listener, ServeError, ServeOptions, bind, serve, serve_agent_check};

// Other crates need it to register their own metric families.
pub use prometheus_client;
