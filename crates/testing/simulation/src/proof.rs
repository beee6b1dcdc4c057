//! Judges the dates that the agent gives its proof. They are exact, while the bounds of `law.rs` leave seconds to the agent:
//! a date that comes too late by a millisecond is a violation.

use crate::oracle::Judged;
use std::time::{Duration, Instant};

/// A list may be sent so long before a Service is stale, and answered afterwards: then it is given up
/// (`crates/node-watch/src/follow.rs`).
const SENT_BEFORE: Duration = Duration::from_secs(5);

/// What was stale when it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct ProofOracle {
    /// The last proof of the Node before its answers became stale.
    before: Option<Option<Instant>>,
    /// When the Service's answers became stale.
    service_since: Option<Instant>,
}

impl ProofOracle {
    /// Judges how the Node became fresh again: by a consistent read that was sent after its last proof, and was answered.
    pub(crate) fn node(
        &mut self,
        judged: Judged,
        proof: Option<Instant>,
        read: Option<Instant>,
    ) -> Result<(), String> {
        match judged {
            Judged::Stale => self.before = Some(self.before.unwrap_or(proof)),
            Judged::Either => {}
            Judged::Fresh => {
                if self.before.take().is_some_and(|before| read <= before) {
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
