//! The arrivals at the API server: connections and requests, in steps of a tenth of a second.

use nodegate_kube_sim::Sim;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub(crate) const STEP: Duration = Duration::from_millis(100);
/// The count ends after this time without an arrival.
const QUIET: Duration = Duration::from_secs(3);
const WIDTH: usize = 60;

/// The arrivals in each step.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    pub(crate) connections: Vec<u64>,
    pub(crate) requests: Vec<u64>,
}

impl Arrivals {
    /// Counts for at most `longest`, until `all_back` and then no arrival for `QUIET`.
    pub(crate) fn count(sim: &Sim, longest: Duration, all_back: impl Fn(u64) -> bool) -> Self {
        let (start, mut arrivals) = (Instant::now(), Self::default());
        let first = sim.counters().read();
        let (mut connections, mut requests) = (first.connections_accepted, first.total());
        let mut last_came = start;
        for step in 1.. {
            std::thread::sleep((start + STEP * step).saturating_duration_since(Instant::now()));
            let reading = sim.counters().read();
            let came = (reading.connections_accepted - connections, reading.total() - requests);
            (connections, requests) = (reading.connections_accepted, reading.total());
            arrivals.connections.push(came.0);
            arrivals.requests.push(came.1);
            if came != (0, 0) {
                last_came = Instant::now();
            }
            // Watches whose packets vanish count as open until the watchers notice.
            let noticed = arrivals.connections.iter().any(|connections| *connections > 0);
            let quiet = noticed && last_came.elapsed() > QUIET;
            if start.elapsed() > longest || (all_back(reading.watches) && quiet) {
                break;
            }
        }
        arrivals
    }

    /// Returns the largest share of all connections in two successive steps, in percent. Two steps, because a
    /// herd may arrive on the boundary between them.
    pub(crate) fn fullest(&self) -> f64 {
        let most = self.connections.windows(2).map(|pair| pair.iter().sum::<u64>()).max().unwrap_or_default();
        100.0 * most as f64 / self.connections.iter().sum::<u64>().max(1) as f64
    }

    /// Returns a bar for each step with an arrival.
    pub(crate) fn histogram(&self) -> String {
        let most = self.connections.iter().max().copied().unwrap_or(1).max(1);
        let mut text = format!("  {:>7} {:>8} {:>8}\n", "second", "connects", "requests");
        for (step, (connections, requests)) in self.connections.iter().zip(&self.requests).enumerate() {
            if (*connections, *requests) != (0, 0) {
                let bar = "#".repeat(*connections as usize * WIDTH / most as usize);
                let _ = writeln!(text, "  {:>7.1} {connections:>8} {requests:>8}  {bar}", step as f64 / 10.0);
            }
        }
        let total = |numbers: &[u64]| numbers.iter().sum::<u64>();
        let _ = writeln!(
            text,
            "  {} connections, {} requests; the fullest fifth of a second has {:.1} % of the connections",
            total(&self.connections),
            total(&self.requests),
            self.fullest()
        );
        text
    }
}
