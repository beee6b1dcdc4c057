//! Measured times and their statistics.

use std::time::Duration;

/// Times in the order of their measurement, in nanoseconds. A time is negative if the event came before its
/// reference point.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(Vec<i64>);

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.add_nanos(i64::try_from(latency.as_nanos()).unwrap_or(i64::MAX));
    }

    pub(crate) fn add_nanos(&mut self, nanos: i64) {
        self.0.push(nanos);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the quantile in microseconds: `share` (0.5, 0.99, …) of all times do not exceed it.
    pub(crate) fn micros(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let rank = (share * sorted.len() as f64).ceil() as usize;
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
        sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, |nanos| *nanos as f64 / 1_000.0)
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }
}

impl FromIterator<Latencies> for Latencies {
    fn from_iter<I: IntoIterator<Item = Latencies>>(all: I) -> Self {
        Self(all.into_iter().flat_map(|latencies| latencies.0).collect())
    }
}

/// Returns the median; for an even number of values, the mean of the two middle ones.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle.wrapping_sub(1)), sorted.get(middle)) {
        (Some(low), Some(high)) if sorted.len().is_multiple_of(2) => f64::midpoint(*low, *high),
        (_, Some(value)) => *value,
        _ => f64::NAN,
    }
}
