//! `tcp:<name>`: an address of the operator's choice accepts connections.

use crate::check::{Check, Run};
use crate::connect::HostConnector;
use nodegate_readiness::{AddressFamilies, Reason};

/// The connection is closed as soon as it stands: no byte is sent, and none is waited for.
pub(crate) struct Tcp(pub(crate) HostConnector);

impl Check for Tcp {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(async { self.0.connect().await.err().map(Reason::from).into() })
    }
}
