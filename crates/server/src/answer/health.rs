//! `/health` and `/nodecheck`: the verdict. The agent answers at once, unless the checks of the request must
//! run first.

use super::app::{App, MAX_WAITING};
use super::asker::{Asker, target};
use super::body::AnswerBody;
use super::respond::ResponseFuture;
use super::response_head::{JSON, ResponseHead};
use crate::route::Route;
use futures::future::{Either, ready};
use http::{Response, StatusCode, Uri};
use nodegate_readiness::{Lookup, Moment, Query, Reply, Verdict};
use std::sync::Arc;
use std::time::Duration;

/// The time that the start of a check may take beyond the timeout of its first run. nodegate-local-checks
/// waits for the result as long, because a node that is short of CPU may deliver it some hundred milliseconds
/// late.
const ACTIVATION_SLACK: Duration = Duration::from_secs(1);

impl App {
    /// Answers from the rendered answers if possible (the hot path), else after the first results of the
    /// checks.
    pub(super) fn health(
        self: &Arc<Self>,
        head: ResponseHead,
        route: Route,
        asker: Asker,
        uri: &Uri,
        now: Moment,
    ) -> ResponseFuture {
        match self.board.lookup(uri.query().unwrap_or_default(), now) {
            Lookup::Hit(reply) => {
                Either::Left(ready(Ok(self.give_verdict(head, route, &asker, uri, reply, now))))
            }
            Lookup::Bad(bad) => {
                let reply = Reply::error(400, &bad);
                self.count_response(route, None, verdict_response(head, route, reply))
            }
            Lookup::Miss(query) => {
                let (app, uri) = (Arc::clone(self), uri.clone());
                Either::Right(Box::pin(async move {
                    app.wait_for_results(&query, now).await;
                    let now = app.now();
                    let reply = app.board.answer(uri.query().unwrap_or_default(), &query, now);
                    Ok(app.give_verdict(head, route, &asker, &uri, reply, now))
                }))
            }
        }
    }

    /// Returns the response for an answer from the board, records it and counts it.
    fn give_verdict(
        &self,
        head: ResponseHead,
        route: Route,
        asker: &Asker,
        uri: &Uri,
        reply: Reply,
        now: Moment,
    ) -> Response<AnswerBody> {
        if reply.fails_open {
            self.metrics.fail_open.inc();
        }
        let verdict = reply.verdict;
        let response = verdict_response(head, route, reply);
        self.record(asker, target(uri), Some(response.status().as_u16()), verdict, now);
        self.metrics.answered(route, response.status(), verdict);
        response
    }

    /// Starts the checks of a query that have no valid result, and waits for their first results.
    pub(super) async fn wait_for_results(&self, query: &Query, now: Moment) {
        let pending = self.board.pending(query, now);
        let timeouts = pending.iter().filter_map(|id| self.board.catalog().local(*id));
        let Some(longest) = timeouts.map(|check| check.timeout).max() else { return };
        // The checks run in parallel and fail by their own timeouts. If even that hangs, the answer says that
        // there is no recent result.
        let first_results = (self.activate)(pending);
        if let Ok(_waits) = self.waiting.try_acquire() {
            debug_assert!(self.waiting.available_permits() < MAX_WAITING);
            let _ = tokio::time::timeout(longest + ACTIVATION_SLACK, first_results).await;
        }
    }
}

fn verdict_response(head: ResponseHead, route: Route, reply: Reply) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if route == Route::Health {
        return head.finish(status, &JSON, reply.body);
    }
    match reply.verdict {
        Some(Verdict::Ready) => head.text(StatusCode::OK, "OK"),
        Some(Verdict::Draining | Verdict::NotReady) => head.text(StatusCode::SERVICE_UNAVAILABLE, "Down"),
        None if status == StatusCode::BAD_REQUEST => head.finish(status, &JSON, reply.body),
        None => head.text(status, "Down"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Begins, Board, Catalog, LocalCheck, Policy};
    use std::future::pending;

    /// nodegate-local-checks waits as long for a result.
    #[tokio::test(start_paused = true)]
    async fn a_first_result_may_come_a_second_after_the_timeout() {
        let timeout = Duration::from_secs(5);
        let check = LocalCheck { name: "kubelet".to_owned(), timeout, begins: Begins::OnDemand };
        let (name, catalog) = (Some("n1".to_owned()), Catalog::new(vec![check]));
        let query = Query::parse("check=kubelet", &catalog).unwrap();
        let mut app = App::of(Board::new(name, Policy::default(), catalog, &[], Box::new(|_| {})));
        Arc::get_mut(&mut app).unwrap().activate = Arc::new(|_| Box::pin(pending()));
        let began = tokio::time::Instant::now();
        app.wait_for_results(&query, app.now()).await;
        assert_eq!(began.elapsed().as_millis() / 10, 600);
    }
}
