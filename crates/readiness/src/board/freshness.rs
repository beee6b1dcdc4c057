//! The freshness of the Node's cache.

use super::Board;
use crate::moment::Moment;
use std::sync::Arc;
use std::time::Duration;

/// The freshness of the cache: its age, and the judgement on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The time since the last proof, or the age of the facts taken over at the start; `None` if there is
    /// neither.
    pub age: Option<Duration>,
    /// True if the cache must not be trusted.
    pub stale: bool,
}

impl Board {
    /// Returns the freshness of the cache.
    pub fn freshness(&self, now: Moment) -> Freshness {
        let Some(proof) = self.proof.get() else {
            return Freshness { age: self.taken_over.get().map(|taken| taken.age(now)), stale: true };
        };
        let age = now.since(proof);
        Freshness { age: Some(age), stale: age > self.policy.stale_after }
    }

    /// Returns the date of the last proof that the cache matched etcd.
    pub fn last_proof(&self) -> Option<Moment> {
        self.proof.get()
    }

    /// Records proof that the cache matched etcd at `now`, the date of the proof.
    pub fn prove(&self, now: Moment) {
        // No view of the board has proof from before and after.
        let _guard = self.write();
        self.proof.advance(now);
        self.trouble.store(None);
    }

    /// Records why the API server gives no proof; the next proof ends it.
    pub fn set_trouble(&self, trouble: String) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// Returns why the API server gives no proof; `None` if it does, or if that is not known.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }
}
