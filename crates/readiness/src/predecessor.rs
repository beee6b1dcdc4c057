//! What an agent takes over from an earlier one of its node: from the answer of one that runs (`/status.json`), or from
//! the file of one that crashed, which has fewer of the same items. Each item is taken or left by itself.

use crate::age::Age;
use crate::facts::{Node, NodeFacts};
use crate::moment::{Moment, since_epoch};
use crate::probers::{
    GivenAnswer, Habit, LISTENS_AT_MOST, MOST_BETWEEN, ProbeHistory, ProbePace, ProberRecord,
};
use crate::ready_history::PendingNotReady;
use crate::reason::clean;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::{Duration, SystemTime};

/// The maximum number of records of one kind that are read. An agent remembers fewer.
const MAX_RECORDS: usize = 512;

/// The format of the facts that are handed on. It changes whenever another agent could misread them.
pub const FACTS_FORMAT: u32 = 2;

/// The largest correction of a clock that is accepted. A date further ahead means that the writer or the
/// reader has a wrong clock.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// The ready endpoints of a watched Service on this node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
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

/// The knowledge of an earlier agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// Its last known facts.
    pub facts: Option<LastFacts>,
    /// True if they were fresh when it answered.
    pub is_fresh: bool,
    /// Its regular probers.
    pub probers: Vec<ProberRecord>,
    /// The time during which it knew all its probers; `None` if it had not listened for long enough, or if one of
    /// them is not taken over.
    pub listened: Option<Duration>,
    /// The values of its `--balancers`, whose probes counted; empty if all probes did.
    pub balancers: Vec<String>,
    /// A `Ready=False` that did not count yet.
    pub not_ready_pending: Option<PendingNotReady>,
    /// The items that are not taken over, for the log.
    pub left: Vec<String>,
}

/// The error for an answer or a file of which nothing can be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

/// The part of the cache's status that is handed on.
#[derive(Deserialize)]
struct CacheAge {
    age_ms: Option<u64>,
    /// The file of an older version has none.
    stale: Option<bool>,
}

/// The part of the drain's status that is handed on.
#[derive(Deserialize)]
struct Listening {
    listening_ms: u64,
    #[serde(default)]
    balancers: Vec<String>,
}

/// The items that have not been read yet, and the names of those that could not be.
struct Items {
    json: Map<String, Value>,
    left: Vec<String>,
}

impl Items {
    /// Takes an item, if there is one that can be read.
    fn take<T: DeserializeOwned>(&mut self, key: &str) -> Option<T> {
        let value = self.json.remove(key).filter(|value| !value.is_null())?;
        let read = serde_json::from_value(value);
        read.inspect_err(|_| self.left.push(format!("{key}: not what an agent writes"))).ok()
    }

    /// Takes the records that can be read and are possible. Returns true if these are all.
    fn records<T: DeserializeOwned>(&mut self, key: &str, is_possible: fn(&T) -> bool) -> (Vec<T>, bool) {
        let all: Vec<Value> = self.take(key).unwrap_or_default();
        let count = all.len();
        let read = all.into_iter().take(MAX_RECORDS).filter_map(|value| serde_json::from_value(value).ok());
        let read: Vec<T> = read.filter(is_possible).collect();
        if read.len() < count {
            self.left.push(format!("{} of {count} {key}", count - read.len()));
        }
        let is_all = read.len() == count;
        (read, is_all)
    }

    fn facts(&mut self, wall: SystemTime) -> Option<(LastFacts, bool)> {
        let format: u32 = self.take("facts_format")?;
        if format != FACTS_FORMAT {
            let own = format!("this version reads form {FACTS_FORMAT}");
            self.left.push(format!("its facts are in form {format}, and {own}"));
            return None;
        }
        let CacheAge { age_ms, stale } = self.take("cache")?;
        let written: Option<u64> = self.take("written_at_unix_ms");
        let since = written.map_or(Ok(Duration::ZERO), |written| elapsed(written, wall));
        let since = since.map_err(|ahead| self.left.push(ahead)).ok()?;
        let node = if self.take("node_exists")? {
            Node::Present(self.take::<NodeFacts>("facts")?)
        } else {
            Node::Absent
        };
        let age = Duration::from_millis(age_ms?).saturating_add(since);
        let (services, _) = self.records("services", |_| true);
        Some((LastFacts { node, age, services }, stale == Some(false)))
    }
}

impl Predecessor {
    /// Parses the JSON of a status or a file about the node with this name. The error is that it is about another one,
    /// or not what an agent writes.
    pub fn parse(json: &[u8], node: &str, wall: SystemTime) -> Result<Self, Unusable> {
        // The parser's message could be as long as the text that it read.
        let foreign = |error: serde_json::Error| {
            let (line, column) = (error.line(), error.column());
            Unusable(format!("it is not what an agent writes (line {line}, column {column})"))
        };
        let mut items = Items { json: serde_json::from_slice(json).map_err(foreign)?, left: Vec::new() };
        if let Some(other) = items.take::<String>("node").filter(|name| name != node) {
            return Err(Unusable(format!("it is about the node {:?}", clean(other))));
        }
        let mut found = Self::default();
        if let Some((facts, is_fresh)) = items.facts(wall) {
            (found.facts, found.is_fresh) = (Some(facts), is_fresh);
        }
        if let Some(Listening { listening_ms, balancers }) = items.take("drain") {
            let (all, are_all) = items.records("probers", is_possible);
            found.probers = all.into_iter().filter(|prober| prober.standing.is_waited_for()).collect();
            // In its first minutes an agent may not know yet whether a prober is regular.
            let listened = Duration::from_millis(listening_ms);
            found.listened = (are_all && listened >= LISTENS_AT_MOST).then_some(listened);
            found.balancers = balancers;
        }
        found.not_ready_pending = items.take("not_ready_pending");
        found.left = items.left;
        Ok(found)
    }
}

/// Returns the time since a file was written. The error says that it comes from the future.
fn elapsed(unix_ms: u64, wall: SystemTime) -> Result<Duration, String> {
    let (then, now) = (Duration::from_millis(unix_ms), since_epoch(wall));
    match then.checked_sub(now) {
        Some(ahead) if ahead > CLOCKS_DIFFER_BY => {
            Err(format!("it was written {} in the future", Age::from(ahead)))
        }
        _ => Ok(now.saturating_sub(then)),
    }
}

/// Returns true if the numbers of a prober are consistent. All are ages, so none can lie in the future. One that the
/// agent waits for has those with which it was found to be regular.
fn is_possible(prober: &ProberRecord) -> bool {
    let longest = [prober.longest_interval_ms, prober.interval_ms].into_iter().flatten();
    let is_known = prober.regular_ms.is_some() && prober.longest_interval_ms.is_some();
    (is_known || !prober.standing.is_waited_for())
        && prober.last_ms <= prober.first_ms
        && prober.regular_ms.is_none_or(|regular| (prober.last_ms..=prober.first_ms).contains(&regular))
        && prober.longest_interval_ms.is_none_or(|longest| Duration::from_millis(longest) <= MOST_BETWEEN)
        && longest.max().is_none_or(|longest| longest <= prober.first_ms.saturating_add(1))
        && prober.in_a_row <= prober.asked
}

impl ProbeHistory {
    /// Takes over a prober from the previous agent; `None` if the prober is not regular. Its row starts over
    /// with its next probe.
    pub fn taken_over(prober: &ProberRecord, now: Moment) -> Option<Self> {
        let at = |age_ms| now.before(Duration::from_millis(age_ms)).unwrap_or_default();
        let longest = Duration::from_millis(prober.longest_interval_ms?);
        Some(Self {
            first: at(prober.first_ms),
            last: at(prober.last_ms),
            interval: Some(prober.interval_ms.map_or(longest, Duration::from_millis)),
            times: prober.asked,
            habit: Habit::Regular { since: at(prober.regular_ms?) },
            given: GivenAnswer { verdict: prober.verdict, code: prober.code },
            in_a_row: 0,
            row_changed: at(prober.last_ms),
            row_from: at(prober.last_ms),
            row_interval: Some(longest),
            pace: ProbePace::taken_over(longest, now),
        })
    }
}
