//! The client of a request.

use std::net::IpAddr;

/// The client of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    /// The address; `None` for a request that came over no connection.
    pub(crate) address: Option<IpAddr>,
    /// True if the client is on this node, in its own network namespace.
    pub(crate) on_this_node: bool,
}
