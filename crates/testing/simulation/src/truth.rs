//! The right answers to a load balancer for a state of the Node, by the agent's own rules: these have tests of
//! their own. `oracle.rs` judges whether the agent applies them to the right state.

use bytes::Bytes;
use nodegate_readiness::{CheckReport, Node, Policy, Reply};

/// A kind of probe request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeKind {
    pub(crate) request: &'static str,
    /// The status for a draining node.
    drain: Option<u16>,
    /// True if the check `custom_conditions` is named, too.
    conditions: bool,
}

/// All kinds of probe requests.
pub(crate) const KINDS: [ProbeKind; 3] = [
    ProbeKind { request: "/health", drain: None, conditions: false },
    ProbeKind { request: "/health?drain=404", drain: Some(404), conditions: false },
    ProbeKind { request: "/health?check=node_ready,custom_conditions", drain: None, conditions: true },
];

/// Returns the answer to each kind of probe request, for a fresh or for a stale cache with this Node.
pub(crate) fn answers(policy: &Policy, node: &Node, stale: bool) -> [SimulatedAnswer; KINDS.len()] {
    KINDS.map(|kind| {
        let report = |name, outcome| CheckReport::from_memory(name, outcome, stale);
        let mut reports = vec![report("node_ready", policy.node_ready(node, stale))];
        if kind.conditions {
            reports.push(report("custom_conditions", policy.custom_conditions(node, stale)));
        }
        let reply = Reply::render(&reports, kind.drain);
        SimulatedAnswer { status: reply.status, body: reply.body }
    })
}

/// A complete answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedAnswer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl SimulatedAnswer {
    /// Returns true if the answer takes the node out of a load balancer's pool.
    pub(crate) fn takes_out(&self) -> bool {
        self.status != 200
    }

    /// Returns the answer as text for the trace.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}
