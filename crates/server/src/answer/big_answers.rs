//! The big answers, for people, Prometheus and programs: `/status.json`, `/metrics`, the page and `/drain.json`. Each is
//! rendered at most once a second (`/drain.json` ten times) and after changes of the board, and shared by all requests.

use super::response::{AnswerBody, HTML, JSON, ResponseHead};
use super::slots::{Holder, Slot, Slots};
use crate::page;
use crate::reading::Reader;
use bytes::Bytes;
use futures::FutureExt;
use http::StatusCode;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use nodegate_agent_api::DrainSummary;
use nodegate_http::{Answer, Client, Format};
use nodegate_readiness::Moment;
use nodegate_readiness::moment::since_epoch;
use prometheus_client::registry::Registry;
use std::error::Error;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The default maximum age of a rendering, and the maximum age of `/drain.json`, which programs poll.
const RENDER_EVERY: Duration = Duration::from_secs(1);
const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// The maximum number of big answers that are sent at a time.
const MAX_SENT: usize = 8;
/// The maximum for one client or one IPv6 /64: a client that reads slowly leaves slots to others.
const MAX_EACH: usize = 4;
/// The time that one answer may take. After it, the agent cuts off a client that reads a few bytes every few
/// seconds.
const SENT_WITHIN: Duration = Duration::from_secs(30);

/// One form of a big answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    Status,
    Metrics,
    OpenMetrics,
    Page,
    /// `/drain.json`. It is small, so it needs neither a slot nor a thread.
    Drain,
}

/// What the big answers are rendered from, and their latest renderings.
pub(super) struct BigAnswers {
    reader: Arc<Reader>,
    registry: Registry,
    /// The maximum age of a rendering; [`RENDER_EVERY`] if it is not set.
    pub(super) every: OnceLock<Duration>,
    /// By their representations.
    rendered: [Mutex<Rendered>; Representation::Drain as usize + 1],
    slots: Arc<Slots>,
}

/// The latest rendering, and the time of it.
type Rendered = Option<(Moment, Bytes)>;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

impl BigAnswers {
    pub(super) fn new(reader: Arc<Reader>, registry: Registry) -> Self {
        let (every, rendered, slots) = Default::default();
        Self { reader, registry, every, rendered, slots }
    }

    /// Takes a slot for an answer to this client, with the time at which it ends; `None` if the client must try
    /// again later. One client on loopback has a slot beside the others: a starting agent must always be able to ask
    /// the agent that it replaces.
    fn slot(&self, client: IpAddr) -> Option<(Slot, Instant)> {
        let extra = client.to_canonical().is_loopback().then(|| self.slots.take(Holder::Node, 1, 1));
        let slot = extra.flatten().or_else(|| self.slots.take(Holder::other(client), MAX_SENT, MAX_EACH))?;
        Some((slot, nodegate_clock::now() + SENT_WITHIN))
    }

    /// Answers with the latest rendering. If it is too old and `elsewhere`, a thread of the pool renders a new
    /// one, so that no probe waits for it. Only the slots of big answers bound the number of these threads, so
    /// a small answer is rendered here.
    pub(super) fn answer(
        self: &Arc<Self>,
        mut head: ResponseHead,
        which: Representation,
        client: Client,
        now: Moment,
        elsewhere: bool,
    ) -> Answer<AnswerBody> {
        let is_small = which == Representation::Drain;
        let slot = if is_small { None } else { self.slot(client.address) };
        if slot.is_none() && !is_small {
            head.header(RETRY_AFTER, HeaderValue::from_static("1"));
            let busy =
                format!("up to {MAX_SENT} answers of this kind are sent at a time; try again in a second\n");
            return Answer::Now(head.text(StatusCode::SERVICE_UNAVAILABLE, busy));
        }
        let format = match which {
            Representation::Status | Representation::Drain => &JSON,
            Representation::Metrics => Format::Prometheus.content_type(),
            Representation::OpenMetrics => Format::OpenMetrics.content_type(),
            Representation::Page => {
                head.header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
                head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
                head.header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
                &HTML
            }
        };
        let this = Arc::clone(self);
        let answered = async move {
            let rendered = match this.latest(which, now) {
                Some(bytes) => Ok(bytes),
                None if !elsewhere || is_small => this.rendering(which, now),
                None => {
                    let render = move || this.rendering(which, now);
                    tokio::task::spawn_blocking(render).await.unwrap_or_else(|error| Err(error.into()))
                }
            };
            match rendered {
                Ok(left) => head.finish(StatusCode::OK, format, AnswerBody { left, slot }),
                Err(error) => head.text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            }
        };
        Answer::Later(answered.boxed())
    }

    /// Returns the latest rendering if it is recent enough, and if no other is being made.
    fn latest(&self, which: Representation, now: Moment) -> Option<Bytes> {
        let rendered = self.rendered.get(which as usize)?;
        self.recent(&*rendered.try_lock().ok()?, which, now)
    }

    /// Returns the latest rendering, or renders again if it is too old. Concurrent requests wait for the same
    /// rendering.
    fn rendering(&self, which: Representation, now: Moment) -> Result<Bytes> {
        let Some(rendered) = self.rendered.get(which as usize) else {
            return Ok(self.render(which, now)?.into());
        };
        let mut rendered = rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.recent(&rendered, which, now) {
            return Ok(bytes);
        }
        // Drops spare capacity: the buffer lives until the last client has received it.
        let bytes = Bytes::from(self.render(which, now)?.into_boxed_slice());
        *rendered = Some((now, bytes.clone()));
        Ok(bytes)
    }

    /// Returns a rendering unless it is too old, or older than the latest change of the board.
    fn recent(&self, rendered: &Rendered, which: Representation, now: Moment) -> Option<Bytes> {
        let every = self.every.get().copied().unwrap_or(RENDER_EVERY);
        let every = if which == Representation::Drain { DRAIN_EVERY } else { every };
        let (at, bytes) = rendered.as_ref()?;
        (now.since(*at) < every && *at > self.reader.board.last_change()).then(|| bytes.clone())
    }

    fn render(&self, which: Representation, now: Moment) -> Result<Vec<u8>> {
        let status = || self.reader.read(now).status;
        Ok(match which {
            Representation::Metrics => Format::Prometheus.encode(&self.registry)?.into_bytes(),
            Representation::OpenMetrics => Format::OpenMetrics.encode(&self.registry)?.into_bytes(),
            Representation::Drain => DrainSummary::of(&status(), None).to_json(),
            Representation::Status => {
                let mut json = serde_json::to_vec(&status())?;
                json.push(b'\n');
                json
            }
            Representation::Page => {
                page::render(&status(), since_epoch(nodegate_clock::wall()))?.into_bytes()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use nodegate_readiness::Catalog;

    fn at(ms: u64) -> Moment {
        Moment::from_start(Duration::from_millis(ms))
    }

    #[test]
    fn a_second_has_one_rendering_unless_the_board_changes() {
        let app = App::of(Catalog::default());
        let rendered_at = |ms| {
            let json = app.big.rendering(Representation::Status, at(ms)).unwrap();
            serde_json::from_slice::<serde_json::Value>(&json).unwrap()["uptime_ms"].as_u64().unwrap()
        };
        let shown = [5000, 5001, 5999, 6000, 6999, 7000].map(rendered_at);
        assert_eq!(shown, [5000, 5000, 5000, 6000, 6000, 7000]);
        assert_eq!(rendered_at(6999), 7000, "this caller read the clock earlier than the one that rendered");
        app.reader.board.open(at(7100), nodegate_clock::wall());
        assert!(app.big.latest(Representation::Status, at(7101)).is_none());
        assert_eq!([7101, 7102].map(rendered_at), [7101, 7101]);
    }

    #[test]
    fn eight_are_sent_at_a_time_four_to_one_client_and_one_more_to_a_successor() {
        let app = App::of(Catalog::default());
        let take = |client: &str| app.big.slot(client.parse().unwrap());
        let mut held: Vec<_> = (0..4).map(|_| take("10.0.0.1").unwrap()).collect();
        assert!(take("10.0.0.1").is_none() && take("::ffff:10.0.0.1").is_none());
        held.extend((1..5).map(|host| take(&format!("fd00::{host}")).unwrap()));
        assert!(take("fd00:0:0:1::1").is_none(), "all are taken");
        let successor = take("127.0.0.1").unwrap();
        assert!(take("::1").is_none(), "there is one");
        drop((successor, held.pop()));
        assert!(take("10.0.0.1").is_none(), "it has four");
        assert!(take("fd00:0:0:1::1").is_some() && take("::ffff:127.0.0.1").is_some());
    }
}
