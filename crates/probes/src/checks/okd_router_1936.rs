//! `okd_router_1936`: the `OpenShift` router on this node takes traffic.

use crate::http::Prober;
use crate::probe::{Probe, Run};
use crate::registry::Constructor;
use crate::url::HttpUrl;
use nodegate_readiness::Outcome;
use std::sync::Arc;

/// The router's `STATS_PORT`, on the host because the router runs with host networking behind an external balancer.
pub(crate) const CONSTRUCTOR: Constructor = Constructor {
    options: &[HttpUrl::OPTION],
    new: |context| Arc::new(OkdRouter(Prober::new(context.url(|| HttpUrl::local(1936, "/healthz/ready"))))),
};

struct OkdRouter(Prober);

impl Probe for OkdRouter {
    fn run(&self) -> Run<'_> {
        Box::pin(async {
            match self.0.status().await {
                Ok(status) if status.is_success() => Outcome::Pass,
                Ok(status) => Outcome::Fail(format!("HTTP {}", status.as_u16())),
                Err(error) => error.into(),
            }
        })
    }
}
