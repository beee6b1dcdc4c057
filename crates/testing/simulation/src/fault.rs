//! The faults, with what each does to the agent's proof. `cluster.rs` plays them.

use std::fmt;

/// The time and the servers of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The fault is over as soon as it has happened.
    Moment,
    /// The fault lasts, and can hit one server alone.
    Server,
    /// The fault lasts, and hits all servers.
    Cluster,
}

/// The effect of a single fault on proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProofEffect {
    /// Proof stays available, and the cache must not become stale.
    None,
    /// Proof is interrupted, but not for long enough to make the cache stale.
    Disturbs,
    /// Proof may be unavailable while the fault lasts. Half-open and unreachable: the proof may be 10 s old
    /// when the fault begins, the kernel takes 4 s, and the first attempt waits for up to 1.5 s.
    Blocks,
    /// The same on its server. If the next attempt leads to another one, proof is only interrupted.
    BlocksServer,
}

/// The servers that give no proof while a fault lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopsProof {
    Nothing,
    /// The servers that the fault hits; the others give proof.
    ItsServers,
    Everything,
}

/// True in the last column: the fault leaves the connection alone, or does not concern the API.
const STAYS: bool = true;
const BREAKS: bool = false;

/// Defines the faults in one table.
macro_rules! faults {
    ($($fault:ident: $name:literal, $extent:ident, $effect:ident, $stops:ident, $connection:ident;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum SimulatedFault {
            $($fault,)*
        }

        impl SimulatedFault {
            pub(crate) const ALL: &[Self] = &[$(Self::$fault,)*];

            fn row(self) -> (&'static str, Extent, ProofEffect, StopsProof, bool) {
                match self {
                    $(Self::$fault => {
                        ($name, Extent::$extent, ProofEffect::$effect, StopsProof::$stops, $connection)
                    })*
                }
            }
        }
    };
}

faults! {
    CutOff: "cut off from etcd", Server, BlocksServer, ItsServers, BREAKS;
    MemberLost: "etcd member of the Nodes lost", Server, BlocksServer, ItsServers, BREAKS;
    LeaseMemberLost: "etcd member of the Leases lost", Server, None, Nothing, BREAKS;
    // The server answers late, and its answer sends the agent back to it.
    EtcdStreamLost: "etcd's stream of the Nodes lost", Server, Blocks, Everything, BREAKS;
    Frozen: "frozen", Server, BlocksServer, ItsServers, BREAKS;
    Killed: "killed", Server, BlocksServer, ItsServers, BREAKS;
    HalfOpen: "half-open", Moment, Blocks, Nothing, BREAKS;
    Unreachable: "unreachable", Server, Blocks, ItsServers, BREAKS;
    Reset: "connections reset", Moment, Disturbs, Nothing, BREAKS;
    GoAway: "GOAWAY", Moment, Disturbs, Nothing, BREAKS;
    UnresponsiveStream: "unresponsive stream of the Nodes", Cluster, Disturbs, Nothing, BREAKS;
    UnresponsiveConnection: "unresponsive connection", Cluster, Disturbs, Nothing, BREAKS;
    LostEvents: "lost events", Cluster, Disturbs, Nothing, BREAKS;
    LateEvents: "late events", Server, Disturbs, Nothing, BREAKS;
    Replay: "replay", Server, Blocks, ItsServers, BREAKS;
    Unauthorized: "401", Cluster, Blocks, Everything, BREAKS;
    Rotated: "401, new credentials at hand", Moment, Disturbs, Nothing, BREAKS;
    Forbidden: "403", Cluster, Blocks, Everything, STAYS;
    LeaseForbidden: "403 for Leases", Cluster, None, Nothing, STAYS;
    Expired: "410", Moment, Disturbs, Nothing, STAYS;
    Throttled: "429", Cluster, Blocks, Everything, STAYS;
    ServerErrors: "5xx", Cluster, Blocks, Everything, BREAKS;
    Malformed: "malformed", Cluster, Blocks, Everything, BREAKS;
    CutEvents: "cut in mid-event", Cluster, Blocks, Everything, BREAKS;
    Hanging: "never answered", Cluster, Blocks, Everything, BREAKS;
    Slow: "slow answers", Cluster, Blocks, Nothing, BREAKS;
    WatchesClosed: "watches closed at once", Cluster, Blocks, Everything, BREAKS;
    Rewound: "etcd restored from a copy", Cluster, Blocks, Everything, BREAKS;
    NodeReplaced: "Node deleted and made again", Moment, None, Nothing, BREAKS;
    KubeletDead: "kubelet dead", Cluster, None, Nothing, STAYS;
    ClockStep: "clock step", Moment, None, Nothing, STAYS;
    AgentRestarted: "agent restarted", Moment, Disturbs, Nothing, BREAKS;
    Starved: "agent starved", Cluster, Blocks, Everything, BREAKS;
    Refusals: "consistency check refused", Server, BlocksServer, ItsServers, STAYS;
    LateAnswers: "late answers", Cluster, Blocks, Nothing, BREAKS;
    StreamLost: "one stream lost", Moment, Disturbs, Nothing, BREAKS;
    NoBookmarks: "no bookmarks", Cluster, None, Nothing, STAYS;
}

impl SimulatedFault {
    pub(crate) fn is_a_moment(self) -> bool {
        self.row().1 == Extent::Moment
    }

    pub(crate) fn is_of_a_server(self) -> bool {
        self.row().1 == Extent::Server
    }

    pub(crate) fn proof_effect(self) -> ProofEffect {
        self.row().2
    }

    pub(crate) fn stops(self) -> StopsProof {
        self.row().3
    }

    pub(crate) fn keeps_the_connection(self) -> bool {
        self.row().4
    }
}

impl fmt::Display for SimulatedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.row().0)
    }
}
