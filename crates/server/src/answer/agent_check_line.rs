//! The line that `HAProxy`'s agent-check reads.

use super::verdicts::{Asker, Verdicts};
use crate::probers::RequestTarget;
use nodegate_http::Client;
use nodegate_readiness::board::why;
use nodegate_readiness::probers::AGENT_CHECK;
use nodegate_readiness::{Moment, Query, Verdict};

/// The longest reason in an answer, in characters. HAProxy shows the line in one row of its status page.
const MAX_REASON: usize = 100;

pub(crate) struct AgentCheckAnswer {
    pub(crate) line: String,
    /// `None` if the agent does not know its node.
    verdict: Option<Verdict>,
    /// The moment for which the answer is true.
    at: Moment,
}

impl Verdicts {
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
        self.metrics.count_answer(AGENT_CHECK, verdict);
        let line = match (verdict, reason) {
            (Verdict::Ready, _) => "up ready\n".to_owned(),
            (Verdict::Draining, _) => "up drain\n".to_owned(),
            (Verdict::NotReady, reason) => format!("down #{}\n", one_line(reason.as_str())),
        };
        AgentCheckAnswer { line, verdict: Some(verdict), at: now }
    }

    /// Logs an answered agent-check and records its client; `sent` is its `agent-send` string.
    pub(crate) fn record_agent_check(&self, client: Client, sent: &[u8], answer: &AgentCheckAnswer) {
        let (address, line) = (client.address.to_canonical(), answer.line.trim_end());
        tracing::debug!(client = %address, line, "answered an agent-check");
        let asker = Asker { client, server_state: None };
        self.record(&asker, RequestTarget::AgentCheck { sent }, None, answer.verdict, answer.at);
    }
}

/// Replaces control characters and cuts the reason, so that it can't end the line early. Its text comes from
/// the API server or from a program.
fn one_line(reason: &str) -> String {
    reason.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use futures::FutureExt;
    use nodegate_readiness::check::NODE_READY;
    use nodegate_readiness::{Board, Catalog, Condition, ConditionStatus, Node, NodeFacts, Policy};
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn node(status: ConditionStatus) -> Node {
        let condition = Condition { kind: "Ready".to_owned(), status, reason: "Reason".to_owned() };
        Node::Present(NodeFacts { conditions: vec![condition], ..NodeFacts::default() })
    }

    #[test]
    fn the_words_and_the_reason_are_of_one_moment() {
        let catalog = Catalog::new(Vec::new());
        let default = [catalog.find(NODE_READY).unwrap()];
        let name = Some("n1".to_owned());
        let app = App::of(Board::new(name, Policy::default(), catalog, &default, Box::new(|_| {})));
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
                lines.extend(app.verdicts.agent_check().now_or_never().map(|answer| answer.line));
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(Vec::from_iter(lines), ["down #Reason\n", "up ready\n"]);
    }

    #[test]
    fn a_reason_stays_on_its_line() {
        assert_eq!(one_line("Kubelet\nup ready\r"), "Kubelet up ready ");
        assert_eq!(one_line(&"é".repeat(500)).chars().count(), MAX_REASON);
    }
}
