//! The row of one node: what `table`, `json` and `live` show of it, and its exit code.

use crate::agents::{AgentAnswer, NoAgentAnswer, Way};
use crate::cluster::FleetNode;
use nodegate_agent_api::Status;
use nodegate_agent_client::exit_code;
use nodegate_agent_client::sentence::{caveat, shutdown, why};
use nodegate_readiness::{Age, Verdict};
use std::cmp::Ordering;
use std::time::Duration;

pub(super) const NOTHING: &str = "-";
/// The reason of a cordoned node in the pool.
const KEPT: &str = "Kept";

pub(crate) struct Row {
    pub(crate) node: FleetNode,
    pub(crate) said: Result<AgentAnswer, NoAgentAnswer>,
}

/// The state of a node for an operator, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    Unknown,
    NotReady,
    Unconfirmed,
    /// Draining, and some balancer may still send traffic.
    Draining,
    /// Out: every balancer has acknowledged; sessions may be left.
    Out,
    /// A control-plane node that only its exclude label keeps out.
    ByDesign,
    Ready,
}

impl Row {
    pub(crate) fn new(node: &FleetNode, said: Result<AgentAnswer, NoAgentAnswer>) -> Self {
        // An agent without a verdict reports why; the row treats it like no answer.
        let said = said.and_then(|answer| match answer.said.status.verdict {
            Some(_) => Ok(answer),
            None => Err(NoAgentAnswer::new("misconfigured", why(&answer.said.status))),
        });
        Self { node: node.clone(), said }
    }

    pub(crate) fn status(&self) -> Option<&Status> {
        self.said.as_ref().ok().map(|answer| &answer.said.status)
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.status().and_then(|status| status.verdict)
    }

    /// Returns true if the agent reports the node as Ready, and not as a guess.
    pub(crate) fn is_surely_ready(&self) -> bool {
        self.verdict() == Some(Verdict::Ready) && !self.is_guess()
    }

    pub(super) fn is_stale(&self) -> bool {
        self.status().is_some_and(Status::is_based_on_stale_cache)
    }

    /// Returns true if the exclusion label takes the node out.
    pub(crate) fn is_out_by_label(&self) -> bool {
        self.status().is_some_and(Status::is_excluded_by_label)
    }

    /// Returns true for a control-plane node that only its exclude label keeps out. kubeadm and Talos set
    /// this label, and nothing is wrong with the node.
    pub(crate) fn is_out_by_design(&self) -> bool {
        self.is_out_by_label() && self.node.is_control_plane && !self.node.unschedulable && !self.is_stale()
    }

    /// Returns true if the control plane gets no heartbeat from the node's kubelet, and the agent relies on
    /// the kubelet itself.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.status().is_some_and(|status| status.unconfirmed)
    }

    /// Returns true if the node is cordoned, and in the pool because too many others are drained.
    pub(super) fn is_kept(&self) -> bool {
        self.status().is_some_and(|status| status.kept.is_some())
    }

    pub(super) fn is_guess(&self) -> bool {
        self.is_stale() || self.is_unconfirmed()
    }

    /// Returns the exit code of `nodegate status`, except for nodes that are out by design.
    pub(super) fn exit_code(&self) -> u8 {
        if self.is_out_by_design() { 0 } else { exit_code(self.verdict()) }
    }

    pub(super) fn urgency(&self) -> Urgency {
        let acknowledged = self.status().and_then(|status| status.drain.acknowledged);
        match self.verdict() {
            None => Urgency::Unknown,
            Some(Verdict::NotReady) => Urgency::NotReady,
            Some(_) if self.is_guess() => Urgency::Unconfirmed,
            Some(Verdict::Draining) if self.is_out_by_design() => Urgency::ByDesign,
            Some(Verdict::Draining) if acknowledged == Some(true) => Urgency::Out,
            Some(Verdict::Draining) => Urgency::Draining,
            Some(Verdict::Ready) => Urgency::Ready,
        }
    }

    /// Orders rows by urgency, then by name.
    pub(super) fn by_need(one: &Self, other: &Self) -> Ordering {
        (one.urgency(), &one.node.name).cmp(&(other.urgency(), &other.node.name))
    }

    pub(super) fn verdict_word(&self) -> String {
        match self.verdict() {
            Some(verdict) if self.is_guess() => format!("{}?", verdict.title()),
            Some(verdict) => verdict.title().to_owned(),
            None => "Unknown".to_owned(),
        }
    }

    pub(super) fn reason(&self) -> String {
        match &self.said {
            Ok(answer) => {
                let reason = answer.said.status.reason.as_ref();
                let in_pool = if self.is_kept() { KEPT } else { NOTHING };
                reason.map_or(in_pool.to_owned(), |reason| reason.as_str().to_owned())
            }
            Err(error) => error.short.clone(),
        }
    }

    pub(super) fn why(&self) -> String {
        match &self.said {
            Ok(answer) => {
                let status = &answer.said.status;
                let guess = caveat(status).map(|caveat| format!("; a guess: {caveat}"));
                let unlocked = status.host.filter(|host| !host.lock && !host.shutdown);
                let reboot = unlocked.map(|host| format!("; a reboot {}", shutdown(host)));
                why(status) + &guess.unwrap_or_default() + &reboot.unwrap_or_default()
            }
            Err(error) => error.detail.clone(),
        }
    }

    /// Returns the age of the verdict; `Err` with the uptime if the verdict is older than the agent.
    pub(super) fn since(&self) -> Option<Result<Duration, Duration>> {
        let status = self.status()?;
        let flip = status.flips.first().map(|flip| Duration::from_millis(flip.age_ms));
        Some(flip.ok_or(Duration::from_millis(status.uptime_ms)))
    }

    pub(super) fn since_text(&self) -> String {
        match self.since() {
            Some(Ok(since)) => Age::from(since).to_string(),
            Some(Err(uptime)) => format!(">{}", Age::from(uptime)),
            None => NOTHING.to_owned(),
        }
    }

    pub(super) fn cache(&self) -> String {
        let Some(status) = self.status() else { return NOTHING.to_owned() };
        let trust = match (status.cache.stale, status.unconfirmed) {
            (true, _) => "stale",
            (false, true) => "unconfirmed",
            (false, false) => "fresh",
        };
        status.cache.age_ms.map_or_else(|| trust.to_owned(), |age| format!("{trust} {}", Age(age)))
    }

    /// Returns the number of probers that have acknowledged the present verdict, the number of all, and true
    /// if these are known.
    pub(super) fn acknowledged(&self) -> Option<(usize, usize, bool)> {
        let drain = &self.status()?.drain;
        Some((drain.acknowledged_probers, drain.probers, drain.not_known.is_none()))
    }

    pub(super) fn acknowledged_text(&self) -> String {
        match self.acknowledged() {
            Some((acknowledged, of, known)) => format!("{acknowledged}/{of}{}", if known { "" } else { "?" }),
            None => NOTHING.to_owned(),
        }
    }

    pub(super) fn sessions(&self) -> Option<u64> {
        self.status().and_then(Status::sessions)
    }

    pub(super) fn sessions_text(&self) -> String {
        self.sessions().map_or(NOTHING.to_owned(), |sessions| sessions.to_string())
    }

    /// Returns true if the agent has answered at the node's own address.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(&self.said, Ok(AgentAnswer { way: Way::Node(_), .. }))
    }

    pub(super) fn source(&self) -> String {
        match self.said.as_ref().map(|answer| &answer.way) {
            Ok(Way::Node(address)) => address.to_string(),
            Ok(Way::Proxy { pod }) => format!("proxy of {pod}"),
            Err(_) => NOTHING.to_owned(),
        }
    }
}
