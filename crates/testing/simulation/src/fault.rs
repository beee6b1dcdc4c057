//! Names the faults of API servers, network, kubelet, clock and agent. `bounds.rs` has the contract's bounds
//! for each, `cluster.rs` its implementation.

use std::fmt;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SimulatedFault {
    CutOff,
    MemberLost,
    LeaseMemberLost,
    EtcdStreamLost,
    Frozen,
    Killed,
    HalfOpen,
    Unreachable,
    Reset,
    GoAway,
    UnresponsiveStream,
    UnresponsiveConnection,
    LostEvents,
    LateEvents,
    Replay,
    Unauthorized,
    Forbidden,
    LeaseForbidden,
    Expired,
    Throttled,
    ServerErrors,
    Malformed,
    CutEvents,
    Hanging,
    Slow,
    WatchesClosed,
    Rewound,
    NodeReplaced,
    KubeletDead,
    ClockStep,
    AgentRestarted,
    Starved,
    Refusals,
    LateAnswers,
    StreamLost,
    NoBookmarks,
}

impl SimulatedFault {
    pub(crate) const ALL: [Self; 36] = [
        Self::CutOff,
        Self::MemberLost,
        Self::LeaseMemberLost,
        Self::EtcdStreamLost,
        Self::Frozen,
        Self::Killed,
        Self::HalfOpen,
        Self::Unreachable,
        Self::Reset,
        Self::GoAway,
        Self::UnresponsiveStream,
        Self::UnresponsiveConnection,
        Self::LostEvents,
        Self::LateEvents,
        Self::Replay,
        Self::Unauthorized,
        Self::Forbidden,
        Self::LeaseForbidden,
        Self::Expired,
        Self::Throttled,
        Self::ServerErrors,
        Self::Malformed,
        Self::CutEvents,
        Self::Hanging,
        Self::Slow,
        Self::WatchesClosed,
        Self::Rewound,
        Self::NodeReplaced,
        Self::KubeletDead,
        Self::ClockStep,
        Self::AgentRestarted,
        Self::Starved,
        Self::Refusals,
        Self::LateAnswers,
        Self::StreamLost,
        Self::NoBookmarks,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CutOff => "cut off from etcd",
            Self::MemberLost => "etcd member of the Nodes lost",
            Self::LeaseMemberLost => "etcd member of the Leases lost",
            Self::EtcdStreamLost => "etcd's stream of the Nodes lost",
            Self::Frozen => "frozen",
            Self::Killed => "killed",
            Self::HalfOpen => "half-open",
            Self::Unreachable => "unreachable",
            Self::Reset => "connections reset",
            Self::GoAway => "GOAWAY",
            Self::UnresponsiveStream => "unresponsive stream of the Nodes",
            Self::UnresponsiveConnection => "unresponsive connection",
            Self::LostEvents => "lost events",
            Self::LateEvents => "late events",
            Self::Replay => "replay",
            Self::Unauthorized => "401",
            Self::Forbidden => "403",
            Self::LeaseForbidden => "403 for Leases",
            Self::Expired => "410",
            Self::Throttled => "429",
            Self::ServerErrors => "5xx",
            Self::Malformed => "malformed",
            Self::CutEvents => "cut in mid-event",
            Self::Hanging => "never answered",
            Self::Slow => "slow answers",
            Self::WatchesClosed => "watches closed at once",
            Self::Rewound => "etcd restored from a copy",
            Self::NodeReplaced => "Node deleted and made again",
            Self::KubeletDead => "kubelet dead",
            Self::ClockStep => "clock step",
            Self::AgentRestarted => "agent restarted",
            Self::Starved => "agent starved",
            Self::Refusals => "consistency check refused",
            Self::LateAnswers => "late answers",
            Self::StreamLost => "one stream lost",
            Self::NoBookmarks => "no bookmarks",
        }
    }

    /// Returns true if the fault is over as soon as it has happened.
    pub(crate) fn is_a_moment(self) -> bool {
        matches!(
            self,
            Self::HalfOpen
                | Self::Reset
                | Self::GoAway
                | Self::Expired
                | Self::NodeReplaced
                | Self::ClockStep
                | Self::AgentRestarted
                | Self::StreamLost
        )
    }

    /// Returns true if the fault can hit one server alone.
    pub(crate) fn is_of_a_server(self) -> bool {
        matches!(
            self,
            Self::CutOff
                | Self::MemberLost
                | Self::LeaseMemberLost
                | Self::EtcdStreamLost
                | Self::Frozen
                | Self::Killed
                | Self::Unreachable
                | Self::LateEvents
                | Self::Replay
                | Self::Refusals
        )
    }
}

impl fmt::Display for SimulatedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
