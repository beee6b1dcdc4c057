//! Big answers: each representation is rendered at most once a second and shared by all requests.

use super::response_head::{HTML, JSON};
use super::slots::{Holder, Slot, Slots};
use bytes::Bytes;
use http::header::HeaderValue;
use nodegate_http::Format;
use nodegate_readiness::Moment;
use nodegate_readiness::moment::millis;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The default maximum age of a shared answer, and the maximum age of `/drain.json`, which programs poll.
const RENDER_EVERY: Duration = Duration::from_secs(1);
const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// The maximum number of big answers that are sent at a time.
pub(super) const MAX_SENT: usize = 8;
/// The maximum for one client or one IPv6 /64: a client that reads slowly leaves slots to others.
const MAX_EACH: usize = 4;
/// The time that one answer may take. After it, the agent cuts off a client that reads a few bytes every few
/// seconds.
const SENT_WITHIN: Duration = Duration::from_secs(30);

/// One form of a big answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    Status {
        pretty: bool,
    },
    Metrics(Format),
    Page {
        refreshes: bool,
    },
    /// `/drain.json`. It is small, so it needs neither a slot nor a thread.
    Drain,
}

impl Representation {
    const ALL: [Self; 7] = [
        Self::Status { pretty: false },
        Self::Status { pretty: true },
        Self::Metrics(Format::Prometheus),
        Self::Metrics(Format::OpenMetrics),
        Self::Page { refreshes: false },
        Self::Page { refreshes: true },
        Self::Drain,
    ];

    pub(super) fn is_page(self) -> bool {
        matches!(self, Self::Page { .. })
    }

    pub(super) fn format(self) -> &'static HeaderValue {
        match self {
            Self::Status { .. } | Self::Drain => &JSON,
            Self::Metrics(format) => format.content_type(),
            Self::Page { .. } => &HTML,
        }
    }
}

pub(super) struct SharedAnswers {
    /// In milliseconds.
    every: AtomicU64,
    rendered: [(Representation, Mutex<Option<Rendered>>); Representation::ALL.len()],
    slots: Arc<Slots>,
}

struct Rendered {
    at: Moment,
    bytes: Bytes,
}

impl Default for SharedAnswers {
    fn default() -> Self {
        let rendered = Representation::ALL.map(|which| (which, Mutex::default()));
        Self { every: millis(RENDER_EVERY).into(), rendered, slots: Arc::default() }
    }
}

impl SharedAnswers {
    /// Sets the maximum age of a shared answer.
    pub(super) fn set_interval(&self, every: Duration) {
        self.every.store(millis(every), Ordering::Relaxed);
    }

    /// Takes a slot for an answer to this client, with the time at which it ends; `None` if the client must try
    /// again later. One client on loopback has a slot beside the others: a starting agent must always be able to ask
    /// the agent that it replaces.
    pub(super) fn slot(&self, client: IpAddr) -> Option<(Slot, Instant)> {
        let extra = client.to_canonical().is_loopback().then(|| self.slots.take(Holder::Node, 1, 1));
        let slot = extra.flatten().or_else(|| self.slots.take(Holder::other(client), MAX_SENT, MAX_EACH))?;
        Some((slot, nodegate_clock::now() + SENT_WITHIN))
    }

    /// Returns the latest rendering if it is recent and shows the change at `changed`, and if no other is being made.
    pub(super) fn latest(&self, which: Representation, changed: Moment, now: Moment) -> Option<Bytes> {
        let rendered = self.buffer(which)?.try_lock().ok()?;
        self.recent(rendered.as_ref(), which, changed, now)
    }

    /// Returns the latest rendering, or renders again if it is too old, or older than the change at `changed`. Concurrent
    /// requests wait for the same rendering.
    pub(super) fn get<E>(
        &self,
        which: Representation,
        changed: Moment,
        now: Moment,
        render: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let Some(rendered) = self.buffer(which) else { return render().map(Bytes::from) };
        let mut rendered = rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.recent(rendered.as_ref(), which, changed, now) {
            return Ok(bytes);
        }
        // Drops spare capacity: the buffer lives until the last client has received it.
        let bytes = Bytes::from(render()?.into_boxed_slice());
        *rendered = Some(Rendered { at: now, bytes: bytes.clone() });
        Ok(bytes)
    }

    fn buffer(&self, which: Representation) -> Option<&Mutex<Option<Rendered>>> {
        self.rendered.iter().find(|(own, _)| *own == which).map(|(_, rendered)| rendered)
    }

    fn recent(
        &self,
        rendered: Option<&Rendered>,
        which: Representation,
        changed: Moment,
        now: Moment,
    ) -> Option<Bytes> {
        let every = Duration::from_millis(self.every.load(Ordering::Relaxed));
        let every = if which == Representation::Drain { DRAIN_EVERY } else { every };
        let recent = rendered.filter(|rendered| now.since(rendered.at) < every && rendered.at > changed)?;
        Some(recent.bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn a_second_has_one_rendering() {
        let shared = SharedAnswers::default();
        let which = Representation::Status { pretty: false };
        let mut count = 0_u8;
        let mut at = |ms| {
            let now = Moment::from_start(Duration::from_millis(ms));
            let rendered = shared.get(which, Moment::default(), now, || {
                count += 1;
                Ok::<_, Infallible>(vec![count])
            });
            rendered.unwrap()[0]
        };
        assert_eq!([at(5000), at(5001), at(5999), at(6000), at(6999), at(7000)], [1, 1, 1, 2, 2, 3]);
        // This caller read the clock earlier than the caller that rendered.
        assert_eq!(at(6999), 3);
    }

    #[test]
    fn a_rendering_from_before_a_change_does_not_count() {
        let (shared, which) = (SharedAnswers::default(), Representation::Status { pretty: false });
        let at = |ms| Moment::from_start(Duration::from_millis(ms));
        let get = |changed, now, byte| {
            shared.get(which, at(changed), at(now), || Ok::<_, Infallible>(vec![byte])).unwrap()[0]
        };
        assert_eq!([get(1, 5000, 1), get(1, 5001, 2), get(5002, 5003, 3), get(5002, 5004, 4)], [1, 1, 3, 3]);
        assert_eq!(get(5003, 5005, 5), 5, "the change may have come after it");
        assert!(shared.latest(which, at(5005), at(5006)).is_none());
    }

    #[test]
    fn a_failed_rendering_is_not_kept() {
        let shared = SharedAnswers::default();
        let which = Representation::Metrics(Format::Prometheus);
        let never = Moment::default();
        assert!(shared.get(which, never, never, || Err(())).is_err());
        assert_eq!(shared.get(which, never, never, || Ok::<_, ()>(vec![1])).unwrap(), [1].as_slice());
    }

    #[test]
    fn eight_are_sent_at_a_time_four_to_one_client_and_one_more_to_a_successor() {
        let shared = SharedAnswers::default();
        let take = |client: &str| shared.slot(client.parse().unwrap());
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
