//! `http:<name>`: something of the operator's own answers 2xx.

use crate::http::{Prober, status_reason};
use crate::probe::{Probe, Run};
use nodegate_readiness::Outcome;

/// Any 2xx will do; `okd_router_1936` is one of these with a name of its own.
pub(crate) struct Http(pub(crate) Prober);

impl Probe for Http {
    fn run(&self) -> Run<'_> {
        Box::pin(async {
            match self.0.status().await {
                Ok(status) if status.is_success() => Outcome::Pass,
                Ok(status) => Outcome::Fail(status_reason(status)),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}
