//! The big answers, for people, Prometheus and programs: `/status.json`, `/metrics`, the page and `/drain.json`.

use super::body::AnswerBody;
use super::response_head::ResponseHead;
use super::shared_answer::{MAX_SENT, Representation, SharedAnswers};
use super::slots::Slot;
use crate::page;
use crate::reading::Reader;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use nodegate_agent_api::DrainSummary;
use nodegate_readiness::Moment;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

/// What the big answers are rendered from, and their latest renderings.
pub(super) struct BigAnswers {
    pub(super) reader: Arc<Reader>,
    pub(super) registry: Registry,
    pub(super) shared: SharedAnswers,
}

impl BigAnswers {
    /// Answers with the latest rendering. If it is too old and `elsewhere`, a thread of the pool renders a new
    /// one, so that no probe waits for it. Only the slots of big answers bound the number of these threads, so
    /// a small answer is rendered here.
    pub(super) async fn answer(
        self: Arc<Self>,
        mut head: ResponseHead,
        which: Representation,
        slot: Option<(Slot, Instant)>,
        now: Moment,
        elsewhere: bool,
    ) -> Response<AnswerBody> {
        if which.is_page() {
            head.header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
            head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            head.header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
        let changed = self.reader.board.last_change();
        let this = Arc::clone(&self);
        let render = move || this.shared.get(which, changed, now, || this.render(which, now));
        let rendered = match self.shared.latest(which, changed, now) {
            Some(bytes) => Ok(bytes),
            None if !elsewhere || which == Representation::Drain => render(),
            None => {
                let rendered = tokio::task::spawn_blocking(render).await;
                rendered.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        match rendered {
            Ok(bytes) => head.finish(StatusCode::OK, which.format(), AnswerBody::limited(bytes, slot)),
            Err(error) => head.text(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }

    fn render(&self, which: Representation, now: Moment) -> Result<Vec<u8>, String> {
        match which {
            Representation::Metrics(format) => {
                format.encode(&self.registry).map(String::into_bytes).map_err(|error| error.to_string())
            }
            Representation::Drain => Ok(DrainSummary::of(&self.reader.read(now).status, None).to_json()),
            Representation::Status { pretty } => {
                let status = self.reader.read(now).status;
                let json =
                    if pretty { serde_json::to_vec_pretty(&status) } else { serde_json::to_vec(&status) };
                let mut json = json.map_err(|error| error.to_string())?;
                json.push(b'\n');
                Ok(json)
            }
            Representation::Page { refreshes } => {
                let wall = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
                let page = page::render(&self.reader.read(now).status, wall, refreshes);
                page.map(String::into_bytes).map_err(|error| error.to_string())
            }
        }
    }
}

/// Returns the 503 for a client that gets no slot for its big answer.
pub(super) fn too_many(mut head: ResponseHead) -> Response<AnswerBody> {
    head.header(RETRY_AFTER, HeaderValue::from_static("1"));
    let busy = format!("up to {MAX_SENT} answers of this kind are sent at a time; try again in a second\n");
    head.text(StatusCode::SERVICE_UNAVAILABLE, busy)
}
