//! Clients that never stop asking, and count what they get.

use crate::lab::{get_from, local};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const CLIENTS: u32 = 4;
/// More than they can send where requests take a millisecond.
const REQUESTS_A_SECOND: u32 = 1_000;

pub(crate) struct Traffic(Prober);

impl Traffic {
    /// Some clients, each with a new connection for each request.
    pub(crate) fn start(port: u16) -> Self {
        Self::to(local(port))
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::by(move || get_from(address))
    }

    /// The same by another way to ask.
    pub(crate) fn by(ask: impl Fn() -> Result<(), String> + Clone + Send + 'static) -> Self {
        let ask = move |_| ask().map_or_else(Saw::Failed, |()| Saw::Answer(200, String::new()));
        Self(Prober::start(local(0), ask, REQUESTS_A_SECOND, CLIENTS))
    }

    /// How many requests failed that were sent after that.
    pub(crate) fn lost_since(&self, then: Instant) -> usize {
        self.0.failed().iter().filter(|probe| probe.sent > then).count()
    }

    /// How long after that the last request failed.
    pub(crate) fn back_after(&self, then: Instant) -> Duration {
        let probes = self.0.answered_since(then);
        let failed = |probe: &&Probe| matches!(probe.saw, Saw::Failed(_));
        let last = probes.iter().filter(failed).map(|probe| probe.answered).max().unwrap_or(then);
        last - then
    }

    pub(crate) fn answered(&self) -> usize {
        self.0.probes().len() - self.0.failed().len()
    }

    /// Ends it; gives how many requests were answered, and what became of the others.
    pub(crate) fn end(mut self) -> (usize, Vec<String>) {
        self.0.stop();
        (self.answered(), self.0.failed().iter().map(Probe::told).collect())
    }
}
