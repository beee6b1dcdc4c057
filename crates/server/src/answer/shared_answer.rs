//! Big answers: each representation is rendered at most once a second and shared by all requests.

use super::response_head::BodyFormat;
use super::response_slots::{ResponseSlot, ResponseSlots};
use bytes::Bytes;
use nodegate_http::Format;
use nodegate_readiness::Moment;
use std::array;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The default maximum age of a shared answer, and the maximum age of `/drain.json`, which programs poll.
const RENDER_EVERY: Duration = Duration::from_secs(1);
const DRAIN_EVERY: Duration = Duration::from_millis(100);

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
    const COUNT: usize = 7;

    pub(super) fn is_page(self) -> bool {
        matches!(self, Self::Page { .. })
    }

    pub(super) fn format(self) -> BodyFormat {
        match self {
            Self::Status { .. } | Self::Drain => BodyFormat::Json,
            Self::Metrics(format) => BodyFormat::Metrics(format),
            Self::Page { .. } => BodyFormat::Html,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Status { pretty } => usize::from(pretty),
            Self::Metrics(Format::Prometheus) => 2,
            Self::Metrics(Format::OpenMetrics) => 3,
            Self::Page { refreshes } => 4 + usize::from(refreshes),
            Self::Drain => 6,
        }
    }
}

pub(super) struct SharedAnswers {
    every: Duration,
    rendered: [Mutex<Option<Rendered>>; Representation::COUNT],
    slots: ResponseSlots,
}

struct Rendered {
    at: Moment,
    bytes: Bytes,
}

impl Default for SharedAnswers {
    fn default() -> Self {
        let rendered = array::from_fn(|_| Mutex::default());
        Self { every: RENDER_EVERY, rendered, slots: ResponseSlots::default() }
    }
}

impl SharedAnswers {
    /// Sets the maximum age of a shared answer.
    pub(super) fn set_interval(&mut self, every: Duration) {
        self.every = every;
    }

    /// Takes a slot for an answer to this client; `None` if the client must try again later.
    pub(super) fn slot(&self, client: IpAddr) -> Option<ResponseSlot> {
        self.slots.take(client)
    }

    /// Returns the latest rendering if it is recent, and if no other is being made.
    pub(super) fn latest(&self, which: Representation, now: Moment) -> Option<Bytes> {
        let rendered = self.rendered.get(which.index())?.try_lock().ok()?;
        self.recent(rendered.as_ref(), which, now)
    }

    /// Returns the latest rendering, or renders again if it is too old. Concurrent requests wait for the same
    /// rendering.
    pub(super) fn get<E>(
        &self,
        which: Representation,
        now: Moment,
        render: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Bytes, E> {
        let Some(rendered) = self.rendered.get(which.index()) else { return render().map(Bytes::from) };
        let mut rendered = rendered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = self.recent(rendered.as_ref(), which, now) {
            return Ok(bytes);
        }
        // Drops spare capacity: the buffer lives until the last client has received it.
        let bytes = Bytes::from(render()?.into_boxed_slice());
        *rendered = Some(Rendered { at: now, bytes: bytes.clone() });
        Ok(bytes)
    }

    fn recent(&self, rendered: Option<&Rendered>, which: Representation, now: Moment) -> Option<Bytes> {
        let every = if which == Representation::Drain { DRAIN_EVERY } else { self.every };
        let recent = rendered.filter(|rendered| now.since(rendered.at) < every)?;
        Some(recent.bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    #[test]
    fn each_representation_has_a_buffer_of_its_own() {
        use Representation::{Drain, Metrics, Page, Status};
        let all = [
            Status { pretty: false },
            Status { pretty: true },
            Metrics(Format::Prometheus),
            Metrics(Format::OpenMetrics),
            Page { refreshes: false },
            Page { refreshes: true },
            Drain,
        ];
        let indexes: BTreeSet<usize> = all.iter().map(|which| which.index()).collect();
        assert!(indexes.into_iter().eq(0..Representation::COUNT));
    }

    #[test]
    fn a_second_has_one_rendering() {
        let shared = SharedAnswers::default();
        let which = Representation::Status { pretty: false };
        let mut count = 0_u8;
        let mut at = |ms| {
            let now = Moment::from_start(Duration::from_millis(ms));
            let rendered = shared.get(which, now, || {
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
    fn a_failed_rendering_is_not_kept() {
        let shared = SharedAnswers::default();
        let which = Representation::Metrics(Format::Prometheus);
        assert!(shared.get(which, Moment::default(), || Err(())).is_err());
        assert_eq!(shared.get(which, Moment::default(), || Ok::<_, ()>(vec![1])).unwrap(), [1].as_slice());
    }
}
