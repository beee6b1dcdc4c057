//! The freshness of the Node's cache.

use super::Board;
use crate::moment::Moment;
use std::time::Duration;

/// Whether the cache follows the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Time since the last proof, or that of the facts that were taken over at the start; `None` if there was none.
    pub age: Option<Duration>,
    /// Whether the cache must not be trusted.
    pub stale: bool,
}

impl Board {
    /// How fresh the cache is.
    pub fn freshness(&self, now: Moment) -> Freshness {
        let Some(proof) = self.proof.get() else {
            return Freshness { age: self.taken_over.get().map(|taken| taken.age(now)), stale: true };
        };
        let age = now.since(proof);
        Freshness { age: Some(age), stale: age > self.policy.stale_after }
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
