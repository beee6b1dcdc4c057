//! Judges the dates that the agent gives its proof. They are exact, while the bounds of `law.rs` leave
//! seconds to the agent: a date that comes too late by a millisecond is a violation.

use crate::oracle::Judged;
use std::time::{Duration, Instant};

/// A list may be sent so long before a Service is stale, and answered afterwards: then it is given up
/// (`crates/node-watch/src/follow.rs`).
const SENT_BEFORE: Duration = Duration::from_secs(5);

/// What was stale when it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct ProofOracle {
    /// The proof of the Node that had become too old when its answers became stale.
    outdated: Option<LastProof>,
    /// When the Service's answers became stale.
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
