//! `/wait`: holds a request until the balancers have been told, for `preStop` hooks and scripts. A waiting
//! request is a future that one task wakes.

mod judge;
mod wait_clients;
mod wait_query;
mod wait_slots;
pub(super) mod waiters;

pub use wait_clients::{FindPods, PodSettings};

use super::app::App;
use super::body::AnswerBody;
use super::respond::ResponseFuture;
use super::response_head::ResponseHead;
use crate::route::Route;
use futures::future::Either;
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{Response, StatusCode, Uri};
use nodegate_http::Client;
use nodegate_readiness::board::{NODE_NAME_MISSING, why};
use nodegate_readiness::probers::{Goal, WaitJudgement};
use nodegate_readiness::{Moment, Verdict};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use wait_query::WaitQuery;

/// The longest timeout of a client that is neither this node nor one of its pods.
const TIMEOUT_OF_OTHERS: Duration = Duration::from_mins(1);

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
    async fn hold_for(
        self: &Arc<Self>,
        client: Client,
        asked: WaitQuery,
        now: Moment,
    ) -> (StatusCode, String) {
        let holder = self.holder(client).await;
        let Some(_slot) = self.waiters.slots.take(holder) else {
            return (StatusCode::TOO_MANY_REQUESTS, "too many requests wait\n".to_owned());
        };
        let longest = if holder.is_other() { TIMEOUT_OF_OTHERS } else { asked.timeout };
        self.start_to_judge();
        self.wait_until_judged(WaitQuery { timeout: asked.timeout.min(longest), ..asked }, now).await
    }

    /// Holds a request that was asked `now`, and returns its answer.
    async fn wait_until_judged(&self, asked: WaitQuery, now: Moment) -> (StatusCode, String) {
        let began = Instant::now();
        let deadline = began + asked.timeout;
        let settled = deadline.min(began + asked.settle);
        loop {
            let mut changed = pin!(self.waiters.changed.notified());
            changed.as_mut().enable();
            let hold = self.waiters.judgement(asked.goal, asked.service, now);
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
            let _ = timeout_at(until, changed).await;
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
}

/// The answer where balancers need not be told.
const IN_SERVICE: &str = "the node is not going out\n";
/// The same for a Service.
const SERVICE_IN_SERVICE: &str = "a ready endpoint of the Service remains on this node\n";
