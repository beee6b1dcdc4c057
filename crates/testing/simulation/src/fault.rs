//! Names the faults of API servers, network, kubelet, clock and agent. `bounds.rs` has the contract's bounds
//! for each, `cluster.rs` its implementation.

use std::fmt;

/// Defines the faults and their names in one list.
macro_rules! faults {
    ($($fault:ident: $name:literal,)*) => {
        /// The kinds of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum SimulatedFault {
            $($fault,)*
        }

        impl SimulatedFault {
            pub(crate) const ALL: &[Self] = &[$(Self::$fault,)*];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$fault => $name,)*
                }
            }
        }
    };
}

faults! {
    CutOff: "cut off from etcd",
    MemberLost: "etcd member of the Nodes lost",
    LeaseMemberLost: "etcd member of the Leases lost",
    EtcdStreamLost: "etcd's stream of the Nodes lost",
    Frozen: "frozen",
    Killed: "killed",
    HalfOpen: "half-open",
    Unreachable: "unreachable",
    Reset: "connections reset",
    GoAway: "GOAWAY",
    UnresponsiveStream: "unresponsive stream of the Nodes",
    UnresponsiveConnection: "unresponsive connection",
    LostEvents: "lost events",
    LateEvents: "late events",
    Replay: "replay",
    Unauthorized: "401",
    Forbidden: "403",
    LeaseForbidden: "403 for Leases",
    Expired: "410",
    Throttled: "429",
    ServerErrors: "5xx",
    Malformed: "malformed",
    CutEvents: "cut in mid-event",
    Hanging: "never answered",
    Slow: "slow answers",
    WatchesClosed: "watches closed at once",
    Rewound: "etcd restored from a copy",
    NodeReplaced: "Node deleted and made again",
    KubeletDead: "kubelet dead",
    ClockStep: "clock step",
    AgentRestarted: "agent restarted",
    Starved: "agent starved",
    Refusals: "consistency check refused",
    LateAnswers: "late answers",
    StreamLost: "one stream lost",
    NoBookmarks: "no bookmarks",
}

impl SimulatedFault {
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
