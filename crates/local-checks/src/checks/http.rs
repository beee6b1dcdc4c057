//! `http:<name>`: a URL of the operator's choice answers 2xx.

use crate::http_get::{HttpGet, status_reason};
use crate::interface::{Check, KnownNode, Run};
use nodegate_readiness::Outcome;

/// A check that accepts any 2xx. `okd_router_1936` is one of these with a name of its own.
pub(crate) struct Http(pub(crate) HttpGet);

impl Check for Http {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            match self.0.status().await {
                Ok(status) if status.is_success() => Outcome::Pass,
                Ok(status) => Outcome::Fail(status_reason(status)),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}
