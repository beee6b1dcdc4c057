//! `/services/<namespace>/<name>`: the health of a watched Service on this node, as kube-proxy's
//! healthCheckNodePort shows it.

use super::app::App;
use super::response::{AnswerBody, JSON, ResponseHead};
use crate::probers::{Probe, RequestTarget};
use crate::route::{NOT_WATCHED, SERVICES_PREFIX};
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode, Uri};
use nodegate_program::sanitize_short;
use nodegate_readiness::check::KUBE_PROXY;
use nodegate_readiness::{CheckId, Moment, Query, Verdict};
use serde_json::json;

/// The maximum length of a path in an error, in characters.
const MAX_SHOWN: usize = 160;

/// The header with the number of a Service's endpoints on this node, for load balancers that weigh nodes by
/// it.
static WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

impl App {
    /// Returns the answer of kube-proxy (`pkg/proxy/healthcheck/service_health.go`), byte for byte, but 503 until
    /// kube-proxy has its rules for the first endpoint (`is_returning`). With `?drain=<code>` a draining node answers
    /// that code with weight 0, because kube-proxy does not know cordons.
    pub(super) fn service_health(
        &self,
        mut head: ResponseHead,
        request: &Probe,
        uri: &Uri,
    ) -> Response<AnswerBody> {
        let now = request.at;
        let (board, path, query) = (&self.reader.board, uri.path(), uri.query().unwrap_or_default());
        let service = path.strip_prefix(SERVICES_PREFIX).unwrap_or_default();
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let Some(view) = board.service(service, now) else {
            let is_name = !namespace.is_empty() && !name.is_empty();
            let why = if is_name { NOT_WATCHED } else { "takes /services/<namespace>/<name>" };
            return head.text(StatusCode::NOT_FOUND, format!("{}: {why}\n", sanitize_short(path, MAX_SHOWN)));
        };
        let asked = match Query::parse(query, board.catalog()) {
            Ok(asked) => asked,
            Err(bad) => return head.error(StatusCode::BAD_REQUEST, &bad),
        };
        let is_excepted = asked.excluded && board.is_out_by_label_alone(now);
        let drain = asked.drain.filter(|_| !is_excepted && self.is_draining(now));
        let local_endpoints = board.policy().local_endpoints(view.service.local_endpoints, view.is_stale);
        let proxy_healthy = !view.service.is_returning(now) && self.is_proxy_healthy(now);
        let (status, verdict) = match (local_endpoints, drain) {
            (1.., None) if proxy_healthy => (StatusCode::OK, Verdict::Ready),
            (1.., Some(code)) if proxy_healthy => {
                let status = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                (status, Verdict::Draining)
            }
            _ => (StatusCode::SERVICE_UNAVAILABLE, Verdict::NotReady),
        };
        let was_draining = || board.last_known(now).is_some_and(|known| known.verdict == Verdict::Draining);
        if verdict == Verdict::Ready && asked.drain.is_some() && !asked.excluded && was_draining() {
            self.metrics.fail_open.inc();
        }
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {},\n\t\t\"name\": {}\n\t}},\n\t\"localEndpoints\": {local_endpoints},\n\t\
             \"serviceProxyHealthy\": {proxy_healthy}\n}}",
            json!(namespace),
            json!(name),
        );
        let weight = if drain.is_some() { 0 } else { local_endpoints };
        head.header(WEIGHT.clone(), HeaderValue::from(weight));
        head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        // The change is of the same state as the answer, so no answer from before it counts as one after it.
        let target = RequestTarget::Http { path, query, changed: view.service.changed };
        self.record_verdict(request, target, Some(status), verdict);
        head.finish(status, &JSON, Bytes::from(body))
    }

    /// Returns true if the node is draining, whether or not `node_ready` is a default check.
    fn is_draining(&self, now: Moment) -> bool {
        self.reader.board.report(CheckId::NodeReady, now).outcome.verdict() == Verdict::Draining
    }

    /// Returns true unless kube-proxy is known to be unhealthy. If kube-proxy does not run or its state is
    /// unknown, something that the agent can't ask replaces it. A kube-proxy that reports its node as not
    /// eligible is healthy: upstream keeps the two apart.
    fn is_proxy_healthy(&self, now: Moment) -> bool {
        let Some(id) = self.reader.board.catalog().find(KUBE_PROXY) else { return true };
        let known = self.reader.board.state().local_result(id).is_some();
        !known || self.reader.board.report(id, now).outcome.verdict() != Verdict::NotReady
    }
}
