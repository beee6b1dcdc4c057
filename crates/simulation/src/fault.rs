//! What befalls the API servers, the path to them, the kubelet and the clock; and what the contract says of each.

use crate::network::Address;
use std::fmt;
use std::time::Duration;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
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
    DeafStream,
    DeafConnection,
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
}

/// What a fault does to proof, alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// There is proof all the same, and no reason to be stale.
    None,
    /// Proof is interrupted, for less than makes stale.
    Disturbs,
    /// There may be none while it lasts. Half-open and unreachable: the proof may be 10 s old when it begins, the kernel takes
    /// 4 s, and the first attempt waits for up to 1.5 s.
    Blocks,
}

/// The most by which events come late.
pub(crate) const LATE: Duration = Duration::from_secs(3);
/// The contract's bound for a missed change: `--stale-after` and a second.
const GRACE: Duration = Duration::from_secs(1);
/// One stream of a live connection was lost by the server.
pub(crate) const STREAM_LOST: Duration = Duration::from_secs(73);
/// The Nodes' client of etcd alone is gone, or Nodes' events alone.
pub(crate) const NODES_LOST: Duration = Duration::from_secs(100);

impl Fault {
    pub(crate) const ALL: [Self; 31] = [
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
        Self::DeafStream,
        Self::DeafConnection,
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
            Self::DeafStream => "deaf stream of the Nodes",
            Self::DeafConnection => "deaf connection",
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
        }
    }

    /// Over as soon as it has happened.
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
        )
    }

    /// Whether it befalls one server and not the others.
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
        )
    }

    /// What it does to proof; `all` servers may be hit by it, or one of those behind `address`.
    pub(crate) fn weight(self, address: Address, all: bool) -> Weight {
        match self {
            Self::LeaseMemberLost
            | Self::LeaseForbidden
            | Self::NodeReplaced
            | Self::KubeletDead
            | Self::ClockStep => Weight::None,
            Self::Reset
            | Self::GoAway
            | Self::Expired
            | Self::LateEvents
            | Self::DeafStream
            | Self::DeafConnection
            | Self::LostEvents
            | Self::AgentRestarted => Weight::Disturbs,
            Self::CutOff | Self::MemberLost | Self::Frozen | Self::Killed
                if !all && address == Address::InTurn =>
            {
                Weight::Disturbs
            }
            _ => Weight::Blocks,
        }
    }

    /// For how long a change may be missed while a fresh answer is given.
    pub(crate) fn unseen(self, stale_after: Duration, with_leases: bool) -> Duration {
        let longer = match self {
            Self::DeafStream => STREAM_LOST,
            Self::MemberLost | Self::EtcdStreamLost | Self::LostEvents | Self::DeafConnection => NODES_LOST,
            _ => Duration::ZERO,
        };
        let plain = stale_after + GRACE;
        if with_leases { plain.max(longer + GRACE) } else { plain }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
