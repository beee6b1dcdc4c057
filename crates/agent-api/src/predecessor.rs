//! What an agent takes over from an earlier one of its node: from the status of one that runs, or from the file of one
//! that crashed, which is its status without probers.

use crate::drain::ServiceStatus;
use crate::status::FACTS_FORMAT;
use nodegate_readiness::moment::since_epoch;
use nodegate_readiness::probers::{MAX_INTERVAL, MAX_LISTENING, ProberRecord};
use nodegate_readiness::reason::clean;
use nodegate_readiness::{Age, LastFacts, Node};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, SystemTime};

/// The largest correction of a clock that is accepted. A date further ahead means that the writer or the
/// reader has a wrong clock.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// The knowledge of an earlier agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// Its last known facts.
    pub facts: Option<LastFacts>,
    /// The items that are not taken over, for the log.
    pub not_taken: Option<String>,
    /// True if the facts were fresh when it answered.
    pub is_fresh: bool,
    /// True if it answered within the last minute of this boot, by its file; the reader of the file knows that.
    pub has_just_answered: bool,
    /// Its regular probers.
    pub probers: Vec<ProberRecord>,
    /// The time during which it knew all its probers; `None` if it had not recorded them for long enough, or if one of
    /// them is not taken over.
    pub listened: Option<Duration>,
    /// The values of its `--balancers`, whose probes counted; empty if all probes did.
    pub balancers: Vec<String>,
}

/// The most probers that are taken over.
const MAX_PROBERS: usize = 512;

impl Predecessor {
    /// Parses the JSON of a status or a file about the node with this name. Each item is taken or left by itself. The
    /// error is that it is about another node, or not what an agent writes.
    pub fn parse(json: &[u8], node: &str, wall: SystemTime) -> Result<Self, String> {
        // The parser's message could be as long as the text that it read.
        let json = serde_json::from_slice(json).map_err(|error| {
            format!("it is not what an agent writes (line {}, column {})", error.line(), error.column())
        })?;
        let mut status = Items { json: Value::Object(json), not_taken: Vec::new() };
        if let Some(other) = status.take::<String>("/node").filter(|name| name != node) {
            return Err(format!("it is about the node {:?}", clean(other)));
        }
        let facts = status.last_facts(wall);
        status.not_taken.extend(facts.as_ref().err().cloned());
        let written = status.json.pointer("/probers").and_then(Value::as_array).cloned().unwrap_or_default();
        let records =
            written.iter().take(MAX_PROBERS).filter_map(|prober| ProberRecord::deserialize(prober).ok());
        let possible: Vec<_> = records.filter(is_possible).collect();
        let odd = written.len() - possible.len();
        if odd > 0 {
            status.not_taken.push(format!("{odd} of {} probers", written.len()));
        }
        // In its first minutes an agent may not know yet whether a prober is regular.
        let listened = status.take("/drain/listening_ms").map(Duration::from_millis);
        let is_regular = |prober: &ProberRecord| listened.is_some() && prober.standing.is_waited_for();
        Ok(Self {
            is_fresh: facts.as_ref().is_ok_and(Option::is_some) && status.take("/cache/stale") == Some(false),
            has_just_answered: false,
            facts: facts.unwrap_or_default(),
            probers: possible.into_iter().filter(is_regular).collect(),
            listened: listened.filter(|listened| odd == 0 && *listened >= MAX_LISTENING),
            balancers: status.take("/drain/balancers").unwrap_or_default(),
            not_taken: Some(status.not_taken.join("; ")).filter(|items| !items.is_empty()),
        })
    }
}

/// The items of a status, and those that can't be read.
struct Items {
    json: Value,
    not_taken: Vec<String>,
}

impl Items {
    /// Reads the item at a JSON pointer, if it is there.
    fn take<T: DeserializeOwned>(&mut self, pointer: &str) -> Option<T> {
        let item = self.json.pointer(pointer).filter(|item| !item.is_null())?;
        let read = T::deserialize(item);
        if read.is_err() {
            self.not_taken.push(format!("{}: not what an agent writes", pointer.trim_start_matches('/')));
        }
        read.ok()
    }

    /// Returns the facts, if it has any.
    fn last_facts(&mut self, wall: SystemTime) -> Result<Option<LastFacts>, String> {
        let Some(format) = self.take::<u32>("/facts_format") else { return Ok(None) };
        if format != FACTS_FORMAT {
            return Err(format!(
                "its facts are in form {format}, and this version reads form {FACTS_FORMAT}"
            ));
        }
        // The ages in a file refer to this time.
        let written = self.take("/written_at_unix_ms");
        let since = written.map_or(Ok(Duration::ZERO), |written| elapsed(written, wall))?;
        let node = match self.take("/node_exists") {
            Some(true) => self.take("/facts").map(Node::Present),
            Some(false) => Some(Node::Absent),
            None => None,
        };
        let services: Vec<ServiceStatus> = self.take("/services").unwrap_or_default();
        Ok(node.zip(self.take("/cache/age_ms")).map(|(node, age)| LastFacts {
            node,
            age: Duration::from_millis(age).saturating_add(since),
            services: services.into_iter().map(|one| (one.service, one.local_endpoints)).collect(),
        }))
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
        && prober.longest_interval_ms.is_none_or(|longest| Duration::from_millis(longest) <= MAX_INTERVAL)
        && longest.max().is_none_or(|longest| longest <= prober.first_ms.saturating_add(1))
        && prober.in_a_row <= prober.asked
}
