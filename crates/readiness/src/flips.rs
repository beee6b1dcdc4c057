//! Changes of verdict; the last fifty are kept.

use crate::check::Verdict;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// The number of flips that are kept.
pub(crate) const REMEMBERED: usize = 50;

/// A change of verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// The time of the flip, in milliseconds since the epoch by the wall clock, which may have been set
    /// since.
    pub at_unix_ms: u64,
    /// The time since the flip in milliseconds, by the agent's own clock.
    pub age_ms: u64,
    /// The verdict before the flip.
    pub from: Verdict,
    /// The verdict after the flip.
    pub to: Verdict,
    /// The reason of the check that decides, `CacheStale` for failing open, `Recovered` for a pass.
    pub reason: Reason,
}

/// The reason of a flip to ready.
pub const RECOVERED: &str = "Recovered";
