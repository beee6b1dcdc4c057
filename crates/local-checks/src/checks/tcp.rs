//! `tcp:<name>`: an address of the operator's choice accepts connections.

use crate::connect::HostPort;
use crate::interface::{Check, KnownNode, Run};

/// A check that opens a connection and closes it at once: it neither sends nor awaits a byte.
pub(crate) struct Tcp(pub(crate) HostPort);

impl Check for Tcp {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async { self.0.connect().await.err().map(|error| error.reason).into() })
    }
}
