//! `/health` and `/nodecheck`: the verdict. The agent answers at once, unless the checks of the request must
//! run first.

use super::body::AnswerBody;
use super::response_head::{Answered, Answering, JSON, ResponseHead};
use super::verdicts::{Asker, Verdicts};
use crate::probers::RequestTarget;
use crate::route::Route;
use futures::FutureExt;
use http::{Response, StatusCode, Uri};
use nodegate_readiness::{Lookup, Moment, Reply, Verdict};
use std::sync::Arc;

impl Verdicts {
    /// Answers from the rendered answers if possible (the hot path), else after the first results of the
    /// checks.
    pub(super) fn health(
        self: &Arc<Self>,
        head: ResponseHead,
        route: Route,
        asker: Asker,
        uri: &Uri,
        now: Moment,
    ) -> Answering {
        match self.reader.board.lookup(uri.query().unwrap_or_default(), now) {
            Lookup::Hit(reply) => Answering::Now(self.tell(head, route, &asker, uri, now, reply)),
            Lookup::Bad(bad) => verdict_response(head, route, Reply::error(400, &bad)).into(),
            Lookup::Miss(query) => {
                let (this, uri) = (Arc::clone(self), uri.clone());
                let answered = async move {
                    this.wait_for_results(&query, now).await;
                    let now = this.reader.now();
                    let reply = this.reader.board.answer(uri.query().unwrap_or_default(), &query, now);
                    this.tell(head, route, &asker, &uri, now, reply)
                };
                Answering::Later(answered.boxed())
            }
        }
    }

    /// Returns the response with this reply, and records it.
    fn tell(
        &self,
        head: ResponseHead,
        route: Route,
        asker: &Asker,
        uri: &Uri,
        now: Moment,
        reply: Reply,
    ) -> Answered {
        if reply.fails_open {
            self.metrics.fail_open.inc();
        }
        let verdict = reply.verdict;
        let response = verdict_response(head, route, reply);
        let target = RequestTarget::Http { path: uri.path(), query: uri.query().unwrap_or_default() };
        self.record(asker, target, Some(response.status().as_u16()), verdict, now);
        (response, verdict)
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
    use crate::answer::App;
    use nodegate_readiness::{Board, Catalog, LocalCheck, Policy, Query, StartMode};
    use std::future::pending;
    use std::sync::Arc;
    use std::time::Duration;

    /// nodegate-local-checks waits as long for a result.
    #[tokio::test(start_paused = true)]
    async fn a_first_result_may_come_a_second_after_the_timeout() {
        let timeout = Duration::from_secs(5);
        let check = LocalCheck { name: "kubelet".to_owned(), timeout, begins: StartMode::OnDemand };
        let (name, catalog) = (Some("n1".to_owned()), Catalog::new(vec![check]));
        let query = Query::parse("check=kubelet", &catalog).unwrap();
        let board = Board::new(name, Policy::default(), catalog, &[], Box::new(|_| {}));
        let reader = App::of(board).reader.clone();
        let verdicts = Verdicts::new(reader, Arc::default(), Arc::new(|_| Box::pin(pending())));
        let began = tokio::time::Instant::now();
        verdicts.wait_for_results(&query, verdicts.reader.now()).await;
        assert_eq!(began.elapsed().as_millis() / 10, 600);
    }
}
