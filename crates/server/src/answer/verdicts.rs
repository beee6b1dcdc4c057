//! The routes that tell the verdict, and HAProxy's agent-check: what they answer from, and who is told.

use crate::metrics::Metrics;
use crate::probers::{ProbeRequest, RequestTarget};
use crate::reading::Reader;
use futures::future::BoxFuture;
use http::HeaderMap;
use http::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use nodegate_http::Client;
use nodegate_readiness::probers::GivenAnswer;
use nodegate_readiness::{CheckId, Moment, Query, Verdict};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of requests that may wait for the first result of their checks. Further requests are answered
/// with the known results. A waiting request is busy and its connection can't be evicted, so without a bound
/// the clients that name a hanging check would take all connections. A quarter of
/// the default limit of connections; for fewer connections see [`Verdicts::limit_waiting`].
const MAX_WAITING: usize = 128;

/// The time that the start of a check may take beyond the timeout of its first run. nodegate-local-checks
/// waits for the result as long, because a node that is short of CPU may deliver it some hundred milliseconds
/// late.
const ACTIVATION_SLACK: Duration = Duration::from_secs(1);

/// The header in which HAProxy describes its server (`http-check send-state`).
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// The longest server state that is read, in bytes. The agent keeps the names in it, and shows them in the
/// status.
const MAX_STATE_BYTES: usize = 512;

/// The client of a request for the verdict.
pub(super) struct Asker {
    pub(super) client: Client,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    pub(super) fn new(client: Client, headers: &mut HeaderMap) -> Self {
        Self { client, server_state: headers.remove(&SERVER_STATE) }
    }
}

/// Returns true if a client whose request gets no verdict may be a load balancer: not on this node, and neither a
/// browser, nor a kubelet, nor Prometheus.
pub(super) fn may_be_a_balancer(client: Client, headers: &HeaderMap) -> bool {
    let has = |header, matches: fn(&str) -> bool| {
        headers.get_all(header).iter().any(|value| value.to_str().is_ok_and(matches))
    };
    let is_browser = has(ACCEPT, |accepted| accepted.to_ascii_lowercase().contains("text/html"));
    let is_of_cluster =
        has(USER_AGENT, |agent| agent.starts_with("kube-probe/") || agent.starts_with("Prometheus/"));
    !client.on_this_node && !is_browser && !is_of_cluster
}

/// Starts local checks, even if the returned future is dropped. The future resolves when each check has its first
/// result. The server waits no longer than the checks' own timeouts allow.
pub type Activate = Arc<dyn Fn(Vec<CheckId>) -> BoxFuture<'static, ()> + Send + Sync>;

/// The routes that tell the verdict. Files beside this one have the answers of each.
pub(crate) struct Verdicts {
    pub(super) reader: Arc<Reader>,
    pub(super) metrics: Arc<Metrics>,
    activate: Activate,
    waiting: Semaphore,
}

impl Verdicts {
    pub(super) fn new(reader: Arc<Reader>, metrics: Arc<Metrics>, activate: Activate) -> Self {
        Self { reader, metrics, activate, waiting: Semaphore::new(MAX_WAITING) }
    }

    /// Lowers the number of waiting requests to a quarter of a listener's connections, if that is less than
    /// the present limit. Must be called before the app is served.
    pub(crate) fn limit_waiting(&self, max_connections: usize) {
        let most = (max_connections / 4).clamp(1, MAX_WAITING);
        self.waiting.forget_permits(self.waiting.available_permits().saturating_sub(most));
    }

    /// Starts the checks of a query that have no valid result, and waits for their first results.
    pub(super) async fn wait_for_results(&self, query: &Query, now: Moment) {
        let pending = self.reader.board.pending(query, now);
        let timeouts = pending.iter().filter_map(|id| self.reader.board.catalog().local(*id));
        let Some(longest) = timeouts.map(|check| check.timeout).max() else { return };
        // The checks run in parallel and fail by their own timeouts. If even that hangs, the answer says that
        // there is no recent result.
        let first_results = (self.activate)(pending);
        if let Ok(_waits) = self.waiting.try_acquire() {
            let _ = tokio::time::timeout(longest + ACTIVATION_SLACK, first_results).await;
        }
    }

    /// Records a request that gets no verdict, so that a load balancer that goes on sending it is named.
    pub(super) fn record_stray(&self, asker: &Asker, text: &str, code: Option<u16>, now: Moment) {
        let verdict = if code == Some(200) { Verdict::Ready } else { Verdict::NotReady };
        self.record(asker, RequestTarget::Stray { text }, code, Some(verdict), now);
    }

    /// Records the verdict that a client got. An answer without a verdict says nothing about the node and is
    /// not recorded.
    pub(super) fn record(
        &self,
        asker: &Asker,
        target: RequestTarget<'_>,
        code: Option<u16>,
        verdict: Option<Verdict>,
        now: Moment,
    ) {
        let Some(verdict) = verdict else { return };
        let Client { address: peer, on_this_node } = asker.client;
        let server_state = asker.server_state.as_ref().map(HeaderValue::as_bytes);
        let server_state = server_state.filter(|state| state.len() <= MAX_STATE_BYTES);
        let request = ProbeRequest { peer, on_this_node, target, server_state };
        self.reader.probers.note(&request, GivenAnswer { verdict, code }, &self.reader.board, now);
    }
}
