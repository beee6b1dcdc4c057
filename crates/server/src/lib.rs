//! The agent's HTTP server: answers load balancers from memory, serves metrics and the status. [`bind`] a
//! port, then [`serve`] an [`App`] on a current-thread runtime until its shutdown future resolves.

mod answer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod metrics;
mod page;
mod probers;
mod reading;
mod route;
mod serve;

pub use answer::{Activate, AnswerBody, App, AppParts, PodSettings};
pub use metrics::Metrics;
pub use probers::{Balancers, ProberArgs, ProberSettings};
pub use serve::{serve, serve_agent_check};

// Other crates need it to register their own metric families.
pub use nodegate_http::{Limits, Listener, Networks, PortSharing, ServeOptions, bind, prometheus_client};
