//! `/wait`: holds a request until the balancers have acknowledged, for `preStop` hooks and scripts. A waiting
//! request is a future; one task reads the agent for all of them.

mod wait_query;

use super::body::AnswerBody;
use super::response_head::{JSON, ResponseHead, TEXT};
use super::slots::Holder;
use super::waits::Waits;
use crate::reading::Reading;
use bytes::Bytes;
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use ipnet::IpNet;
use nodegate_agent_api::{Goal, WaitState};
use nodegate_http::Client;
use nodegate_readiness::board::{NODE_NAME_MISSING, why};
use nodegate_readiness::{Moment, Verdict};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wait_query::WaitQuery;

/// The longest timeout of a client that is neither this node nor one of its pods.
const TIMEOUT_OF_OTHERS: Duration = Duration::from_mins(1);

/// The least time between two judgements, so that frequent probes cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Some conditions change by time alone: a silent prober is gone, a new agent has listened
/// for long enough, the cache gets stale.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The answer to a request that need not wait for a judgement.
const IN_SERVICE: &str = "the node is not going out\n";

impl Waits {
    /// Answers a request for `/wait`.
    pub(super) async fn answer(
        &self,
        mut head: ResponseHead,
        uri: &Uri,
        client: Client,
        now: Moment,
    ) -> Response<AnswerBody> {
        let asked = match WaitQuery::parse(uri.query().unwrap_or_default(), self.reader.board.catalog()) {
            Err((status, wrong)) => return head.text(status, wrong),
            Ok(_) if self.reader.board.node_name().is_none() => {
                return head.text(StatusCode::INTERNAL_SERVER_ERROR, NODE_NAME_MISSING);
            }
            Ok(asked) => asked,
        };
        let of_node = asked.service.is_none() && !asked.is_json;
        if of_node && asked.goal != Goal::Ready && asked.settle.is_zero() && self.is_in_service(now) {
            return head.text(StatusCode::OK, IN_SERVICE);
        }
        let (status, body) = self.hold_for(client, asked, now).await;
        if self.is_closing() {
            head.close();
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            head.header(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        let again = uri.path_and_query().map_or("/wait", PathAndQuery::as_str);
        if status == StatusCode::TEMPORARY_REDIRECT
            && let Ok(again) = HeaderValue::from_str(again)
        {
            // A kubelet follows it, and would take any other answer as the end of its hook.
            head.header(LOCATION, again);
        }
        let is_json = asked.is_json && matches!(status, StatusCode::OK | StatusCode::GATEWAY_TIMEOUT);
        head.finish(status, if is_json { &JSON } else { &TEXT }, Bytes::from(body))
    }

    /// Holds a request of this client if there is a slot for it, and returns its answer.
    async fn hold_for(&self, client: Client, asked: WaitQuery, now: Moment) -> (StatusCode, String) {
        let holder = self.holder(client).await;
        let Some(_slot) = self.take(holder) else {
            return (StatusCode::TOO_MANY_REQUESTS, "too many requests wait\n".to_owned());
        };
        let longest = if holder.is_other() { TIMEOUT_OF_OTHERS } else { asked.timeout };
        self.wait_until_judged(WaitQuery { timeout: asked.timeout.min(longest), ..asked }, now).await
    }

    async fn holder(&self, client: Client) -> Holder {
        if client.on_this_node {
            return Holder::Node;
        }
        let address = client.address.to_canonical();
        if self.is_pod(address) {
            return Holder::Pod(address);
        }
        match &self.pods.routes {
            Some(leads_to_pod) if leads_to_pod(address).await => Holder::Pod(address),
            _ => Holder::other(address),
        }
    }

    /// Returns true if the address belongs to one of the node's pods, as far as the Node or a setting says.
    pub(crate) fn is_pod(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let published = self.reader.board.published();
        let of_node = published.state.node.facts().map_or(&[][..], |facts| &facts.pod_cidrs);
        let named = self.pods.networks.as_ref();
        of_node.iter().any(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)))
            || named.is_some_and(|networks| !networks.is_everybody() && networks.contains(address))
    }

    /// Holds a request that was asked `now`, and returns its answer.
    async fn wait_until_judged(&self, asked: WaitQuery, now: Moment) -> (StatusCode, String) {
        let began = Instant::now();
        let deadline = began + asked.timeout;
        let settle = asked.settle.min(asked.timeout);
        let mut judged = self.judged.subscribe();
        self.arrived.notify_one();
        self.reader.probers.noted.notify_one();
        loop {
            // A reading from before the request does not answer it.
            let latest = judged.borrow_and_update().clone().filter(|(at, _)| *at >= now);
            let state = latest.as_ref().map(|(_, reading)| reading.wait_state(asked.goal, asked.service));
            let is_settled = latest.as_ref().is_some_and(|(at, _)| *at >= now.plus(settle));
            // The drain may be about to begin: only a reading from after `settle` shows that it has not.
            let is_over =
                state.is_some_and(|state| state.is_over() && (is_settled || !state.is_in_service()));
            if self.is_closing() && !is_over {
                let closing = "the agent is shutting down; ask its successor\n";
                return (StatusCode::TEMPORARY_REDIRECT, closing.to_owned());
            }
            let until = match state {
                Some(state) if state.is_in_service() && Instant::now() < began + settle => began + settle,
                Some(state) if state.is_in_service() => {
                    self.reader.probers.noted.notify_one();
                    deadline + MAX_PAUSE
                }
                _ => deadline,
            };
            if is_over || Instant::now() >= until {
                let Some(((_, reading), state)) = latest.zip(state) else {
                    return (StatusCode::SERVICE_UNAVAILABLE, "not judged yet; try again\n".to_owned());
                };
                let status = if is_over { StatusCode::OK } else { StatusCode::GATEWAY_TIMEOUT };
                return (status, self.words(asked, &reading, state));
            }
            // The end of either is seen above.
            let _ = timeout_at(until, judged.changed()).await;
        }
    }

    /// Returns the body of an answer: goal, what is missing, and why.
    fn words(&self, asked: WaitQuery, reading: &Reading, state: WaitState) -> String {
        let WaitQuery { goal, service, timeout, .. } = asked;
        if asked.is_json {
            let name = |index| Some((index, self.reader.board.catalog().services().nth(index)?.to_string()));
            let reply = reading.wait_reply(state, goal, service.and_then(name));
            return serde_json::to_string(&reply).unwrap_or_default() + "\n";
        }
        let words = reading.wait_words(state, goal, service);
        match state {
            WaitState::Reached => format!("{}: {words}\n", goal.as_str()),
            state if state.is_over() => format!("{words}\n"),
            _ => format!("not {} within {} s: {words}\n", goal.as_str(), timeout.as_secs()),
        }
    }

    /// Returns true if the node is in the pool, by an answer that is not stale.
    fn is_in_service(&self, now: Moment) -> bool {
        !self.reader.board.freshness(now).stale
            && why(&self.reader.board.default_reports(now)).0 == Verdict::Ready
    }

    /// Reads for all waiting requests after each probe and each change, and once a second. Sleeps while no request
    /// waits.
    pub(crate) async fn judge(&self) -> Infallible {
        loop {
            if self.judged.is_closed() {
                self.judged.send_replace(None);
                self.arrived.notified().await;
                continue;
            }
            let now = self.reader.now();
            self.judged.send_replace(Some((now, Arc::new(self.reader.read(now)))));
            sleep(PAUSE).await;
            let _ = timeout(MAX_PAUSE, self.reader.probers.noted.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{App, PodSettings};
    use nodegate_readiness::{Board, Catalog, Node, NodeFacts, Policy};

    #[test]
    fn pods_are_known_by_the_node_and_by_the_named_networks() {
        let app = App::of(Board::new(None, Policy::default(), Catalog::default(), &[], Box::new(|_| {})));
        let facts = NodeFacts { pod_cidrs: vec!["10.66.0.0/24".to_owned()], ..NodeFacts::default() };
        app.reader.board.set_node(Node::Present(facts), app.now(), nodegate_clock::wall());
        let networks = Some("10.67.0.0/24".parse().unwrap());
        let waits = Waits::new(app.reader.clone(), PodSettings { networks, routes: None });
        let pods =
            [[10, 66, 0, 7], [10, 67, 0, 7], [10, 68, 0, 7]].map(|address| waits.is_pod(address.into()));
        assert_eq!(pods, [true, true, false]);
    }
}
