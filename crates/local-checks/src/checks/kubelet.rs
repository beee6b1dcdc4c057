//! `kubelet`: the kubelet of this node is healthy.

use crate::check::{Check, Run};
use crate::definition::Definition;
use crate::http::{HttpGet, status_reason};
use crate::timing::Timing;
use crate::url::HttpUrl;
use http::StatusCode;
use nodegate_readiness::{AddressFamilies, Outcome};
use std::sync::Arc;

/// The definition of the check, with the kubelet's default `healthzBindAddress` and `healthzPort`; without
/// TLS or authentication.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kubelet",
    options: &[HttpUrl::OPTION],
    timing: Timing::USUAL,
    new: |context| Arc::new(Kubelet(HttpGet::new(context.url(|| HttpUrl::local(10248, "/healthz"))))),
};

struct Kubelet(HttpGet);

impl Check for Kubelet {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(async {
            match self.0.status().await {
                // The kubelet answers exactly 200; another 2xx comes from another program on its port.
                Ok(StatusCode::OK) => Outcome::Pass,
                Ok(status) => Outcome::Fail(status_reason(status)),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}
