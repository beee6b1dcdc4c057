//! Judges the dates of the agent's proof, which are exact: a date that is a millisecond too late is a
//! violation. `world.rs` calls it.

use crate::oracle::Judged;
use std::time::{Duration, Instant};

/// The longest time by which a list may be sent before a Service becomes stale, and answered afterwards: the
/// timeout of a list (`crates/node-watch/src/follow.rs`).
const SENT_BEFORE: Duration = Duration::from_secs(5);

/// The judge of recoveries from a stale cache.
#[derive(Debug, Default)]
pub(crate) struct ProofOracle {
    /// The last proof of the Node when its answers became stale.
    outdated: Option<LastProof>,
    /// The time at which the Service's answers became stale.
    service_since: Option<Instant>,
}

/// The date of the last proof, or `None` before the first one.
#[derive(Clone, Copy, Debug)]
struct LastProof(Option<Instant>);

impl ProofOracle {
    /// Judges how the Node became fresh again: by a consistent read that was sent after its last proof, and
    /// was answered.
    pub(crate) fn node(
        &mut self,
        judged: Judged,
        proof: Option<Instant>,
        read: Option<Instant>,
    ) -> Result<(), String> {
        match judged {
            Judged::Stale => self.outdated = Some(self.outdated.unwrap_or(LastProof(proof))),
            Judged::Either => {}
            Judged::Fresh => {
                if self.outdated.take().is_some_and(|LastProof(proof)| read <= proof) {
                    return Err("revived without a consistent read".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Judges how the Service became fresh again: by its list, or by a consistency check of the Node.
    pub(crate) fn service(&mut self, stale: bool, read: Option<Instant>) -> Result<(), String> {
        if stale {
            self.service_since = Some(self.service_since.unwrap_or_else(nodegate_clock::now));
        } else if let Some(since) = self.service_since.take()
            && read.is_none_or(|read| read + SENT_BEFORE < since)
        {
            return Err("a Service revived without a consistent read".to_owned());
        }
        Ok(())
    }
}
