//! Finds a component's port on the addresses of the node on which it may listen.

use crate::definition::Context;
use crate::http_get::{HttpError, HttpGet, HttpReply, MAX_BODY};
use crate::interface::KnownNode;
use crate::url::HttpUrl;
use http::StatusCode;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A URL of a component of this node: the configured one, or a port and a path on the first address that
/// accepts a connection.
#[derive(Clone, Debug)]
pub(crate) struct LocalPort {
    set: Option<HttpGet>,
    port: u16,
    path: &'static str,
}

impl LocalPort {
    /// Returns the URL in the setting, or the usual port and path.
    pub(crate) fn new(context: &Context<'_>, port: u16, path: &'static str) -> Self {
        Self { set: context.options.get(HttpUrl::OPTION).map(HttpGet::new), port, path }
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
        if let Some(get) = &self.set {
            return get.get(body).await;
        }
        let mut refused = None;
        for address in addresses(node) {
            let get = HttpGet::new(HttpUrl::at(SocketAddr::new(address, self.port), self.path));
            match get.get_own(address, body).await {
                Err(HttpError::Connect(error)) => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(HttpError::Connect(
            refused.unwrap_or_else(|| io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        ))
    }
}

fn addresses(node: &KnownNode) -> impl Iterator<Item = IpAddr> {
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    loopback.into_iter().chain(node.internal_ips.iter().copied())
}
