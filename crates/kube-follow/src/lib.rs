//! Kubernetes' client as nodegate uses it, and the cycle of every follower: list, watch, restart.
//!
//! A follower handles every fault the same way: it drops the session, waits with jitter, and relists. A new
//! connection reads the credentials again. The crates above choose the objects, interpret the events, and
//! decide whether to keep a connection whose server still answers.

mod api;
mod backoff;
mod client;
mod connection;
mod credentials;
mod failure_reason;
mod foreign_answer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod get;
mod lines;
mod observe;
mod resolve;
mod resource;
mod session;
mod tls;
mod tls_refusal;
mod watched_node;

pub use api::{Answer, ApiError, KubeApi, Reply, send};
pub use backoff::Backoff;
pub use client::{Connector, expires_in, tagged};
pub use connection::{Connection, Ends};
pub use failure_reason::{FailureReason, detail, find};
pub use get::{GetError, Peer, get};
pub use observe::{BoxedService, NoObserver, RequestOutcome, StreamId, WatchObserver};
pub use resolve::resolve;
pub use session::{Session, SessionEnd};
pub use watched_node::{WatchedNode, node_facts};
