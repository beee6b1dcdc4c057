//! Kubernetes' client as nodegate uses it, and what every follower of a list does with it: list, watch, begin anew.
//!
//! Every fault is answered in the same way: drop everything, wait with jitter, start over with fresh credentials, a fresh
//! connection and a fresh list. Who follows what, and what it means, is for the crates above.

mod backoff;
mod client;
mod connection;
mod connector;
mod credentials;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod kubeconfig;
mod lines;
mod observe;
mod reason;
mod resolver;
mod resource;
mod session;
mod tls;
mod watched_node;

pub use backoff::Backoff;
pub use client::{ClientError, connect, tagged};
pub use connection::{Connection, Ends, retry_after};
pub use connector::Connector;
pub use credentials::{CredentialError, Credentials, KubectlCredentials, StaticCredentials};
pub use kubeconfig::ReadError;
pub use observe::{Answer, BoxedService, WatchObserver};
pub use reason::{Reason, detail};
pub use session::{Ended, Session};
pub use tls::TlsError;
pub use watched_node::{WatchedNode, node_facts};
