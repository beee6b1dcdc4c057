//! What an agent takes over from an earlier one of its node: from the status of one that runs, or from the file of one
//! that crashed, which is its status without probers.

use crate::status::{FACTS_FORMAT, Status};
use nodegate_readiness::moment::since_epoch;
use nodegate_readiness::probers::{LISTENS_AT_MOST, MOST_BETWEEN, ProberRecord};
use nodegate_readiness::reason::clean;
use nodegate_readiness::{Age, LastFacts, Node, NodeFacts, PendingNotReady};
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// The largest correction of a clock that is accepted. A date further ahead means that the writer or the
/// reader has a wrong clock.
const CLOCKS_DIFFER_BY: Duration = Duration::from_mins(5);

/// The knowledge of an earlier agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predecessor {
    /// Its last known facts.
    pub facts: Option<LastFacts>,
    /// Why its facts are not taken over, for the log.
    pub left: Option<String>,
    /// True if they were fresh when it answered.
    pub is_fresh: bool,
    /// True if it answered within the last minute of this boot, by its file; the reader of the file knows that.
    pub has_just_answered: bool,
    /// Its regular probers.
    pub probers: Vec<ProberRecord>,
    /// The time during which it knew all its probers; `None` if it had not listened for long enough, or if one of
    /// them is not taken over.
    pub listened: Option<Duration>,
    /// The values of its `--balancers`, whose probes counted; empty if all probes did.
    pub balancers: Vec<String>,
    /// A `Ready=False` that did not count yet.
    pub not_ready_pending: Option<PendingNotReady>,
}

/// The items that only the next agent reads.
#[derive(Deserialize)]
struct Facts {
    facts: Option<NodeFacts>,
    /// The time to which the ages in a file refer.
    written_at_unix_ms: Option<u64>,
}

impl Predecessor {
    /// Parses the JSON of a status or a file about the node with this name. The error is that it is about another one,
    /// or not what an agent writes.
    pub fn parse(json: &[u8], node: &str, wall: SystemTime) -> Result<Self, String> {
        let status: Status = serde_json::from_slice(json).map_err(|error| foreign(&error))?;
        if let Some(other) = status.node.as_ref().filter(|name| *name != node) {
            return Err(format!("it is about the node {:?}", clean(other.clone())));
        }
        let facts = last_facts(&status, json, wall);
        // In its first minutes an agent may not know yet whether a prober is regular.
        let listened = Duration::from_millis(status.drain.listening_ms);
        let knew_all = listened >= LISTENS_AT_MOST && status.probers.iter().all(is_possible);
        let is_regular = |prober: &ProberRecord| is_possible(prober) && prober.standing.is_waited_for();
        Ok(Self {
            left: facts.as_ref().err().cloned(),
            is_fresh: facts.is_ok() && !status.cache.stale,
            has_just_answered: false,
            facts: facts.unwrap_or_default(),
            probers: status.probers.into_iter().filter(is_regular).collect(),
            listened: knew_all.then_some(listened),
            balancers: status.drain.balancers,
            not_ready_pending: status.not_ready_pending,
        })
    }
}

/// Returns the facts in a status, if it has any.
fn last_facts(status: &Status, json: &[u8], wall: SystemTime) -> Result<Option<LastFacts>, String> {
    let format = status.facts_format;
    if format != FACTS_FORMAT {
        return Err(format!("its facts are in form {format}, and this version reads form {FACTS_FORMAT}"));
    }
    let Facts { facts, written_at_unix_ms } =
        serde_json::from_slice(json).map_err(|error| format!("its facts: {}", foreign(&error)))?;
    let since = written_at_unix_ms.map_or(Ok(Duration::ZERO), |written| elapsed(written, wall))?;
    let node = match status.node_exists {
        Some(true) => facts.map(Node::Present),
        Some(false) => Some(Node::Absent),
        None => None,
    };
    Ok(node.zip(status.cache.age_ms).map(|(node, age)| LastFacts {
        node,
        age: Duration::from_millis(age).saturating_add(since),
        services: status.services.iter().map(|one| (one.service.clone(), one.local_endpoints)).collect(),
    }))
}

/// Returns where a text stops being a status. The parser's message could be as long as the text that it read.
fn foreign(error: &serde_json::Error) -> String {
    format!("it is not what an agent writes (line {}, column {})", error.line(), error.column())
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
