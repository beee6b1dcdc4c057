//! Finds a component's port on the addresses of the node on which it may listen.

use crate::connect::ConnectError;
use crate::definition::Context;
use crate::http_get::{HttpError, HttpGet, HttpReply, MAX_BODY};
use crate::interface::KnownNode;
use crate::url::HttpUrl;
use http::StatusCode;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A URL of a component of this node: the configured one, or a port and a path on the first address that
/// accepts a connection.
#[derive(Clone, Debug)]
pub(crate) enum LocalPort {
    /// The URL in the operator's setting.
    Set(HttpGet),
    /// The component's usual port.
    Usual {
        /// The port of the TCP server.
        port: u16,
        /// The path and query.
        path: &'static str,
    },
}

impl LocalPort {
    /// Returns the URL in the setting, or the usual port and path.
    pub(crate) fn new(context: &Context<'_>, port: u16, path: &'static str) -> Self {
        let set = context.options.get::<HttpUrl>(HttpUrl::OPTION.name());
        set.map_or(Self::Usual { port, path }, |url| Self::Set(HttpGet::new(url)))
    }

    /// Requests the status alone. If no address accepts a connection, the error is that of 127.0.0.1.
    pub(crate) async fn status(&self, node: &KnownNode) -> Result<StatusCode, HttpError> {
        self.get(node, 0).await.map(|reply| reply.status)
    }

    /// Requests status and body, of which it reads the first 64 KiB.
    pub(crate) async fn reply(&self, node: &KnownNode) -> Result<HttpReply, HttpError> {
        self.get(node, MAX_BODY).await
    }

    async fn get(&self, node: &KnownNode, body: usize) -> Result<HttpReply, HttpError> {
        let (port, path) = match self {
            Self::Set(get) => return get.get(body).await,
            Self::Usual { port, path } => (*port, *path),
        };
        let mut refused = None;
        for address in addresses(node) {
            let get = HttpGet::new(HttpUrl::at(SocketAddr::new(address, port), path));
            match get.get_own(address, body).await {
                Err(HttpError::Connect(error)) => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(HttpError::Connect(refused.unwrap_or(ConnectError::Refused)))
    }
}

/// Returns the addresses on which a component of the node may listen, in the order in which they are tried.
fn addresses(node: &KnownNode) -> impl Iterator<Item = IpAddr> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    loopback.into_iter().chain(node.internal_ips.iter().copied())
}
