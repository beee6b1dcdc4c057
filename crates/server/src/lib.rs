//! The HTTP server of nodegate: answers load balancers from memory, metrics, status.
//!
//! One runtime, made for a current-thread one of its own: [`bind`], then [`serve`] an [`App`] until its shutdown future
//! resolves. An answer to `/health` is picked from the [`Board`](nodegate_readiness::Board); nobody is waited for,
//! nothing of ours is allocated, and no system call is made but the read and the write.
//!
//! Five rooms, and what each of them knows: `serve`, a connection from accept to close, knows `answer` by its [`App`];
//! `answer`, from a route to the response, knows `page`, `metrics`, in which both count, and `probers`, who asks; `metrics`
//! knows `probers`, and both know the `route`, by which they count.

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
