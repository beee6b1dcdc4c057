//! `tcp:<name>`: something of the operator's own takes connections.

use crate::check::{Check, Run};
use crate::connect::Connector;
use nodegate_readiness::{AddressFamilies, Reason};

/// The connection is closed as soon as it stands: no byte is sent, and none is waited for.
pub(crate) struct Tcp(pub(crate) Connector);

impl Check for Tcp {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(async { self.0.connect().await.err().map(Reason::from).into() })
    }
}
