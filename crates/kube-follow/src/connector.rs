//! The transport of clients: the network, or a simulation's substitute.

use crate::client::{ClientError, connect};
use crate::credentials::Credentials;
use crate::observe::{BoxedService, ObservingService, WatchObserver};
use kube::Client;
use std::fmt;
use std::sync::Arc;

/// Makes clients.
#[derive(Clone, Default)]
pub enum Connector {
    /// Over sockets, with the credentials and to the API server of this place.
    #[default]
    Network,
    /// Over a service that is asked for anew for each client: in place of the connection, and of whoever signs requests.
    Simulated(Arc<dyn Fn() -> BoxedService + Send + Sync>),
}

impl Connector {
    /// Returns a client, of whose every request and byte `observer` is told.
    pub async fn connect<C: Credentials>(&self, observer: impl WatchObserver) -> Result<Client, ClientError>
    where
        ClientError: From<C::Error>,
    {
        match self {
            Self::Network => connect::<C>(observer).await,
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
