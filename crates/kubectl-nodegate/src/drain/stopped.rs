//! The reasons why a drain stops early, as its last line names them.

use crate::cluster::ClusterError;
use nodegate_agent_client::WaitEnd;
use nodegate_readiness::probers::Unknown;
use std::io;
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub(super) enum DrainStopped {
    #[error("its agent does not answer, so it is unknown which balancers have acknowledged the drain: {0}")]
    NoAgent(String),
    #[error("not known whether balancers would be told: {0}")]
    Unknowable(Unknown),
    #[error(
        "not known whether balancers would be told: its agent has more probers than it can remember: {0} probe \
         requests found no slot; --balancers names the probers that count"
    )]
    Overflown(u64),
    #[error("its agent has no --traffic-port: it can't be known whether a session is left")]
    NoTrafficPort,
    #[error("not drained: it is unknown which balancers have acknowledged the drain")]
    NotKnown,
    #[error("refused: {ready} other {} Ready, --min-ready={demanded}", if *ready == 1 { "node is" } else { "nodes are" })]
    TooFewReady { ready: usize, demanded: usize },
    #[error("not drained: not all load balancers acknowledged the drain in time")]
    NotTold,
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("can't write a kubeconfig for kubectl: {0}")]
    HandOver(io::Error),
    #[error("can't run kubectl, which must be in the PATH: {0}")]
    NoKubectl(io::Error),
    #[error("kubectl drain would not do it: {0}")]
    WouldNot(String),
    #[error("kubectl drain ended with {0}")]
    Kubectl(ExitStatus),
    #[error("kubectl drain: {0}")]
    Lost(io::Error),
    #[error("broken off by {0}")]
    BrokenOff(&'static str),
}

impl DrainStopped {
    /// Returns the exit code: 3 if the balancers' acknowledgement can't be known; 1 if the drain was refused,
    /// timed out, was interrupted or failed.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::NoAgent(_)
            | Self::Unknowable(_)
            | Self::Overflown(_)
            | Self::NoTrafficPort
            | Self::NotKnown => WaitEnd::NotKnown.exit_code(),
            _ => WaitEnd::TimedOut.exit_code(),
        }
    }
}
