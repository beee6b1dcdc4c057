//! The last known facts that an agent hands to its successor, in `/status.json` or in a file. The successor reads them
//! as a [`Predecessor`](crate::Predecessor).

use crate::age::Age;
use crate::facts::{Node, NodeFacts};
use crate::moment::millis;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The format of the facts that are handed on. It changes whenever another agent could misread them.
pub const FACTS_FORMAT: u32 = 2;

/// The largest correction of a clock that is accepted. A date further ahead means that the writer or the
/// reader has a wrong clock.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// The facts that an agent knows of its node, each field as in `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavedFacts {
    /// The time of writing, to which the ages refer. An answer over HTTP has none: its ages refer to the
    /// present.
    #[serde(skip_serializing_if = "Option::is_none")]
    written_at_unix_ms: Option<u64>,
    node: Option<String>,
    facts_format: u32,
    cache: CacheAge,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_exists: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<NodeFacts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    services: Vec<SavedService>,
}

/// The part of the cache's status that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheAge {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) age_ms: Option<u64>,
    /// True if the agent no longer trusted its cache. Only a running agent writes this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stale: Option<bool>,
}

/// The ready endpoints of a watched Service on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedService {
    /// The Service as `<namespace>/<name>`.
    pub service: String,
    /// Their number.
    pub local_endpoints: usize,
}

/// The last known facts of a node, for a board without facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFacts {
    /// The Node, which is never [`Node::Unknown`].
    pub node: Node,
    /// The time since these facts were proved.
    pub age: Duration,
    /// The Services that were watched.
    pub services: Vec<SavedService>,
}

impl SavedFacts {
    /// Creates a memory of a node's facts, with the time since they were proved.
    pub(crate) fn new(
        name: Option<&str>,
        node: &Node,
        age: Option<Duration>,
        services: Vec<SavedService>,
    ) -> Self {
        Self {
            written_at_unix_ms: None,
            node: name.map(str::to_owned),
            facts_format: FACTS_FORMAT,
            cache: CacheAge { age_ms: age.map(millis), stale: None },
            node_exists: node.exists(),
            facts: node.facts().cloned(),
            services,
        }
    }

    /// Returns a copy that is dated `wall`.
    #[must_use]
    pub fn written_at(self, wall: SystemTime) -> Self {
        Self { written_at_unix_ms: Some(millis(since_epoch(wall))), ..self }
    }

    /// Returns true if there are facts to hand on.
    pub fn knows_something(&self) -> bool {
        self.node_exists.is_some() && self.cache.age_ms.is_some()
    }

    /// Returns true if both hold the same facts.
    pub fn same_facts(&self, other: &Self) -> bool {
        let undated = |memory: &Self| Self {
            written_at_unix_ms: None,
            cache: CacheAge { age_ms: None, stale: None },
            ..memory.clone()
        };
        undated(self) == undated(other)
    }
}

/// Returns the time since a file was written. The error says that it comes from the future.
pub(crate) fn elapsed(unix_ms: u64, wall: SystemTime) -> Result<Duration, String> {
    let (then, now) = (Duration::from_millis(unix_ms), since_epoch(wall));
    match then.checked_sub(now) {
        Some(ahead) if ahead > CLOCKS_DIFFER_BY => {
            Err(format!("it was written {} in the future", Age::from(ahead)))
        }
        _ => Ok(now.saturating_sub(then)),
    }
}

/// Returns the time since 1970; zero for a clock before that.
pub(crate) fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}
