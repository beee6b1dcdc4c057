//! The routes that tell the verdict, `/health` and `/nodecheck`, and HAProxy's agent-check: what they answer, and the
//! record of what a client was told. The agent answers at once, unless the checks of the request must run first.

use super::app::App;
use super::response::{AnswerBody, JSON, ResponseHead, TEXT};
use super::slots::Holder;
use crate::probers::{Probe, RequestTarget};
use crate::route::Route;
use futures::FutureExt;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, Response, StatusCode, Uri};
use nodegate_http::{Answer, Client};
use nodegate_readiness::board::why;
use nodegate_readiness::probers::GivenAnswer;
use nodegate_readiness::{Lookup, Moment, Query, Reply, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// The time that the start of a check may take beyond the timeout of its first run. nodegate-local-checks
/// waits for the result as long, because a node that is short of CPU may deliver it some hundred milliseconds
/// late.
const ACTIVATION_SLACK: Duration = Duration::from_secs(1);

/// The number of requests that may wait for the first result of their checks. Further requests are answered
/// with the known results. A waiting request is busy and its connection is evicted last, so without a bound
/// the clients that name a hanging check would take all connections. A quarter of
/// the default limit of connections; of a lower limit it is a quarter, too.
const MAX_WAITING: usize = 128;

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

impl App {
    /// Starts the checks of a query that have no valid result, and waits for their first results.
    pub(super) async fn wait_for_results(&self, query: &Query, now: Moment) {
        let pending = self.reader.board.pending(query, now);
        let timeouts = pending.iter().filter_map(|id| self.reader.board.catalog().local(*id));
        let Some(longest) = timeouts.map(|check| check.timeout).max() else { return };
        // The checks run in parallel and fail by their own timeouts. If even that hangs, the answer says that
        // there is no recent result.
        let first_results = (self.activate)(pending);
        let most = (self.waits.connections() / 4).clamp(1, MAX_WAITING);
        if let Some(_waits) = self.waiting.take(Holder::Node, most, most) {
            let _ = tokio::time::timeout(longest + ACTIVATION_SLACK, first_results).await;
        }
    }

    /// Records a request that gets no verdict, so that a load balancer that goes on sending it is named.
    pub(super) fn record_stray(&self, request: &Probe, text: &str, code: Option<u16>) {
        let verdict = if code == Some(200) { Verdict::Ready } else { Verdict::NotReady };
        self.reader.probers.note(request, RequestTarget::Stray { text }, GivenAnswer { verdict, code });
    }

    /// Counts and records the verdict that a client got.
    pub(super) fn record_verdict(
        &self,
        request: &Probe,
        target: RequestTarget<'_>,
        code: Option<StatusCode>,
        verdict: Verdict,
    ) {
        self.metrics.count_verdict(request.route, verdict);
        let given = GivenAnswer { verdict, code: code.map(|code| code.as_u16()) };
        self.reader.probers.note(request, target, given);
    }

    /// Answers from the rendered answers if possible (the hot path), else after the first results of the
    /// checks.
    pub(super) fn health(
        self: &Arc<Self>,
        head: ResponseHead,
        mut request: Probe,
        uri: &Uri,
    ) -> Answer<AnswerBody> {
        match self.reader.board.lookup(uri.query().unwrap_or_default(), request.at) {
            Lookup::Hit(reply) => Answer::Now(self.tell(head, &request, uri, reply)),
            Lookup::Bad(bad) => Answer::Now(head.error(StatusCode::BAD_REQUEST, &bad)),
            Lookup::Miss(query) => {
                let (this, uri) = (Arc::clone(self), uri.clone());
                let answered = async move {
                    this.wait_for_results(&query, request.at).await;
                    request.at = this.reader.now();
                    let raw = uri.query().unwrap_or_default();
                    let reply = this.reader.board.answer(raw, &query, request.at);
                    this.tell(head, &request, &uri, reply)
                };
                Answer::Later(answered.boxed())
            }
        }
    }

    /// Returns the response with this reply, and records it.
    fn tell(&self, head: ResponseHead, request: &Probe, uri: &Uri, reply: Reply) -> Response<AnswerBody> {
        if reply.fails_open {
            self.metrics.fail_open.inc();
        }
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        let (status, format, body) = match (request.route, reply.verdict) {
            (Route::Health, _) => (reply.status, &JSON, reply.body),
            (_, Verdict::Ready) => (200, &TEXT, "OK".into()),
            (_, Verdict::Draining | Verdict::NotReady) => (503, &TEXT, "Down".into()),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let target = RequestTarget::Http { path, query, changed: Moment::default() };
        self.record_verdict(request, target, Some(status), reply.verdict);
        head.finish(status, format, body)
    }
}

/// The longest reason in an answer, in characters. HAProxy shows the line in one row of its status page.
const MAX_REASON: usize = 100;

pub(crate) struct AgentCheckAnswer {
    pub(crate) line: String,
    /// `None` if the agent does not know its node.
    verdict: Option<Verdict>,
    /// The moment for which the answer is true.
    at: Moment,
}

impl App {
    /// Returns the answer for this moment. Each line names both the operational and the administrative state,
    /// because HAProxy keeps the state that a line does not name: `down` after `drain` would stay in drain,
    /// and a lone `drain` would leave an earlier `down` (tried on 2.6).
    pub(crate) async fn agent_check(&self) -> AgentCheckAnswer {
        if self.reader.board.node_name().is_none() {
            let line = "down #NODE_NAME is not set\n".to_owned();
            return AgentCheckAnswer { line, verdict: None, at: self.reader.now() };
        }
        self.wait_for_results(&Query::default(), self.reader.now()).await;
        let now = self.reader.now();
        let (verdict, reason) = why(&self.reader.board.default_reports(now));
        if self.reader.board.last_known(now).is_some_and(|known| verdict < known.verdict) {
            self.metrics.fail_open.inc();
        }
        let line = match (verdict, reason) {
            (Verdict::Ready, _) => "up ready\n".to_owned(),
            (Verdict::Draining, _) => "up drain\n".to_owned(),
            // A reason is one line.
            (Verdict::NotReady, reason) => format!("down #{reason:.MAX_REASON$}\n"),
        };
        AgentCheckAnswer { line, verdict: Some(verdict), at: now }
    }

    /// Logs an answered agent-check and records its client; `sent` is its `agent-send` string.
    pub(crate) fn record_agent_check(&self, client: Client, sent: &[u8], answer: &AgentCheckAnswer) {
        let (address, line) = (client.address.to_canonical(), answer.line.trim_end());
        tracing::debug!(client = %address, line, "answered an agent-check");
        let request = Probe::new(client, &mut HeaderMap::new(), Route::AgentCheck, answer.at);
        if let Some(verdict) = answer.verdict {
            self.record_verdict(&request, RequestTarget::AgentCheck { sent }, None, verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Catalog, Condition, ConditionStatus, LocalCheck, Node, NodeFacts, StartMode};
    use std::collections::BTreeSet;
    use std::future::pending;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// nodegate-local-checks waits as long for a result.
    #[tokio::test(start_paused = true)]
    async fn a_first_result_may_come_a_second_after_the_timeout() {
        let timeout = Duration::from_secs(5);
        let check = LocalCheck { name: "kubelet".to_owned(), timeout, begins: StartMode::OnDemand };
        let catalog = Catalog::new(vec![check]);
        let query = Query::parse("check=kubelet", &catalog).unwrap();
        let app = App::with(catalog, Arc::new(|_| Box::pin(pending())));
        let began = tokio::time::Instant::now();
        app.wait_for_results(&query, app.now()).await;
        assert_eq!(began.elapsed().as_millis() / 10, 600);
    }

    fn node(status: ConditionStatus) -> Node {
        let condition = Condition { kind: "Ready".to_owned(), status, reason: "Reason".to_owned() };
        Node::Present(NodeFacts { conditions: vec![condition], ..NodeFacts::default() })
    }

    #[test]
    fn the_words_and_the_reason_are_of_one_moment() {
        let app = App::of(Catalog::default());
        app.reader.board.prove(app.now());
        let over = AtomicBool::new(false);
        let flip = || {
            while !over.load(Ordering::Relaxed) {
                for status in [ConditionStatus::True, ConditionStatus::False] {
                    app.reader.board.set_node(node(status), app.now(), nodegate_clock::wall());
                }
            }
        };
        app.reader.board.set_node(node(ConditionStatus::True), app.now(), nodegate_clock::wall());
        let mut lines = BTreeSet::new();
        std::thread::scope(|scope| {
            scope.spawn(flip);
            for _ in 0..100_000 {
                lines.extend(app.agent_check().now_or_never().map(|answer| answer.line));
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(Vec::from_iter(lines), ["down #Reason\n", "up ready\n"]);
    }
}
