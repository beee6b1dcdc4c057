//! What is known of one node.

use crate::agents::{AgentAnswer, NoAgentAnswer, Way};
use crate::cluster::FleetNode;
use nodegate_agent_client::Status;
use nodegate_readiness::{Age, Verdict};
use nodegate_settings::UNKNOWN;
use std::cmp::Ordering;
use std::time::Duration;

/// What nothing is known of.
pub(super) const NOTHING: &str = "-";

/// A node, and what its agent says.
pub(crate) struct Row {
    pub(super) node: FleetNode,
    pub(super) said: Result<AgentAnswer, NoAgentAnswer>,
    /// When it was said, since 1970.
    at: Duration,
}

/// What a person has to do about it, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Nothing is known of it.
    Unknown,
    NotReady,
    /// Its verdict is a guess.
    Guess,
    /// On its way out, and somebody may still send traffic.
    Draining,
    /// Out, with sessions left or none.
    Out,
    /// A control plane that its exclude label alone keeps out.
    ByDesign,
    Ready,
}

impl Row {
    pub(crate) fn new(node: &FleetNode, said: Result<AgentAnswer, NoAgentAnswer>, at: Duration) -> Self {
        // An agent without a verdict says why, which is as good as no answer.
        let said = said.and_then(|answer| match answer.said.status.verdict {
            Some(_) => Ok(answer),
            None => {
                Err(NoAgentAnswer { short: "misconfigured".to_owned(), detail: answer.said.status.why() })
            }
        });
        Self { node: node.clone(), said, at }
    }

    pub(super) fn status(&self) -> Option<&Status> {
        self.said.as_ref().ok().map(|answer| &answer.said.status)
    }

    /// What the agent sent.
    pub(super) fn body(&self) -> Option<&[u8]> {
        self.said.as_ref().ok().map(|answer| &*answer.said.body)
    }

    pub(crate) fn verdict(&self) -> Option<Verdict> {
        self.status().and_then(|status| status.verdict)
    }

    /// Whether its agent knows the node to be Ready, and does not guess.
    pub(crate) fn is_surely_ready(&self) -> bool {
        self.verdict() == Some(Verdict::Ready) && !self.is_guess()
    }

    pub(super) fn is_stale(&self) -> bool {
        self.status().is_some_and(|status| status.cache.stale)
    }

    /// Returns true of a control plane that its exclude label alone keeps out: kubeadm and Talos put it there, and nothing is
    /// wrong with the node.
    pub(super) fn is_out_by_design(&self) -> bool {
        let is_excluded = self.status().is_some_and(Status::is_excluded_by_label);
        is_excluded && self.node.is_control_plane && !self.node.unschedulable && !self.is_stale()
    }

    /// Returns true if the control plane does not hear the node's kubelet, and the agent goes by the kubelet itself.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.status().is_some_and(|status| status.unconfirmed)
    }

    /// Returns true if the verdict is no more than a guess.
    pub(super) fn is_guess(&self) -> bool {
        self.is_stale() || self.is_unconfirmed()
    }

    /// As `nodegate status` has it, but for nodes that are out by design.
    pub(super) fn exit_code(&self) -> u8 {
        match self.verdict() {
            Some(Verdict::Ready) => 0,
            Some(Verdict::Draining) if self.is_out_by_design() => 0,
            Some(Verdict::Draining) => 1,
            Some(Verdict::NotReady) => 2,
            None => UNKNOWN,
        }
    }

    pub(super) fn need(&self) -> Need {
        let told = self.status().and_then(|status| status.drain.as_ref()).and_then(|drain| drain.told);
        match self.verdict() {
            None => Need::Unknown,
            Some(Verdict::NotReady) => Need::NotReady,
            Some(_) if self.is_guess() => Need::Guess,
            Some(Verdict::Draining) if self.is_out_by_design() => Need::ByDesign,
            Some(Verdict::Draining) if told == Some(true) => Need::Out,
            Some(Verdict::Draining) => Need::Draining,
            Some(Verdict::Ready) => Need::Ready,
        }
    }

    /// What needs a person comes first; worker-2 before worker-10.
    pub(super) fn by_need(one: &Self, other: &Self) -> Ordering {
        let of = |row: &Self| (row.need(), in_parts(&row.node.name));
        of(one).cmp(&of(other))
    }

    pub(super) fn verdict_word(&self) -> String {
        match self.verdict() {
            Some(verdict) if self.is_guess() => format!("{}?", verdict.title()),
            Some(verdict) => verdict.title().to_owned(),
            None => "Unknown".to_owned(),
        }
    }

    /// In one word, or few.
    pub(super) fn reason(&self) -> String {
        match &self.said {
            Ok(answer) => {
                let reason = answer.said.status.reason.as_ref();
                reason.map_or(NOTHING.to_owned(), |reason| reason.as_str().to_owned())
            }
            Err(error) => error.short.clone(),
        }
    }

    /// In full.
    pub(super) fn why(&self) -> String {
        match &self.said {
            Ok(answer) => match answer.said.status.doubt() {
                Some(doubt) => format!("{}; a guess: {doubt}", answer.said.status.why()),
                None => answer.said.status.why(),
            },
            Err(error) => error.detail.clone(),
        }
    }

    /// For how long the verdict has been what it is; `Err` if it has been so since before the agent's start.
    pub(super) fn since(&self) -> Option<Result<Duration, Duration>> {
        let status = self.status()?;
        let flip = status.flips.first().map(|flip| Duration::from_millis(flip.at_unix_ms));
        let uptime = Duration::from_millis(u64::try_from(status.uptime_ms).unwrap_or(u64::MAX));
        Some(flip.map(|at| self.at.saturating_sub(at)).ok_or(uptime))
    }

    pub(super) fn since_text(&self) -> String {
        match self.since() {
            Some(Ok(since)) => Age(since.as_millis()).to_string(),
            Some(Err(uptime)) => format!(">{}", Age(uptime.as_millis())),
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

    /// How many of how many have been told the present verdict, and whether that is known.
    pub(super) fn told(&self) -> Option<(usize, usize, bool)> {
        let status = self.status()?;
        let drain = status.drain.as_ref()?;
        let (told, of) = status.told_of();
        Some((told, of, drain.not_known.is_none()))
    }

    pub(super) fn told_text(&self) -> String {
        match self.told() {
            Some((told, of, known)) => format!("{told}/{of}{}", if known { "" } else { "?" }),
            None => NOTHING.to_owned(),
        }
    }

    pub(super) fn sessions(&self) -> Option<u64> {
        self.status().and_then(Status::sessions)
    }

    pub(super) fn sessions_text(&self) -> String {
        self.sessions().map_or(NOTHING.to_owned(), |sessions| sessions.to_string())
    }

    pub(super) fn version(&self) -> &str {
        self.status().map_or(NOTHING, |status| &status.version)
    }

    pub(super) fn way(&self) -> String {
        match self.said.as_ref().map(|answer| &answer.way) {
            Ok(Way::Node(address)) => address.to_string(),
            Ok(Way::Proxy { pod }) => format!("proxy of {pod}"),
            Err(_) => NOTHING.to_owned(),
        }
    }
}

/// A name with its numbers as numbers.
fn in_parts(name: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0_u64, String::new())];
    let mut in_number = false;
    for c in name.chars() {
        if c.is_ascii_digit() != in_number {
            in_number = c.is_ascii_digit();
            parts.push((0, String::new()));
        }
        if let Some((number, text)) = parts.last_mut() {
            match c.to_digit(10) {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
                None => text.push(c),
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_as_people_count() {
        let mut names =
            ["worker-10", "worker-2", "control-1", "worker", "worker-2a", "7", "worker-99999999999999999999"];
        names.sort_by_key(|name| in_parts(name));
        assert_eq!(
            names,
            ["7", "control-1", "worker", "worker-2", "worker-2a", "worker-10", "worker-99999999999999999999"]
        );
    }
}
