//! `kubelet`: the kubelet of this node is healthy.

use crate::definition::Definition;
use crate::http_get::status_reason;
use crate::interface::{Check, KnownNode, Run};
use crate::local_port::LocalPort;
use crate::timing::Timing;
use crate::url::HttpUrl;
use http::StatusCode;
use nodegate_readiness::Outcome;
use std::sync::Arc;

/// The definition of the check, with the kubelet's default `healthzPort`, without TLS or authentication. Its
/// `healthzBindAddress` is 127.0.0.1 by default; k3s and RKE2 set `::1` on a node whose first address is of
/// IPv6, and others set the node's own address.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kubelet",
    options: &[HttpUrl::OPTION],
    timing: Timing::USUAL,
    new: |context| Arc::new(Kubelet(LocalPort::new(context, 10248, "/healthz"))),
};

struct Kubelet(LocalPort);

impl Check for Kubelet {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move {
            match self.0.status(node).await {
                // The kubelet answers exactly 200; another 2xx comes from another program on its port.
                Ok(StatusCode::OK) => Outcome::Pass,
                Ok(status) => Outcome::Fail(status_reason(status)),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}
