//! The last known facts that an agent hands to its successor, in `/status.json` or in a file.

use crate::age::Age;
use crate::facts::{Node, NodeFacts};
use crate::reason::clean;
use crate::service::{ServiceFacts, ServiceName};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The form of what is handed on. It changes whenever another agent could misread it.
pub const FACTS_FORMAT: u32 = 1;

/// A clock may have been corrected by so much in between. What is dated further ahead was written by a wrong clock, or is
/// read by one.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// What an agent knows of its node, each field as in `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// When it was written, for ages to count from; whoever answers says what is now.
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
    services: Vec<ServiceStatus>,
}

/// The part of the cache's status that is handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CacheAge {
    #[serde(skip_serializing_if = "Option::is_none")]
    age_ms: Option<u64>,
    /// Whether the agent trusted its cache no more; only one that runs says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
}

/// A watched Service of which something is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// `<namespace>/<name>`.
    pub service: String,
    /// How many endpoints on this node are ready.
    pub local_endpoints: usize,
}

/// What was last known of a node, for a board that knows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFacts {
    /// The Node, which is not unknown.
    pub node: Node,
    /// How long ago that was proved.
    pub age: Duration,
    /// The Services that were watched.
    pub services: Vec<(ServiceName, ServiceFacts)>,
}

/// Why something is not to be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No JSON, or other JSON. The words of the parser could be as long as what it has read.
    #[error("it is not what an agent writes (line {line}, column {column})")]
    Foreign {
        /// Where that was noticed.
        line: usize,
        /// And in which column.
        column: usize,
    },
    /// Of an agent before the first format.
    #[error("it is of an older version, whose facts are in another form")]
    Older,
    /// Of another version.
    #[error("its facts are in form {0}, and this version reads form {FACTS_FORMAT}")]
    OtherFormat(u32),
    /// Of another machine.
    #[error("it is about the node {0:?}")]
    OtherNode(String),
    /// A clock is wrong.
    #[error("it was written {} in the future", Age(.0.as_millis()))]
    FromTheFuture(Duration),
}

impl Memory {
    /// What is known of a node, and how long ago that was proved.
    pub(crate) fn new(
        name: Option<&str>,
        node: &Node,
        age: Option<Duration>,
        services: Vec<ServiceStatus>,
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

    /// The same with the date of today.
    #[must_use]
    pub fn written_at(self, wall: SystemTime) -> Self {
        Self { written_at_unix_ms: Some(millis(since_epoch(wall))), ..self }
    }

    /// Returns true if there is anything to remember.
    pub fn knows_something(&self) -> bool {
        self.node_exists.is_some() && self.cache.age_ms.is_some()
    }

    /// Returns true if an agent said this that knows the truth.
    pub fn is_fresh(&self) -> bool {
        self.cache.stale == Some(false) && self.knows_something()
    }

    /// Returns true if it is about the node of this name.
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

    /// When its facts were last proved, by the clock that dated it.
    pub fn proved_at_unix_ms(&self) -> Option<u64> {
        Some(self.written_at_unix_ms?.saturating_sub(self.cache.age_ms?))
    }

    /// Reads one.
    pub fn parse(json: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Form {
            facts_format: Option<u32>,
        }
        let foreign =
            |error: serde_json::Error| Unusable::Foreign { line: error.line(), column: error.column() };
        match serde_json::from_slice::<Form>(json).map_err(foreign)?.facts_format {
            None => Err(Unusable::Older),
            Some(FACTS_FORMAT) => serde_json::from_slice(json).map_err(foreign),
            Some(other) => Err(Unusable::OtherFormat(other)),
        }
    }

    /// What it says of this node; `None` if it knows nothing of it.
    pub fn last_facts(self, node: &str, wall: SystemTime) -> Result<Option<LastFacts>, Unusable> {
        if let Some(other) = self.node.filter(|name| name != node) {
            return Err(Unusable::OtherNode(clean(other)));
        }
        let since = self.written_at_unix_ms.map_or(Ok(Duration::ZERO), |written| elapsed(written, wall))?;
        let (node, age) = match (self.node_exists, self.facts, self.cache.age_ms) {
            (Some(false), _, Some(age)) => (Node::Absent, age),
            (Some(true), Some(facts), Some(age)) => (Node::Present(facts), age),
            _ => return Ok(None),
        };
        let service = |known: ServiceStatus| {
            Some((known.service.parse().ok()?, ServiceFacts { local_endpoints: known.local_endpoints }))
        };
        let services = self.services.into_iter().filter_map(service).collect();
        Ok(Some(LastFacts { node, age: Duration::from_millis(age).saturating_add(since), services }))
    }
}

/// Returns the time since a date.
fn elapsed(unix_ms: u64, wall: SystemTime) -> Result<Duration, Unusable> {
    let (then, now) = (Duration::from_millis(unix_ms), since_epoch(wall));
    match then.checked_sub(now) {
        Some(ahead) if ahead > CLOCKS_DIFFER_BY => Err(Unusable::FromTheFuture(ahead)),
        _ => Ok(now.saturating_sub(then)),
    }
}

/// A clock before 1970 stands at its beginning.
fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
