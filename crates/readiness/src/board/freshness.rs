//! How far the Node's cache can be trusted.

use super::Board;
use crate::moment::Moment;
use std::time::Duration;

/// Whether the cache follows the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Time since the last proof; `None` if there was none since start.
    pub age: Option<Duration>,
    /// Whether the cache must not be trusted.
    pub stale: bool,
}

impl Board {
    /// How fresh the cache is.
    pub fn freshness(&self, now: Moment) -> Freshness {
        let age = self.proof.get().map(|proof| now.since(proof));
        Freshness { age, stale: age.is_none_or(|age| age > self.policy.stale_after) }
    }

    /// When there last was proof that the cache follows the API server.
    pub fn last_proof(&self) -> Option<Moment> {
        self.proof.get()
    }

    /// There is proof that the cache followed the API server at `now`.
    pub fn prove(&self, now: Moment) {
        self.proof.advance(now);
    }
}
