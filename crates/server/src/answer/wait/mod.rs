//! `/wait`: holds a request until the balancers have acknowledged, for `preStop` hooks and scripts. A waiting
//! request is a future; one task judges for all of them.

mod wait_query;
pub(super) mod waiters;

use super::app::App;
use super::body::AnswerBody;
use super::respond::ResponseFuture;
use super::response_head::ResponseHead;
use super::slots::Holder;
use crate::route::Route;
use futures::future::Either;
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use ipnet::IpNet;
use nodegate_http::Client;
use nodegate_readiness::board::{NODE_NAME_MISSING, why};
use nodegate_readiness::probers::{Goal, WaitJudgement};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Moment, Verdict};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use wait_query::WaitQuery;
use waiters::Judged;

/// The longest timeout of a client that is neither this node nor one of its pods.
const TIMEOUT_OF_OTHERS: Duration = Duration::from_mins(1);

/// The least time between two judgements, so that frequent probes cost no more.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. Some conditions change by time alone: a silent prober is gone, a new agent has listened
/// for long enough, the cache gets stale.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The answer where no balancer needs to acknowledge.
const IN_SERVICE: &str = "the node is not going out\n";
/// The same for a Service.
const SERVICE_IN_SERVICE: &str = "a ready endpoint of the Service remains on this node\n";

impl App {
    /// Answers a request for `/wait`.
    pub(super) fn wait(
        self: &Arc<Self>,
        head: ResponseHead,
        uri: &Uri,
        client: Client,
        now: Moment,
    ) -> ResponseFuture {
        let at_once = |head: ResponseHead, status, text: String| {
            self.count_response(Route::Wait, None, head.text(status, text))
        };
        let asked = match WaitQuery::parse(uri.query().unwrap_or_default(), self.board.catalog()) {
            Err((status, wrong)) => return at_once(head, status, wrong),
            Ok(_) if self.board.node_name().is_none() => {
                return at_once(head, StatusCode::INTERNAL_SERVER_ERROR, NODE_NAME_MISSING.to_owned());
            }
            Ok(asked) => asked,
        };
        let of_node = asked.service.is_none();
        if of_node && asked.goal != Goal::Ready && asked.settle.is_zero() && self.is_in_service(now) {
            return at_once(head, StatusCode::OK, IN_SERVICE.to_owned());
        }
        let app = Arc::clone(self);
        let again = HeaderValue::from_str(uri.path_and_query().map_or("/wait", PathAndQuery::as_str));
        Either::Right(Box::pin(async move {
            let (status, text) = app.hold_for(client, asked, now).await;
            let mut response = app.end_of_wait(head, status, text);
            // A kubelet follows it, and would take any other answer as the end of its hook.
            if let (StatusCode::TEMPORARY_REDIRECT, Ok(again)) = (status, again) {
                response.headers_mut().insert(LOCATION, again);
            }
            app.metrics.answered(Route::Wait, status, None);
            Ok(response)
        }))
    }

    /// Holds a request of this client if there is a slot for it, and returns its answer.
    async fn hold_for(&self, client: Client, asked: WaitQuery, now: Moment) -> (StatusCode, String) {
        let holder = self.holder(client).await;
        let Some(_slot) = self.waiters.take(holder) else {
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
        match &self.waiters.pods.routes {
            Some(leads_to_pod) if leads_to_pod(address).await => Holder::Pod(address),
            _ => Holder::other(address),
        }
    }

    /// Returns true if the address belongs to one of the node's pods, as far as the Node or a setting says.
    pub(crate) fn is_pod(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let published = self.board.published();
        let of_node = published.state.node.facts().map_or(&[][..], |facts| &facts.pod_cidrs);
        let named = self.waiters.pods.networks.as_ref();
        of_node.iter().any(|network| network.parse::<IpNet>().is_ok_and(|network| network.contains(&address)))
            || named.is_some_and(|networks| !networks.is_everybody() && networks.contains(address))
    }

    /// Holds a request that was asked `now`, and returns its answer.
    async fn wait_until_judged(&self, asked: WaitQuery, now: Moment) -> (StatusCode, String) {
        let began = Instant::now();
        let deadline = began + asked.timeout;
        let settled = deadline.min(began + asked.settle);
        let mut judged = self.waiters.judged.subscribe();
        self.waiters.arrived.notify_one();
        self.probers.noted.notify_one();
        loop {
            let hold = judged.borrow_and_update().of(asked, now);
            let (until, why) = match hold {
                Some(WaitJudgement::Over(why)) => return (StatusCode::OK, format!("{why}\n")),
                Some(WaitJudgement::InService) if Instant::now() >= settled => {
                    let in_service = if asked.service.is_some() { SERVICE_IN_SERVICE } else { IN_SERVICE };
                    return (StatusCode::OK, in_service.to_owned());
                }
                Some(WaitJudgement::InService) => (settled, String::new()),
                Some(WaitJudgement::Waiting(why)) => (deadline, why),
                None => (deadline, "not judged yet".to_owned()),
            };
            if self.is_closing() {
                let closing = "the agent is shutting down; ask its successor\n";
                return (StatusCode::TEMPORARY_REDIRECT, closing.to_owned());
            }
            if Instant::now() >= deadline {
                let (goal, seconds) = (asked.goal.as_str(), asked.timeout.as_secs());
                return (StatusCode::GATEWAY_TIMEOUT, format!("not {goal} within {seconds} s: {why}\n"));
            }
            // The end of either is seen above.
            let _ = timeout_at(until, judged.changed()).await;
        }
    }

    fn end_of_wait(&self, mut head: ResponseHead, status: StatusCode, text: String) -> Response<AnswerBody> {
        if self.is_closing() {
            head.close();
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            head.header(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        head.text(status, text)
    }

    /// Returns true if the node is in the pool, by an answer that is not stale.
    fn is_in_service(&self, now: Moment) -> bool {
        !self.board.freshness(now).stale && why(&self.board.default_reports(now)).0 == Verdict::Ready
    }

    /// Judges for all waiting requests after each probe and each flip, and once a second. Sleeps while no request
    /// waits.
    pub(crate) async fn judge(&self) -> Infallible {
        loop {
            if self.waiters.judged.is_closed() {
                self.waiters.arrived.notified().await;
                continue;
            }
            let now = self.now();
            let (status, unchanged_for) = self.probers.status(&self.board, self.version, now);
            let goals = self.judgements(&status, unchanged_for);
            drop(status);
            self.waiters.judged.send_replace(Judged { at: now, goals });
            sleep(PAUSE).await;
            let _ = timeout(LONGEST_PAUSE, self.probers.noted.notified()).await;
        }
    }

    /// Returns the judgement for each goal, of the node and then of each watched Service.
    fn judgements(&self, status: &Status, unchanged_for: Duration) -> Vec<WaitJudgement> {
        // A Service that has been out for long waits for slow balancers: a rollout takes it out, no fault.
        let services = self.board.catalog().services().map(|service| status.of_service(&service.to_string()));
        let services =
            services.flatten().map(|status| Goal::ALL.map(|goal| status.judge_wait(goal, Duration::ZERO)));
        let node = Goal::ALL.map(|goal| status.judge_wait(goal, unchanged_for));
        [node].into_iter().chain(services).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Board, Catalog, Node, NodeFacts, Policy};

    #[test]
    fn pods_are_known_by_the_node_and_by_the_named_networks() {
        let mut app = App::of(Board::new(None, Policy::default(), Catalog::default(), &[], Box::new(|_| {})));
        let facts = NodeFacts { pod_cidrs: vec!["10.66.0.0/24".to_owned()], ..NodeFacts::default() };
        app.board.set_node(Node::Present(facts), app.now(), nodegate_clock::wall());
        let waiters = &mut Arc::get_mut(&mut app).unwrap().waiters;
        waiters.pods.networks = Some("10.67.0.0/24".parse().unwrap());
        let pods = [[10, 66, 0, 7], [10, 67, 0, 7], [10, 68, 0, 7]].map(|address| app.is_pod(address.into()));
        assert_eq!(pods, [true, true, false]);
    }
}
