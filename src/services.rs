//! What the board knows of watched Services, as kube-proxy's healthCheckNodePort would tell it.

use nodegate_readiness::{Board, Moment, Verdict};
use nodegate_server::{ServiceHealth, Services};
use std::sync::Arc;

/// The local check that says whether kube-proxy works.
pub(crate) const KUBE_PROXY: &str = "kube_proxy";

/// Lets the server read them.
pub(crate) struct WatchedServices(pub(crate) Arc<Board>);

impl Services for WatchedServices {
    fn health(&self, namespace: &str, name: &str, now: Moment) -> Option<ServiceHealth> {
        let local_endpoints = self.0.local_endpoints(namespace, name, now)?;
        Some(ServiceHealth { local_endpoints, proxy_healthy: self.proxy_healthy(now) })
    }
}

impl WatchedServices {
    /// A kube-proxy that does not run, or of which nothing is known, is replaced by something that we can't ask. One
    /// that says its node is not eligible is healthy: upstream keeps the two apart.
    fn proxy_healthy(&self, now: Moment) -> bool {
        let Some(id) = self.0.catalog().find(KUBE_PROXY) else { return true };
        let known = self.0.published().state.local_result(self.0.catalog(), id).is_some();
        !known || self.0.report(id, now).outcome.verdict() != Verdict::NotReady
    }
}
