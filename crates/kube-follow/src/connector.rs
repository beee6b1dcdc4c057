//! The transport of clients: the network, or a simulation's substitute.

use crate::client::{ClientError, connect};
use crate::observe::{BoxedService, ObservingService, WatchObserver};
use kube::Client;
use std::fmt;
use std::sync::Arc;

/// A source of clients.
#[derive(Clone, Default)]
pub enum Connector {
    /// Connects over sockets, with the credentials and the API server of this environment.
    #[default]
    Network,
    /// Uses a service that is created for each client. It replaces the connection and the signing of
    /// requests.
    Simulated(Arc<dyn Fn() -> BoxedService + Send + Sync>),
}

impl Connector {
    /// Returns a client. `observer` observes all its requests and bytes.
    pub async fn connect(&self, observer: Arc<dyn WatchObserver>) -> Result<Client, ClientError> {
        match self {
            Self::Network => connect(observer).await,
            Self::Simulated(open) => {
                let observed = ObservingService::new(open(), observer);
                Ok(Client::new(observed, "default"))
            }
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Network => "Network",
            Self::Simulated(_) => "Simulated",
        })
    }
}
