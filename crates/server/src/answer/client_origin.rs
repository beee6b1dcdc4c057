//! The client of a request, and the port that it came to.

use nodegate_http::Connection;
use std::net::{IpAddr, SocketAddr};

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// The address; `None` for a request that came over no connection.
    pub(crate) address: Option<IpAddr>,
    /// True if the client is on this node, in its own network namespace.
    pub(crate) on_this_node: bool,
}

impl Client {
    /// Returns the client of a connection.
    pub(crate) fn of(connection: &Connection) -> Self {
        let client = connection.client();
        Self { address: Some(client.address), on_this_node: client.on_this_node }
    }
}

/// The port of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// See [`ServeOptions::metrics_moved_to`](crate::ServeOptions::metrics_moved_to).
    pub(crate) metrics_moved_to: Option<SocketAddr>,
}
