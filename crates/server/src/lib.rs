//! The HTTP server of nodegate: answers load balancers from memory, serves metrics and the status.
//!
//! It runs on one current-thread runtime: [`bind`], then [`serve`] an [`App`] until its shutdown future
//! resolves. An answer to `/health` comes from the [`Board`](nodegate_readiness::Board). If it is rendered, it
//! waits for nothing. Big answers are rendered on a thread of their own.
//!
//! The five modules and their dependencies:
//!
//! - `serve`, the ports, by nodegate-http, uses the [`App`] of `answer`.
//! - `answer`, from a route to the response, uses `page`, `metrics` and `probers`.
//! - `metrics` uses `probers`.
//! - `metrics` and `probers` use `route`, the label of their counts.

mod answer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod metrics;
mod page;
mod probers;
mod route;
mod serve;

pub use answer::{Activate, AnswerBody, App, AppParts, FindPods, NoLocalChecks, PodSettings, ResponseFuture};
pub use metrics::Metrics;
pub use nodegate_http::{BadNetworks, BindError, Limits, Listener, Networks, Sharing, bind};
pub use probers::{CountTraffic, ProberArgs, ProberSettings};
pub use serve::{ServeError, ServeOptions, serve, serve_agent_check};

// Other crates need it to register their own metric families.
pub use nodegate_http::prometheus_client;
