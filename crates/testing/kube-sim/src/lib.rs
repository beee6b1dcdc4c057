//! A simulated Kubernetes API with switchable faults, for tests and for the demo.
//!
//! kubectl and client libraries cannot tell it from a real API server in the parts that they use. Tests
//! switch faults on and off at run time. It is never part of the image.
//!
//! The simulator also works without sockets ([`Builder::without_sockets`]): then it is a [`tower::Service`]
//! and runs under paused time.
#![allow(
    clippy::indexing_slicing,
    reason = "fields of JSON objects, which are all that is indexed, are added if missing"
)]
#![allow(missing_docs, reason = "a library of tests: what a name says is not said twice")]

mod api;
mod api_parts;
mod builder;
mod cluster;
mod counters;
mod faults;
mod net;
mod nodes;
mod observed;
mod server;
mod sim;
mod store;
mod wire;
mod writes;

pub use api::auth::{ADMIN_TOKEN, Rule};
pub use builder::Builder;
pub use cluster::node::make as make_node;
pub use counters::{Counters, Reading, RequestKind};
pub use faults::requests::{Effect, Fault, FaultId, FaultScope, Faults};
pub use net::Net;
pub use net::tls::SetupError;
pub use observed::Observed;
pub use server::ApiServer;
pub use sim::Sim;
pub use store::Backup;
pub use store::object::now_micro;
pub use store::status::ApiStatus;
pub use wire::reply::{Body as ResponseBody, GoAway, StreamCut};
