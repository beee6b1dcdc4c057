//! A prober as `/status.json` has it.

use super::asked::{Asked, Standing, takes_out};
use super::{Demands, MOST_BETWEEN, Turn};
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
    /// The HTTP status that it last got; absent for an agent-check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// What that answer said.
    pub verdict: Verdict,
    /// How many answers in a row have said the same as the last one, in or out, since the node last turned.
    pub in_a_row: u32,
    /// When the first of these was given.
    pub in_a_row_ms: u64,
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
            code: asked.given.code,
            verdict: asked.given.verdict,
            in_a_row: asked.in_a_row,
            in_a_row_ms: millis(now.since(asked.in_a_row_since)),
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

    /// Whether it is waited for: it goes on asking, and a drain changes its answer.
    pub fn is_waited_for(&self) -> bool {
        self.drainable && matches!(self.standing, Standing::Regular | Standing::Silent)
    }

    /// Whether it has been told of a turn of the node that was `since_ms` ago: it has had that verdict so many times in a row
    /// since then, and has asked once more.
    pub(super) fn has_been_told(&self, turn: Turn, since_ms: u64, demands: &Demands) -> bool {
        takes_out(self.verdict) == (turn == Turn::Out)
            && self.in_a_row_ms <= since_ms
            && self.in_a_row > demands.times(turn)
    }

    /// Whether it asked for the first time while nobody could tell a balancer from a stranger, and may yet turn out to be one.
    pub(super) fn is_undecided(&self, listening_ms: u64) -> bool {
        let listened_for = listening_ms.saturating_sub(self.first_ms);
        let at_most = millis(MOST_BETWEEN);
        self.standing == Standing::Occasional
            && self.drainable
            && listened_for <= at_most
            && self.last_ms <= at_most
    }
}

/// A time span as the JSON has it.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
