//! Clients that send requests without a pause, and count the results.

use crate::lab::{Lab, get_from, local};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const CLIENTS: u32 = 4;
/// More requests than the clients can send if each takes a millisecond.
const REQUESTS_A_SECOND: u32 = 1_000;

pub(crate) struct Traffic(Prober);

impl Traffic {
    /// Starts some clients, each with a new connection for each request.
    pub(crate) fn start(port: u16) -> Self {
        Self::to(local(port))
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::by(move || get_from(address))
    }

    /// Starts the same clients with another kind of request.
    pub(crate) fn by(ask: impl Fn() -> Result<(), String> + Clone + Send + 'static) -> Self {
        let ask = move |_| ask().map_or_else(Saw::Failed, |()| Saw::Answer(200, String::new()));
        Self(Prober::start(local(0), ask, REQUESTS_A_SECOND, CLIENTS))
    }

    /// Returns how many requests failed that were sent after this time.
    pub(crate) fn lost_since(&self, then: Instant) -> usize {
        self.0.failed().iter().filter(|probe| probe.sent > then).count()
    }

    /// Returns the time from then to the last failed request.
    pub(crate) fn back_after(&self, then: Instant) -> Duration {
        let probes = self.0.answered_since(then);
        let failed = |probe: &&Probe| matches!(probe.saw, Saw::Failed(_));
        let last = probes.iter().filter(failed).map(|probe| probe.answered).max().unwrap_or(then);
        last - then
    }

    pub(crate) fn answered(&self) -> usize {
        self.0.probes().len() - self.0.failed().len()
    }

    /// Stops the clients. Returns how many requests were answered, and the errors of the others.
    pub(crate) fn end(mut self) -> (usize, Vec<String>) {
        self.0.stop();
        (self.answered(), self.0.failed().iter().map(Probe::result).collect())
    }

    /// Stops the clients, and checks that each request was answered. Returns how many there were.
    pub(crate) fn none_lost(self, lab: &Lab) -> usize {
        let (answered, lost) = self.end();
        assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
        answered
    }
}
