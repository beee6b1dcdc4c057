//! `/services/<namespace>/<name>`: the health of a watched Service on this node, as kube-proxy's
//! healthCheckNodePort shows it.

use super::app::App;
use super::body::AnswerBody;
use super::response_head::{BodyFormat, ResponseHead};
use crate::route::SERVICES_PREFIX;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use nodegate_readiness::check::{KUBE_PROXY, NODE_READY};
use nodegate_readiness::{Moment, Query, Reply, Verdict};
use serde_json::json;

/// The endpoints of a Service behind this node, for load balancers that weigh nodes by it.
static WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

impl App {
    /// Upstream's answer (`pkg/proxy/healthcheck/service_health.go`), byte for byte. With `?drain=<code>` a draining node
    /// answers that, and weighs nothing: kube-proxy knows no cordon. Beside it what it means, if it says something of the
    /// node.
    pub(super) fn service_health(
        &self,
        mut head: ResponseHead,
        path: &str,
        raw: &str,
        now: Moment,
    ) -> (Response<AnswerBody>, Option<Verdict>) {
        let named = path.strip_prefix(SERVICES_PREFIX).and_then(|path| path.split_once('/'));
        let found = named.and_then(|(namespace, name)| {
            let local_endpoints = self.board.local_endpoints(namespace, name, now)?;
            Some((namespace, name, local_endpoints))
        });
        let Some((namespace, name, local_endpoints)) = found else {
            let response =
                head.text(StatusCode::NOT_FOUND, "this Service is not watched; see --watch-service\n");
            return (response, None);
        };
        let drain = match Query::parse(raw, self.board.catalog()) {
            Ok(query) => query.drain.filter(|_| self.is_draining(now)),
            Err(bad) => {
                let body = Reply::error(400, &bad.to_string()).body;
                return (head.finish(StatusCode::BAD_REQUEST, BodyFormat::Json, body), None);
            }
        };
        let proxy_healthy = self.is_proxy_healthy(now);
        let (status, verdict) = match (local_endpoints, drain) {
            (1.., None) if proxy_healthy => (StatusCode::OK, Verdict::Ready),
            (1.., Some(code)) if proxy_healthy => {
                let status = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                (status, Verdict::Draining)
            }
            _ => (StatusCode::SERVICE_UNAVAILABLE, Verdict::NotReady),
        };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {},\n\t\t\"name\": {}\n\t}},\n\t\"localEndpoints\": {local_endpoints},\n\t\
             \"serviceProxyHealthy\": {proxy_healthy}\n}}",
            json!(namespace),
            json!(name),
        );
        let weight = if drain.is_some() { 0 } else { local_endpoints };
        head.header(WEIGHT.clone(), HeaderValue::from(weight));
        head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        (head.finish(status, BodyFormat::Json, Bytes::from(body)), Some(verdict))
    }

    /// Whether the Node is being taken out, whatever the default checks are.
    fn is_draining(&self, now: Moment) -> bool {
        let node_ready = self.board.catalog().find(NODE_READY);
        node_ready.is_some_and(|id| self.board.report(id, now).outcome.verdict() == Verdict::Draining)
    }

    /// A kube-proxy that does not run, or of which nothing is known, is replaced by something that we can't ask. One that
    /// says its node is not eligible is healthy: upstream keeps the two apart.
    fn is_proxy_healthy(&self, now: Moment) -> bool {
        let Some(id) = self.board.catalog().find(KUBE_PROXY) else { return true };
        let known = self.board.published().state.local_result(self.board.catalog(), id).is_some();
        !known || self.board.report(id, now).outcome.verdict() != Verdict::NotReady
    }
}
