//! A prober in `/status.json`, by which the next agent takes it over.

use super::history::{GivenAnswer, Habit, ProbeHistory, Standing};
use super::pace::ProbePace;
use crate::check::Verdict;
use crate::moment::{Moment, millis};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A prober, its probe request, and the answers to it. Ages and intervals are in milliseconds. All text in it
/// consists of harmless characters: `A-Z a-z 0-9` and `- _ . ~ / : , = & ? % *` and the space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProberRecord {
    /// Its address, or the name of its network in `--balancers`; an IPv4-mapped IPv6 address is shown as IPv4.
    pub address: String,
    /// Its probe request: path and query, `OPTIONS /`, or `agent-check` with the text of its `agent-send`.
    #[serde(rename = "question")]
    pub request: String,
    /// The report of a HAProxy with `http-check send-state` on itself.
    pub haproxy: Option<HaproxyReport>,
    /// Whether it is regular, silent, gone or not yet known.
    pub standing: Standing,
    /// True if a drain changes its answer. Otherwise the agent does not wait for it: `GET /`,
    /// `?check=kubelet`, `/services/…` without `drain=`.
    pub sees_drains: bool,
    /// True if it is on this node, e.g. a kubelet: no load balancer that must see drains.
    #[serde(default)]
    pub on_this_node: bool,
    /// The number of its probes.
    pub asked: u32,
    /// The age of its first probe.
    pub first_ms: u64,
    /// The age of its latest probe.
    pub last_ms: u64,
    /// The running mean of the time between its probes; `null` until the second probe.
    pub interval_ms: Option<u64>,
    /// The interval that counts for the acknowledgement: the longest mean of a minute within the last hour;
    /// `null` until the second probe.
    pub longest_interval_ms: Option<u64>,
    /// The time since it became regular; `null` if it is not.
    pub regular_ms: Option<u64>,
    /// The HTTP status of the last answer to it; `null` for an agent-check.
    pub code: Option<u16>,
    /// The verdict in that answer.
    pub verdict: Verdict,
    /// The length of the current streak: the number of consecutive answers that agree with the last one, in or
    /// out.
    pub in_a_row: u32,
    /// True if, by the agent's own settings, it has received the present verdict so often that it must have
    /// acted on it; `null` if the agent does not wait for it.
    pub acknowledged: Option<bool>,
}

/// The content of `X-Haproxy-Server-State` in the latest probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaproxyReport {
    /// The HAProxy's own name: `node` of its `global` section, or its host's name.
    pub node: String,
    /// The server that stands for this node there, with its backend: `app/worker-1`.
    pub server: String,
    /// Its state there, as HAProxy has it: `UP`, `DOWN`, `NOLB`.
    pub state: Option<String>,
    /// Its sessions there; `null` if the header has none.
    pub sessions: Option<u64>,
}

impl ProberRecord {
    /// Creates the record of a prober, as of `now`.
    pub fn new(address: String, request: String, sees_drains: bool, of: &ProbeHistory, now: Moment) -> Self {
        Self {
            address,
            request,
            haproxy: None,
            standing: of.standing(now),
            sees_drains,
            on_this_node: false,
            asked: of.times,
            first_ms: millis(now.since(of.first)),
            last_ms: millis(now.since(of.last)),
            interval_ms: of.interval.map(millis),
            longest_interval_ms: of.longest_interval(now).map(millis),
            regular_ms: of.regular_since().map(|since| millis(now.since(since))),
            code: of.given.code,
            verdict: of.given.verdict,
            in_a_row: of.in_a_row,
            acknowledged: None,
        }
    }

    /// Returns its address and the name that it gives itself.
    pub fn who(&self) -> String {
        match &self.haproxy {
            Some(haproxy) => format!("{} {} {}", self.address, haproxy.node, haproxy.server),
            None => self.address.clone(),
        }
    }

    /// Returns true if the agent waits for it: it is regular, and a drain changes its answer.
    pub fn is_waited_for(&self) -> bool {
        self.sees_drains && self.standing.is_waited_for()
    }

    /// Returns true if it may be a load balancer that sends the wrong probe request: it is regular, and no drain
    /// changes its answer.
    pub fn misses_drains(&self) -> bool {
        !self.sees_drains && !self.on_this_node && self.standing.is_waited_for()
    }
}

impl ProbeHistory {
    /// Takes over a prober from the previous agent; `None` if the prober is not regular. Its streak starts over
    /// with its next probe.
    pub fn taken_over(prober: &ProberRecord, now: Moment) -> Option<Self> {
        let at = |age_ms| now.before(Duration::from_millis(age_ms));
        let longest = Duration::from_millis(prober.longest_interval_ms?);
        Some(Self {
            first: at(prober.first_ms),
            last: at(prober.last_ms),
            interval: Some(prober.interval_ms.map_or(longest, Duration::from_millis)),
            times: prober.asked,
            habit: Habit::Regular { since: at(prober.regular_ms?) },
            given: GivenAnswer { verdict: prober.verdict, code: prober.code },
            in_a_row: 0,
            streak_possible_from: at(prober.last_ms),
            streak_from: at(prober.last_ms),
            streak_interval: Some(longest),
            pace: ProbePace::taken_over(longest, now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_probers_are_waited_for_or_miss_drains() {
        use Standing::{Gone, Occasional, Regular, Silent};
        let given = GivenAnswer { verdict: Verdict::Ready, code: Some(200) };
        let first = ProbeHistory::first(given, Moment::default());
        for standing in [Gone, Occasional, Regular, Silent] {
            for (sees_drains, on_this_node) in [(false, false), (false, true), (true, false), (true, true)] {
                let new = ProberRecord::new("a".to_owned(), String::new(), sees_drains, &first, first.last);
                let record = ProberRecord { standing, on_this_node, ..new };
                let counts = matches!(standing, Regular | Silent);
                assert_eq!(record.is_waited_for(), counts && sees_drains, "{record:?}");
                assert_eq!(record.misses_drains(), counts && !sees_drains && !on_this_node, "{record:?}");
                assert_eq!(record.who(), "a");
            }
        }
    }
}
