//! A prober in `/status.json`, and the rule by which it has acknowledged.

use super::asked::{ProbeHistory, Standing, takes_out};
use super::{AckSettings, LISTENS_AT_MOST, LISTENS_FOR, MOST_BETWEEN, PoolChange};
use crate::check::Verdict;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// A prober, its probe request, and the answers to it. Ages and intervals are in milliseconds. All text in it
/// consists of harmless characters: `A-Z a-z 0-9` and `- _ . ~ / : , = & ? % *` and the space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProberRecord {
    /// Its address; an IPv4-mapped IPv6 address is shown as IPv4.
    pub address: IpAddr,
    /// Its probe request: path and query, `OPTIONS /`, or `agent-check` with the text of its `agent-send`.
    #[serde(rename = "question")]
    pub request: String,
    /// The report of a HAProxy with `http-check send-state` on itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub haproxy: Option<HaproxyReport>,
    /// Whether it is regular, silent or not yet known.
    pub standing: Standing,
    /// True if a drain changes its answer. Otherwise the agent does not wait for it: `GET /`,
    /// `?check=kubelet`, `/services/…` without `drain=`.
    pub drainable: bool,
    /// True if it is on this node, e.g. a kubelet: no load balancer that must see drains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_this_node: bool,
    /// The number of its probes.
    pub asked: u32,
    /// The age of its first probe.
    pub first_ms: u64,
    /// The age of its latest probe.
    pub last_ms: u64,
    /// The running mean of the time between its probes; absent until the second probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The interval that counts for the acknowledgement: the longest mean of a minute within the last hour;
    /// absent until the second probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_interval_ms: Option<u64>,
    /// The time since it became regular; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regular_ms: Option<u64>,
    /// The HTTP status of the last answer to it; absent for an agent-check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The verdict in that answer.
    pub verdict: Verdict,
    /// The length of the current row: the number of consecutive answers that agree with the last one, in or
    /// out, since the last pool change.
    pub in_a_row: u32,
    /// The age of the first answer of the row.
    pub in_a_row_ms: u64,
    /// The time from which the row is measured: that of the probe before it. Absent from agents that count
    /// answers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_ms: Option<u64>,
    /// The interval that counts for the row: that of when it began; absent if it was not known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_interval_ms: Option<u64>,
    /// True if, by the agent's own settings, it has received the present verdict so often that it must have
    /// acted on it; absent if the agent does not wait for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its sessions there; absent if the header has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
}

impl ProberRecord {
    /// Creates the record of a prober, as of `now`.
    pub fn new(address: IpAddr, request: String, drainable: bool, asked: &ProbeHistory, now: Moment) -> Self {
        Self {
            address: address.to_canonical(),
            request,
            haproxy: None,
            standing: asked.standing(now),
            drainable,
            on_this_node: false,
            asked: asked.times,
            first_ms: millis(now.since(asked.first)),
            last_ms: millis(now.since(asked.last)),
            interval_ms: asked.interval.map(millis),
            longest_interval_ms: asked.longest_interval(now).map(millis),
            regular_ms: asked.regular_since().map(|since| millis(now.since(since))),
            code: asked.given.code,
            verdict: asked.given.verdict,
            in_a_row: asked.in_a_row,
            in_a_row_ms: millis(now.since(asked.in_a_row_since)),
            row_ms: Some(millis(now.since(asked.row_from))),
            row_interval_ms: asked.row_interval.map(millis),
            acknowledged: None,
        }
    }

    /// Returns its address and the name that it gives itself.
    pub fn who(&self) -> String {
        match &self.haproxy {
            Some(haproxy) => format!("{} {} {}", self.address, haproxy.node, haproxy.server),
            None => self.address.to_string(),
        }
    }

    /// Returns true if the agent waits for it: it is regular, and a drain changes its answer.
    pub fn is_waited_for(&self) -> bool {
        self.drainable && self.standing.is_waited_for()
    }

    /// Returns true if it may be a load balancer that sends the wrong probe request: it is regular, and no drain
    /// changes its answer.
    pub fn misses_drains(&self) -> bool {
        !self.drainable && !self.on_this_node && self.standing.is_waited_for()
    }

    /// Returns true if it has acknowledged a pool change `since_ms` ago. It must have received the new
    /// verdict the required number of times in a row since then, and have sent one more probe. All of this
    /// must have taken as long as it takes at the prober's pace.
    pub fn has_acknowledged(&self, change: PoolChange, since_ms: u64, settings: &AckSettings) -> bool {
        takes_out(self.verdict) == (change == PoolChange::Out)
            && self.in_a_row_ms <= since_ms
            && self.in_a_row > settings.times(change)
            && self.row().is_none_or(|row| row >= self.row_needs(change, settings))
    }

    /// Returns the duration of the row of equal answers, in milliseconds.
    pub(super) fn row(&self) -> Option<u64> {
        Some(self.row_ms?.saturating_sub(self.last_ms))
    }

    /// Returns the duration that the row must have, in milliseconds.
    ///
    /// By itself, a prober sends its (n + 1)-th probe n + 1 intervals after the probe before the row. Half an
    /// interval less is enough: its interval may vary by a tenth without costing it another probe. The n-th
    /// answer, on which it acts, was given n intervals after that probe. That is half an interval earlier,
    /// even if other clients sent probes in between.
    ///
    /// A row without a probe before it needs one interval less.
    pub(super) fn row_needs(&self, change: PoolChange, settings: &AckSettings) -> u64 {
        let seen = self.row_interval_ms.or(self.longest_interval_ms).or(self.interval_ms);
        let interval = settings.interval_ms.or(seen).unwrap_or_default();
        let times = u64::from(settings.times(change)) * 2;
        let halves = if self.row_interval_ms.is_some() { times + 1 } else { times.saturating_sub(1) };
        interval.saturating_mul(halves) / 2
    }

    /// Returns true if its first probe came while the agent could not tell a balancer from a stranger, and it
    /// may still turn out to be a balancer.
    pub(super) fn is_undecided(&self, listening_ms: u64) -> bool {
        let listened_for = listening_ms.saturating_sub(self.first_ms);
        self.standing == Standing::Occasional
            && self.drainable
            && listening_ms < millis(LISTENS_AT_MOST)
            && listened_for <= millis(LISTENS_FOR)
            && self.last_ms <= millis(MOST_BETWEEN)
    }
}

/// Returns a time span in milliseconds, as in the JSON.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probers::GivenAnswer;
    use std::net::Ipv4Addr;

    /// Returns a prober with four answers in a row that take the node out, measured from 3.5 s ago.
    fn record() -> ProberRecord {
        let given = GivenAnswer { verdict: Verdict::Draining, code: Some(503) };
        let asked = ProbeHistory::first(given, Moment::default());
        let address = Ipv4Addr::new(10, 0, 0, 1).into();
        let record = ProberRecord::new(address, "/health".to_owned(), true, &asked, Moment::default());
        let (in_a_row, in_a_row_ms) = (4, 3000);
        ProberRecord { in_a_row, in_a_row_ms, row_ms: Some(3500), row_interval_ms: Some(1000), ..record }
    }

    #[test]
    fn a_row_takes_as_long_as_it_does_at_the_probers_pace() {
        let needs = |row_interval_ms, interval_ms, change| {
            let record = ProberRecord { row_interval_ms, longest_interval_ms: Some(5000), ..record() };
            record.row_needs(change, &AckSettings { interval_ms, ..AckSettings::default() })
        };
        assert_eq!(needs(Some(1000), None, PoolChange::Out), 3500);
        assert_eq!(needs(Some(1000), None, PoolChange::Back), 2500);
        assert_eq!(needs(Some(1000), Some(2000), PoolChange::Out), 7000);
        assert_eq!(needs(None, None, PoolChange::Out), 12_500);
        assert_eq!(needs(None, Some(2000), PoolChange::Back), 3000);
    }

    #[test]
    fn the_acknowledgement_needs_all_answers_since_the_change_one_more_probe_and_their_time() {
        let acknowledged = |record: ProberRecord, since_ms| {
            record.has_acknowledged(PoolChange::Out, since_ms, &AckSettings::default())
        };
        assert!(acknowledged(record(), 3000));
        assert!(!acknowledged(record(), 2999), "the row began before the change");
        assert!(
            !acknowledged(ProberRecord { in_a_row: 3, ..record() }, 3000),
            "it may not have got the third"
        );
        assert!(!acknowledged(ProberRecord { row_ms: Some(3499), ..record() }, 3000));
        assert!(
            !acknowledged(ProberRecord { last_ms: 1, ..record() }, 3000),
            "the row ends with its last probe"
        );
        assert!(
            acknowledged(ProberRecord { row_ms: None, ..record() }, 3000),
            "an older agent counts answers alone"
        );
        assert!(!record().has_acknowledged(PoolChange::Back, 3000, &AckSettings::default()));
    }

    #[test]
    fn a_prober_is_undecided_while_it_may_yet_turn_out_to_be_a_balancer() {
        let undecided = |listening, first_ms, last_ms| {
            ProberRecord { first_ms, last_ms, ..record() }.is_undecided(listening)
        };
        assert!(undecided(179_999, 179_999, 0) && !undecided(180_000, 180_000, 0));
        assert!(undecided(100_000, 10_000, 0) && !undecided(100_000, 9999, 0));
        assert!(undecided(100_000, 100_000, 90_000) && !undecided(100_000, 100_000, 90_001));
        assert!(!ProberRecord { drainable: false, ..record() }.is_undecided(1000));
        assert!(!ProberRecord { standing: Standing::Regular, ..record() }.is_undecided(1000));
    }
}
