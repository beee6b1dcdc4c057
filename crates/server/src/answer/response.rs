//! A response, counted and ready, or one that is awaited.

use super::app::App;
use super::body::AnswerBody;
use crate::route::Route;
use futures::future::{Either, Ready, ready};
use http::Response;
use nodegate_readiness::Verdict;
use std::convert::Infallible;
use std::pin::Pin;

/// A response that is ready, or one that must be waited for. Only the latter is boxed.
pub type ResponseFuture = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

type Answered = Result<Response<AnswerBody>, Infallible>;

impl App {
    /// Counts the response and returns it as a future.
    pub(super) fn told(
        &self,
        route: Route,
        verdict: Option<Verdict>,
        response: Response<AnswerBody>,
    ) -> ResponseFuture {
        self.metrics.answered(route, response.status(), verdict);
        Either::Left(ready(Ok(response)))
    }
}
