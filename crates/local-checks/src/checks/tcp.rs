//! `tcp:<name>`: an address of the operator's choice accepts connections.

use crate::check::{Check, Run};
use crate::connect::HostConnector;
use nodegate_readiness::{AddressFamilies, Reason};

/// A check that opens a connection and closes it at once: it neither sends nor awaits a byte.
pub(crate) struct Tcp(pub(crate) HostConnector);

impl Check for Tcp {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(async { self.0.connect().await.err().map(Reason::from).into() })
    }
}
