//! What the contract says of each fault: what it does to proof, for how long a change may be missed, and when
//! the agent must be fresh again although a fault is still there.

use crate::fault::SimulatedFault;
use crate::link::Carries;
use crate::network::Address;
use crate::plan::World;
use crate::planned::Planned;
use std::time::{Duration, Instant};

/// What a fault does to proof, alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// There is proof all the same, and no reason to be stale.
    None,
    /// Proof is interrupted, for less than makes stale.
    Disturbs,
    /// There may be none while it lasts. Half-open and unreachable: the proof may be 10 s old when it begins,
    /// the kernel takes 4 s, and the first attempt waits for up to 1.5 s.
    Blocks,
}

/// What holds from a fault on, until the agent has shown that it is over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laws {
    /// A change of the Node may be missed for so long.
    pub(crate) unseen: Duration,
    /// Nothing hides events of the Node while its Lease is renewed, so proof must not be dated later than the
    /// state it is of.
    pub(crate) dates_are_exact: bool,
    /// A change of the Service.
    pub(crate) service_unseen: Duration,
    /// The faults may make stale, until proof has been to be had for this time.
    pub(crate) stale_allowed: Option<Duration>,
    /// What is held of the Service may be stale.
    pub(crate) service_stale_allowed: bool,
}

impl Laws {
    /// In fair weather a change is seen within this time: an event that is on its way, a watch that is being
    /// resumed.
    const FAIR_UNSEEN: Duration = Duration::from_secs(2);
    pub(crate) const FAIR: Self = Self {
        unseen: Self::FAIR_UNSEEN,
        dates_are_exact: true,
        service_unseen: Self::FAIR_UNSEEN,
        stale_allowed: None,
        service_stale_allowed: false,
    };
    /// The agent has not had the time for its first list.
    pub(crate) const BEGINNING: Self =
        Self { stale_allowed: Some(Duration::MAX), service_stale_allowed: true, ..Self::FAIR };
}

/// For how long a change may be missed after an episode: the agent may just have replaced a watch, which it
/// resumes with backoff, and a Service's watch may have been opened on a connection that stays unresponsive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aftermath {
    /// The time at which the agent had recovered.
    recovered: Option<Instant>,
    unseen: Duration,
    service_unseen: Duration,
}

impl Aftermath {
    pub(crate) const NONE: Self =
        Self { recovered: None, unseen: Duration::ZERO, service_unseen: Duration::ZERO };

    /// Begins now, after an episode in which a change of the Service could be missed for this time.
    pub(crate) fn of(stale_after: Duration, service_unseen: Duration) -> Self {
        Self { recovered: Some(nodegate_clock::now()), unseen: stale_after + GRACE, service_unseen }
    }

    fn lasts(&self, time: Duration) -> bool {
        self.recovered.is_some_and(|at| nodegate_clock::now().saturating_duration_since(at) <= time)
    }

    /// Returns the time for which a change of the Node may be missed.
    pub(crate) fn unseen(&self) -> Duration {
        if self.lasts(self.unseen) { self.unseen } else { Duration::ZERO }
    }

    /// Returns the time for which a change of the Service may be missed.
    pub(crate) fn service_unseen(&self) -> Duration {
        if self.lasts(self.service_unseen) { self.service_unseen } else { Duration::ZERO }
    }
}

/// Where no proof can be had while a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stops {
    /// Proof can be had everywhere.
    Nothing,
    /// Proof can be had from the servers that the fault does not hit.
    ItsServers,
    /// No proof can be had.
    Everything,
}

/// The longest delay of an event on its way through a connection.
pub(crate) const LATE: Duration = Duration::from_secs(8);
/// The longest delay of an answer on its way back.
pub(crate) const LATE_ANSWER: Duration = Duration::from_millis(4500);
/// An answer that takes longer than this is none. The consistency check is sent a seventh of 15 s before the
/// cache is stale. If it finds that the watch has missed a change, its answer, 300 ms for the watch and the
/// answer to a list must fit in.
const ANSWERED_WITHIN: Duration = Duration::from_millis(900);
/// The contract's bound for a missed change: `--stale-after` and a second.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// One stream of a live connection was lost by the server.
const STREAM_LOST: Duration = Duration::from_secs(73);
/// A watch without a bookmark for this time is replaced, and what it said is proof no more.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);
/// The Nodes' client of etcd alone is gone, or Nodes' events alone.
pub(crate) const NODES_LOST: Duration = Duration::from_secs(100);

impl Planned {
    /// How late the fault makes answers.
    pub(crate) fn answers_late(&self) -> Duration {
        match self.fault {
            SimulatedFault::Slow => Duration::from_millis((200.0 + 2_400.0 * self.force) as u64),
            SimulatedFault::LateAnswers => LATE_ANSWER.mul_f64(0.05 + 0.95 * self.force),
            _ => Duration::ZERO,
        }
    }

    /// Whose stream a server loses.
    pub(crate) fn loses(&self) -> Carries {
        [Carries::Nodes, Carries::Leases, Carries::Services][(self.force * 2.99) as usize]
    }

    /// Returns true if the server loses the stream of the Nodes, and goes on with the Leases'.
    pub(crate) fn loses_nodes(&self) -> bool {
        match self.fault {
            SimulatedFault::UnresponsiveStream => true,
            SimulatedFault::StreamLost => self.loses() == Carries::Nodes,
            _ => false,
        }
    }

    /// Returns true if the Node's events may be missing while the Lease's arrive, or if history goes back.
    pub(crate) fn hides_events(&self) -> bool {
        self.loses_nodes()
            || matches!(
                self.fault,
                SimulatedFault::MemberLost
                    | SimulatedFault::EtcdStreamLost
                    | SimulatedFault::UnresponsiveConnection
                    | SimulatedFault::LostEvents
                    | SimulatedFault::Rewound
            )
    }

    /// What it does to proof behind `address`.
    pub(crate) fn weight(&self, address: Address) -> Weight {
        match self.fault {
            SimulatedFault::LeaseMemberLost
            | SimulatedFault::LeaseForbidden
            | SimulatedFault::NodeReplaced
            | SimulatedFault::KubeletDead
            | SimulatedFault::ClockStep
            | SimulatedFault::NoBookmarks => Weight::None,
            SimulatedFault::Reset
            | SimulatedFault::GoAway
            | SimulatedFault::Expired
            | SimulatedFault::LateEvents
            | SimulatedFault::UnresponsiveStream
            | SimulatedFault::UnresponsiveConnection
            | SimulatedFault::LostEvents
            | SimulatedFault::StreamLost
            | SimulatedFault::AgentRestarted => Weight::Disturbs,
            SimulatedFault::CutOff
            | SimulatedFault::MemberLost
            | SimulatedFault::Frozen
            | SimulatedFault::Killed
            | SimulatedFault::Refusals
                if !self.all && address == Address::InTurn =>
            {
                Weight::Disturbs
            }
            _ => Weight::Blocks,
        }
    }

    /// Where no proof can be had while it lasts.
    pub(crate) fn stops(&self) -> Stops {
        match self.fault {
            SimulatedFault::CutOff
            | SimulatedFault::MemberLost
            | SimulatedFault::Frozen
            | SimulatedFault::Killed
            | SimulatedFault::Unreachable
            | SimulatedFault::Replay
            | SimulatedFault::Refusals => Stops::ItsServers,
            // The server answers, late, and what it answers sends the agent back to it.
            SimulatedFault::EtcdStreamLost
            | SimulatedFault::Unauthorized
            | SimulatedFault::Forbidden
            | SimulatedFault::Throttled
            | SimulatedFault::ServerErrors
            | SimulatedFault::Malformed
            | SimulatedFault::CutEvents
            | SimulatedFault::Hanging
            | SimulatedFault::WatchesClosed
            | SimulatedFault::Rewound
            | SimulatedFault::Starved => Stops::Everything,
            _ if self.answers_late() > ANSWERED_WITHIN => Stops::Everything,
            _ => Stops::Nothing,
        }
    }

    /// For how long a change of the Node may be missed while a fresh answer is given.
    pub(crate) fn unseen(&self, stale_after: Duration, world: &World) -> Duration {
        let longer = match self.fault {
            _ if self.loses_nodes() => STREAM_LOST,
            SimulatedFault::MemberLost
            | SimulatedFault::EtcdStreamLost
            | SimulatedFault::LostEvents
            | SimulatedFault::UnresponsiveConnection => NODES_LOST,
            _ => Duration::ZERO,
        };
        let plain = stale_after + GRACE;
        if world.leases { plain.max(longer + GRACE) } else { plain }
    }

    /// For how long a change of the Service may be missed while it is called fresh. The consistency check
    /// asks for the Node: only missing bookmarks tell that a Service's stream is lost, is late, or waits for
    /// a version of another history.
    pub(crate) fn service_unseen(&self, stale_after: Duration, world: &World) -> Duration {
        let longer = match self.fault {
            SimulatedFault::UnresponsiveStream
            | SimulatedFault::UnresponsiveConnection
            | SimulatedFault::LateEvents
            | SimulatedFault::Rewound => BOOKMARK_OVERDUE,
            SimulatedFault::StreamLost if self.loses() == Carries::Services => BOOKMARK_OVERDUE,
            _ => Duration::ZERO,
        };
        if world.service { longer + stale_after + GRACE } else { Duration::ZERO }
    }
}
