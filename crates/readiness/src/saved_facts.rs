//! The last known facts that an agent hands to its successor, in `/status.json` or in a file.

use crate::age::Age;
use crate::facts::{Node, NodeFacts};
use crate::moment::millis;
use crate::reason::clean;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The format of the facts that are handed on. It changes whenever another agent could misread them.
pub const FACTS_FORMAT: u32 = 2;

/// The largest correction of a clock that is accepted. A date further ahead means that the writer or the
/// reader has a wrong clock.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// The facts that an agent knows of its node, each field as in `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    services: Vec<SavedService>,
}

/// The part of the cache's status that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CacheAge {
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    /// True if the agent no longer trusted its cache. Only a running agent writes this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
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

/// The error for facts or probers that can't be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(pub(crate) String);

impl From<serde_json::Error> for Unusable {
    /// Leaves the parser's message out: it could be as long as the text that it read.
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self(format!("it is not what an agent writes (line {line}, column {column})"))
    }
}

impl Unusable {
    /// Returns the error for the facts or the probers of another node.
    pub(crate) fn other_node(name: String) -> Self {
        Self(format!("it is about the node {:?}", clean(name)))
    }
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

    /// Returns true if the agent that wrote this had a fresh cache.
    pub fn is_fresh(&self) -> bool {
        self.cache.stale == Some(false) && self.knows_something()
    }

    /// Returns true if the facts are of the node with this name.
    pub fn is_about(&self, node: &str) -> bool {
        self.node.as_deref() == Some(node)
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

    /// Parses the JSON of a status or a file.
    pub fn parse(json: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Form {
            facts_format: Option<u32>,
        }
        match serde_json::from_slice::<Form>(json)?.facts_format {
            None => Err(Unusable("it is of an older version, whose facts are in another form".to_owned())),
            Some(FACTS_FORMAT) => Ok(serde_json::from_slice(json)?),
            Some(other) => {
                let own = format!("this version reads form {FACTS_FORMAT}");
                Err(Unusable(format!("its facts are in form {other}, and {own}")))
            }
        }
    }

    /// Returns the facts of this node; `None` if there are none.
    pub fn last_facts(self, node: &str, wall: SystemTime) -> Result<Option<LastFacts>, Unusable> {
        if let Some(other) = self.node.filter(|name| name != node) {
            return Err(Unusable::other_node(other));
        }
        let since = self.written_at_unix_ms.map_or(Ok(Duration::ZERO), |written| elapsed(written, wall))?;
        let (node, age) = match (self.node_exists, self.facts, self.cache.age_ms) {
            (Some(false), _, Some(age)) => (Node::Absent, age),
            (Some(true), Some(facts), Some(age)) => (Node::Present(facts), age),
            _ => return Ok(None),
        };
        let age = Duration::from_millis(age).saturating_add(since);
        Ok(Some(LastFacts { node, age, services: self.services }))
    }
}

fn elapsed(unix_ms: u64, wall: SystemTime) -> Result<Duration, Unusable> {
    let (then, now) = (Duration::from_millis(unix_ms), since_epoch(wall));
    match then.checked_sub(now) {
        Some(ahead) if ahead > CLOCKS_DIFFER_BY => {
            Err(Unusable(format!("it was written {} in the future", Age(ahead.as_millis()))))
        }
        _ => Ok(now.saturating_sub(then)),
    }
}

/// Returns the time since 1970; zero for a clock before that.
pub(crate) fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}
