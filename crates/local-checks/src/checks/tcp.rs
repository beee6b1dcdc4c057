//! `tcp:<name>`: an address of the operator's choice accepts connections.

use crate::connect::HostConnector;
use crate::interface::{Check, KnownNode, Run};
use nodegate_readiness::Reason;

/// A check that opens a connection and closes it at once: it neither sends nor awaits a byte.
pub(crate) struct Tcp(pub(crate) HostConnector);

impl Check for Tcp {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.0.connect().await.err().map(Reason::from).into() })
    }
}
