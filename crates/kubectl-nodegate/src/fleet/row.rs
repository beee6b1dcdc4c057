//! The row of one node: what the table, the JSON and the lines of changes show of it, and its exit code.

use crate::agents::AgentAnswer;
use crate::cluster::FleetNode;
use nodegate_agent_api::Status;
use nodegate_agent_client::colour::{DIM, GREEN, MAGENTA, RED, YELLOW};
use nodegate_agent_client::exit_code;
use nodegate_agent_client::sentence::{caveat, shutdown, why};
use nodegate_readiness::{Age, Reason, Verdict};
use serde_json::{Value, json};

const NOTHING: &str = "-";
/// The reason of a cordoned node in the pool.
const KEPT: &str = "Kept";

pub(crate) struct Row {
    pub(crate) node: FleetNode,
    /// The agent's answer, or why there is none.
    pub(crate) said: Result<AgentAnswer, String>,
}

impl Row {
    pub(crate) fn new(node: &FleetNode, said: Result<AgentAnswer, String>) -> Self {
        // An agent without a verdict reports why; the row treats it like no answer.
        let said = said.and_then(|answer| match answer.said.verdict {
            Some(_) => Ok(answer),
            None => Err(format!("misconfigured: {}", why(&answer.said))),
        });
        Self { node: node.clone(), said }
    }

    pub(crate) fn status(&self) -> Option<&Status> {
        self.said.as_ref().ok().map(|answer| &answer.said)
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

    fn is_guess(&self) -> bool {
        self.is_stale() || self.is_unconfirmed()
    }

    /// Returns the exit code of `nodegate status`, except for nodes that are out by design.
    pub(super) fn exit_code(&self) -> u8 {
        if self.is_out_by_design() { 0 } else { exit_code(self.verdict()) }
    }

    /// Returns the rank of the row, the most urgent first, and the sign and the colour of its verdict.
    pub(super) fn urgency(&self) -> (u8, char, &'static str) {
        let acknowledged = self.status().and_then(|status| status.drain.acknowledged);
        match self.verdict() {
            None => (0, '?', MAGENTA),
            Some(Verdict::NotReady) => (1, '✖', RED),
            Some(_) if self.is_guess() => (2, '≈', YELLOW),
            Some(Verdict::Draining) if self.is_out_by_design() => (5, '○', DIM),
            Some(Verdict::Draining) if acknowledged == Some(true) => (4, '○', YELLOW),
            // Some balancer may still send traffic.
            Some(Verdict::Draining) => (3, '◐', YELLOW),
            Some(Verdict::Ready) => (6, '●', GREEN),
        }
    }

    /// Returns the cells of the table, with the whole reason.
    pub(super) fn cells(&self) -> [String; 10] {
        let verdict = self.verdict().map_or("Unknown", Verdict::title);
        let answer = self.said.as_ref();
        let told =
            |words: fn(&Status) -> String| answer.map_or_else(String::clone, |answer| words(&answer.said));
        let shown = |cell: fn(&Status) -> String| self.status().map_or(NOTHING.to_owned(), cell);
        [
            self.node.name.clone(),
            verdict.to_owned() + if self.is_guess() { "?" } else { "" },
            told(reason),
            shown(since),
            shown(cache),
            shown(acknowledged),
            shown(|status| status.sessions().map_or(NOTHING.to_owned(), |sessions| sessions.to_string())),
            shown(|status| status.version.to_string()),
            answer.map_or(NOTHING, |answer| &answer.source).to_owned(),
            told(whole_reason),
        ]
    }

    /// Returns true if the agent has answered at the node's own address.
    pub(crate) fn is_direct(&self) -> bool {
        self.said.as_ref().is_ok_and(|answer| answer.is_direct)
    }

    /// Returns the node with its whole `/status.json` as received. `null` means not known.
    pub(super) fn json(&self) -> Value {
        let answer = self.said.as_ref().ok();
        json!({
            "node": self.node.name,
            "address": self.node.address,
            "verdict": self.verdict(),
            "out_by_design": self.is_out_by_design(),
            "via": answer.map(|answer| if answer.is_direct { "node" } else { "proxy" }),
            "error": self.said.as_ref().err(),
            "status": answer.and_then(|answer| serde_json::from_slice::<Value>(&answer.reply.body).ok()),
        })
    }
}

fn reason(status: &Status) -> String {
    let in_pool = if status.kept.is_some() { KEPT } else { NOTHING };
    status.reason.as_ref().map_or(in_pool, Reason::as_str).to_owned()
}

fn whole_reason(status: &Status) -> String {
    let guess = caveat(status).map(|caveat| format!("; a guess: {caveat}"));
    let unlocked = status.host.filter(|host| !host.lock && !host.shutdown);
    let reboot = unlocked.map(|host| format!("; a reboot {}", shutdown(host)));
    why(status) + &guess.unwrap_or_default() + &reboot.unwrap_or_default()
}

/// Returns the age of the verdict; that of the agent if the verdict is older.
fn since(status: &Status) -> String {
    let flip = status.flips.first();
    flip.map_or_else(|| format!(">{}", Age(status.uptime_ms)), |flip| Age(flip.age_ms).to_string())
}

fn cache(status: &Status) -> String {
    let trust = match (status.cache.stale, status.unconfirmed) {
        (true, _) => "stale",
        (false, true) => "unconfirmed",
        (false, false) => "fresh",
    };
    status.cache.age_ms.map_or_else(|| trust.to_owned(), |age| format!("{trust} {}", Age(age)))
}

/// Returns the number of probers that have acknowledged the present verdict, and that of all.
fn acknowledged(status: &Status) -> String {
    let drain = &status.drain;
    let mark = if drain.not_known.is_some() { "?" } else { "" };
    format!("{}/{}{mark}", drain.acknowledged_probers, drain.probers)
}
