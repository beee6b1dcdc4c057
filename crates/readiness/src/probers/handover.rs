//! The probers, and a `Ready=False` that does not count yet, which an agent takes over from its predecessor's
//! `/status.json`.

use super::asked::{GivenAnswer, Habit, ProbeHistory};
use super::pace::ProbePace;
use super::record::ProberRecord;
use super::{LISTENS_AT_MOST, MOST_BETWEEN};
use crate::moment::Moment;
use crate::ready_history::PendingNotReady;
use crate::reason::clean;
use crate::saved_facts::Unusable;
use serde::Deserialize;
use std::time::Duration;

/// The maximum number of probers that are taken over. An agent remembers fewer.
const MOST_PROBERS: usize = 512;

/// The probers of the previous agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The regular probers of the predecessor.
    pub probers: Vec<ProberRecord>,
    /// The time during which it knew all its probers; `None` if it had not listened for long enough.
    pub listened: Option<Duration>,
    /// The values of its `--balancers`, whose probes counted; empty if all probes did.
    pub balancers: Vec<String>,
    /// A `Ready=False` that did not count yet.
    pub not_ready_pending: Option<PendingNotReady>,
}

/// The part of `/status.json` that is taken over.
#[derive(Deserialize)]
struct Form {
    node: Option<String>,
    probers: Vec<ProberRecord>,
    drain: Listened,
    not_ready_pending: Option<PendingNotReady>,
}

#[derive(Deserialize)]
struct Listened {
    listening_ms: u64,
    #[serde(default)]
    balancers: Vec<String>,
}

impl Handover {
    /// Parses the answer of an agent.
    pub fn parse(json: &[u8], node: &str) -> Result<Self, Unusable> {
        let Form { node: of, probers, drain, not_ready_pending } = serde_json::from_slice(json)?;
        if let Some(other) = of.filter(|name| name != node) {
            return Err(Unusable::other_node(other));
        }
        if probers.len() > MOST_PROBERS {
            let found = probers.len();
            return Err(Unusable(format!("it has {found} probers: takes at most {MOST_PROBERS}")));
        }
        if let Some(wrong) = probers.iter().find(|prober| !is_possible(prober)) {
            return Err(Unusable(format!("what it says of prober {} can't be", clean(wrong.who()))));
        }
        let Listened { listening_ms, balancers } = drain;
        let regular = |prober: &ProberRecord| prober.standing.is_waited_for();
        let probers = probers.into_iter().filter(regular).collect();
        // In its first minutes an agent may not know yet whether a prober is regular.
        let listened = Duration::from_millis(listening_ms);
        let listened = Some(listened).filter(|listened| *listened >= LISTENS_AT_MOST);
        Ok(Self { probers, listened, balancers, not_ready_pending })
    }
}

/// Returns true if the numbers of a prober are consistent. All are ages, so none can lie in the future.
fn is_possible(prober: &ProberRecord) -> bool {
    let longest = [prober.longest_interval_ms, prober.interval_ms].into_iter().flatten();
    prober.last_ms <= prober.first_ms
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
