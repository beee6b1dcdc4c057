//! `/drain.json`: small, and rendered at most ten times a second, so that many clients can poll it.

use super::app::App;
use super::body::AnswerBody;
use super::response_head::{BodyFormat, ResponseHead};
use bytes::Bytes;
use http::{Response, StatusCode};
use nodegate_readiness::Moment;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time for which all requests share one rendering.
const SHARED_FOR: Duration = Duration::from_millis(100);

/// The latest rendering.
#[derive(Default)]
pub(super) struct DrainJson(Mutex<Option<(Moment, Bytes)>>);

impl App {
    /// Answers `/drain.json`. No name or number from a client can make the answer longer than 2 KiB.
    pub(super) fn drain_json(&self, head: ResponseHead, now: Moment) -> Response<AnswerBody> {
        let mut latest = self.drain_json.0.lock().unwrap_or_else(PoisonError::into_inner);
        let body = match &*latest {
            Some((at, body)) if now.since(*at) < SHARED_FOR => body.clone(),
            _ => {
                let body = Bytes::from(self.status(now).drain_summary().to_json());
                *latest = Some((now, body.clone()));
                body
            }
        };
        drop(latest);
        head.finish(StatusCode::OK, BodyFormat::Json, body)
    }
}
