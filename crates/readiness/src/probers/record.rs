//! A prober in `/status.json`.

use super::asked::{Asked, Standing, takes_out};
use super::{LISTENS_AT_MOST, LISTENS_FOR, MOST_BETWEEN, PoolChange, ToldSettings};
use crate::check::Verdict;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Who asks what, and what it was told. Ages and intervals are in milliseconds. All text in it is of harmless characters:
/// `A-Z a-z 0-9` and `- _ . ~ / : , = & ? % *` and the space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProberRecord {
    /// Its address; an IPv4 one as such.
    pub address: IpAddr,
    /// What it asks: path and query, `OPTIONS /`, or `agent-check` with what its `agent-send` says.
    pub question: String,
    /// What a HAProxy with `http-check send-state` says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub haproxy: Option<HaproxyReport>,
    /// Whether it goes on asking.
    pub standing: Standing,
    /// Whether a drain changes its answer. If not it is not waited for: `?check=kubelet`, `/services/…` without `drain=`.
    pub drainable: bool,
    /// How often it has asked.
    pub asked: u32,
    /// When it first asked.
    pub first_ms: u64,
    /// When it last asked.
    pub last_ms: u64,
    /// The running mean of the time between its questions; absent until it has asked twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
    /// The interval that counts for told: the longest mean of a minute within the last hour; absent until it has asked twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_interval_ms: Option<u64>,
    /// Since when it has been one that goes on asking; absent if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regular_ms: Option<u64>,
    /// The HTTP status that it last got; absent for an agent-check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What that answer said.
    pub verdict: Verdict,
    /// How many answers in a row have said the same as the last one, in or out, since the node last turned.
    pub in_a_row: u32,
    /// When the first of these was given.
    pub in_a_row_ms: u64,
    /// The time from which these are measured: the question before them. Absent from agents that count answers alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_ms: Option<u64>,
    /// The interval that counts for them: that of when they began; absent if it was not known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_interval_ms: Option<u64>,
    /// Whether it has had the present verdict so often, by the agent's own numbers, that it must have acted on it; absent for
    /// one that is not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<bool>,
}

/// What `X-Haproxy-Server-State` said with the last question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaproxyReport {
    /// The HAProxy's own name: `node` of its `global` section, or its host's name.
    pub node: String,
    /// The server that stands for this node there, with its backend: `app/worker-1`.
    pub server: String,
    /// Its state there, as HAProxy has it: `UP 2/3`, `DOWN`, `NOLB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its sessions there; absent if HAProxy did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
}

impl ProberRecord {
    /// What is remembered of it, as of `now`.
    pub fn new(address: IpAddr, question: String, drainable: bool, asked: &Asked, now: Moment) -> Self {
        Self {
            address: address.to_canonical(),
            question,
            haproxy: None,
            standing: asked.standing(now),
            drainable,
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
            told: None,
        }
    }

    /// Who it is: its address, and the name that it gives itself.
    pub fn who(&self) -> String {
        match &self.haproxy {
            Some(haproxy) => format!("{} {} {}", self.address, haproxy.node, haproxy.server),
            None => self.address.to_string(),
        }
    }

    /// Returns true if it is waited for: it goes on asking, and a drain changes its answer.
    pub fn is_waited_for(&self) -> bool {
        self.drainable && matches!(self.standing, Standing::Regular | Standing::Silent)
    }

    /// Returns true if it has been told of a turn of the node that was `since_ms` ago: it has had that
    /// verdict so many times in a row since then, has asked once more, and all of that has taken as long as
    /// it takes at its pace.
    pub(super) fn has_been_told(&self, turn: PoolChange, since_ms: u64, settings: &ToldSettings) -> bool {
        takes_out(self.verdict) == (turn == PoolChange::Out)
            && self.in_a_row_ms <= since_ms
            && self.in_a_row > settings.times(turn)
            && self.row().is_none_or(|row| row >= self.row_needs(turn, settings))
    }

    /// Returns how long the row of equal answers is, in milliseconds.
    pub(super) fn row(&self) -> Option<u64> {
        Some(self.row_ms?.saturating_sub(self.last_ms))
    }

    /// Returns how long it must be, in milliseconds.
    ///
    /// By itself a prober asks for the (n + 1)-th time n + 1 intervals after the question before the row. Half an interval
    /// less is enough: its own interval may vary by a tenth without costing it another question, and the n-th answer, with which
    /// it acts, has been given n intervals after that question, half an interval earlier, whoever else has asked meanwhile.
    ///
    /// A row with nothing before it has one interval less.
    pub(super) fn row_needs(&self, turn: PoolChange, settings: &ToldSettings) -> u64 {
        let seen = self.row_interval_ms.or(self.longest_interval_ms).or(self.interval_ms);
        let interval = settings.interval_ms.or(seen).unwrap_or_default();
        let times = u64::from(settings.times(turn)) * 2;
        let halves = if self.row_interval_ms.is_some() { times + 1 } else { times.saturating_sub(1) };
        interval.saturating_mul(halves) / 2
    }

    /// Returns true if it asked for the first time while nobody could tell a balancer from a stranger, and
    /// may yet turn out to be one.
    pub(super) fn is_undecided(&self, listening_ms: u64) -> bool {
        let listened_for = listening_ms.saturating_sub(self.first_ms);
        self.standing == Standing::Occasional
            && self.drainable
            && listening_ms < millis(LISTENS_AT_MOST)
            && listened_for <= millis(LISTENS_FOR)
            && self.last_ms <= millis(MOST_BETWEEN)
    }
}

/// Returns a time span as the JSON has it.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
