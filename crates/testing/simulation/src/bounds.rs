//! The contract's bounds for each fault. `episode.rs` combines them.

use crate::connection::StreamKind;
use crate::fault::ProofEffect;
use crate::fault::SimulatedFault::{
    CutOff, EtcdStreamLost, LateAnswers, LeaseMemberLost, LostEvents, MemberLost, Replay, Rewound, Slow,
    StreamLost, UnresponsiveConnection, UnresponsiveStream,
};
use crate::network::Address;
use crate::plan::{Planned, WorldSettings};
use std::time::{Duration, Instant};

/// The bounds from the beginning of a fault until the agent has recovered from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultBounds {
    pub(crate) unseen: Duration,
    /// True if no fault hides events while the Lease is renewed: no proof is dated later than its state.
    pub(crate) dates_are_exact: bool,
    /// `Some` if the cache may be stale: until proof has been available for this time.
    pub(crate) stale_allowed: Option<Duration>,
}

impl FaultBounds {
    /// The bounds without faults: an event may be on its way, or a watch is being resumed.
    pub(crate) const FAIR: Self =
        Self { unseen: Duration::from_secs(2), dates_are_exact: true, stale_allowed: None };
    /// The bounds before the agent's first list.
    pub(crate) const BEGINNING: Self = Self { stale_allowed: Some(Duration::MAX), ..Self::FAIR };
}

/// The time for which a change may be missed after an episode: a watch may be resumed with backoff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aftermath {
    recovered: Option<Instant>,
    unseen: Duration,
    retry_after: Duration,
}

impl Aftermath {
    pub(crate) const NONE: Self =
        Self { recovered: None, unseen: Duration::ZERO, retry_after: Duration::ZERO };

    /// Begins now, after an episode after which the API server may still be left alone for `retry_after`.
    pub(crate) fn of(stale_after: Duration, retry_after: Duration) -> Self {
        Self { recovered: Some(nodegate_clock::now()), unseen: stale_after + GRACE, retry_after }
    }

    /// Returns true if the cache may be stale because of a `Retry-After`, after which no check was due.
    pub(crate) fn stale_allowed(&self) -> bool {
        !self.retry_after.is_zero() && self.lasts(self.retry_after)
    }

    fn lasts(&self, time: Duration) -> bool {
        self.recovered.is_some_and(|at| nodegate_clock::now().saturating_duration_since(at) <= time)
    }

    pub(crate) fn unseen(&self) -> Duration {
        if self.lasts(self.unseen) { self.unseen } else { Duration::ZERO }
    }
}

/// The longest delay of an event on its way through a connection.
pub(crate) const LATE: Duration = Duration::from_secs(8);
/// The longest delay of an answer on its way back.
pub(crate) const LATE_ANSWER: Duration = Duration::from_millis(4500);
/// The longest time of an answer that still gives proof in time. The check is sent a seventh of 15 s before the cache is
/// stale; if it finds a missed change, it, 300 ms for the watch and a list must fit into that time.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_millis(900);
/// The contract's bound for a missed change: `--stale-after` and a second.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// The bound if the server has lost one stream of an open connection.
const STREAM_LOST: Duration = Duration::from_secs(73);
/// The time without a bookmark after which the agent replaces a watch, whose events no longer count as proof.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);
/// The bound if only the API server's etcd client for Nodes, or only the Nodes' events, are lost.
pub(crate) const NODES_LOST: Duration = Duration::from_secs(100);

impl Planned {
    pub(crate) fn answers_late(&self) -> Duration {
        match self.fault {
            Slow => Duration::from_millis((200.0 + 2_400.0 * self.force) as u64),
            LateAnswers => LATE_ANSWER.mul_f64(0.05 + 0.95 * self.force),
            _ => Duration::ZERO,
        }
    }

    pub(crate) fn loses(&self) -> StreamKind {
        [StreamKind::Nodes, StreamKind::Leases, StreamKind::Services][(self.force * 2.99) as usize]
    }

    /// Returns true if the server loses the stream of the Nodes, and goes on with the Leases'.
    pub(crate) fn loses_nodes(&self) -> bool {
        match self.fault {
            UnresponsiveStream => true,
            StreamLost => self.loses() == StreamKind::Nodes,
            _ => false,
        }
    }

    /// Returns true if the fault cuts the API server's link to etcd: it reconnects at the end.
    pub(crate) fn cuts_off(&self) -> bool {
        matches!(self.fault, CutOff | MemberLost | LeaseMemberLost | EtcdStreamLost | Replay)
    }

    /// Returns true if the Node's events may be missing while the Lease's arrive, or if history goes back.
    pub(crate) fn hides_events(&self) -> bool {
        self.loses_nodes()
            || matches!(
                self.fault,
                MemberLost | EtcdStreamLost | UnresponsiveConnection | LostEvents | Rewound
            )
    }

    pub(crate) fn proof_effect(&self, address: Address) -> ProofEffect {
        match self.fault.proof_effect() {
            ProofEffect::BlocksServer if !self.all && address == Address::RoundRobin => ProofEffect::Disturbs,
            ProofEffect::BlocksServer => ProofEffect::Blocks,
            effect => effect,
        }
    }

    /// Returns the time for which a fresh answer may miss a change of the Node.
    pub(crate) fn unseen(&self, stale_after: Duration, world: &WorldSettings) -> Duration {
        let longer = match self.fault {
            _ if self.loses_nodes() => STREAM_LOST,
            MemberLost | EtcdStreamLost | LostEvents | UnresponsiveConnection => NODES_LOST,
            _ => Duration::ZERO,
        };
        let plain = stale_after + GRACE;
        if world.leases { plain.max(longer + GRACE) } else { plain }
    }
}
