//! What the host of the agent says of its own shutdown, in the directory of `--host-signals`.

use crate::check::Outcome;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// The reason while the host is going down.
pub const NODE_SHUTDOWN: &str = "NodeShutdown";

/// What the host reports about its own shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSignals {
    /// True while the host is going down.
    pub shutdown: bool,
    /// True while `nodegate-shutdown` holds the lock with which it delays a shutdown.
    pub lock: bool,
    /// The longest time that systemd-logind lets the lock delay a shutdown, in milliseconds; `null` if not known.
    pub delay_ms: Option<u64>,
}

impl HostSignals {
    /// Returns the outcome of `node_ready` while the host is going down. It needs no API server, and a kubelet
    /// that says Ready=False because of the shutdown does not change it.
    pub(crate) fn outcome(self) -> Option<Outcome> {
        self.shutdown.then(|| Outcome::Draining(Reason::new(NODE_SHUTDOWN)))
    }
}
