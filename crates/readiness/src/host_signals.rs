//! What the host of the agent says of its own shutdown, in the directory of `--host-signals`.

use crate::reason::Reason;
use crate::state::State;
use crate::status::Status;
use crate::{Board, Moment, Outcome, Verdict};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// The reason while the host is going down.
pub const NODE_SHUTDOWN: &str = "NodeShutdown";

/// What the host says of its own shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSignals {
    /// True while the host is going down.
    pub shutdown: bool,
    /// True while `nodegate-shutdown` holds the lock with which it delays a shutdown.
    pub lock: bool,
    /// The longest delay of a shutdown in milliseconds; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

impl State {
    /// Returns the outcome of `node_ready` while the host is going down. It needs no API server, and a kubelet
    /// that says Ready=False because of the shutdown does not change it.
    pub(crate) fn shutting_down(&self) -> Option<Outcome> {
        self.host.filter(|host| host.shutdown).map(|_| Outcome::Draining(Reason::new(NODE_SHUTDOWN)))
    }
}

impl Board {
    /// Records what the host says of its own shutdown.
    pub fn set_host(&self, host: HostSignals, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| {
            let changed = state.host != Some(host);
            state.host = Some(host);
            changed
        });
    }

    /// Returns what the host says of its own shutdown; `None` without `--host-signals`.
    pub fn host(&self) -> Option<HostSignals> {
        self.published().state.host
    }
}

impl Status {
    /// Returns true if the verdict follows from a stale cache. That of a host that is going down does not.
    pub fn rests_on_stale_cache(&self) -> bool {
        let by_host = self.checks.iter().any(|check| {
            let is_shutdown = check.reason.as_ref().is_some_and(|reason| reason.code() == NODE_SHUTDOWN);
            check.default && check.verdict == Some(Verdict::Draining) && is_shutdown
        });
        self.cache.stale && !by_host
    }

    /// Returns what an operator should know of the shutdown of this host; `None` if nothing is wrong.
    pub(crate) fn shutdown_hint(&self) -> Option<String> {
        let host = self.host.filter(|host| !host.shutdown)?;
        if !host.lock {
            return Some(
                "nodegate-shutdown holds no lock: a reboot of this host does not wait for load balancers"
                    .into(),
            );
        }
        let (delay, needs) = (host.delay_ms?, self.told_needs_ms()?);
        (delay < needs).then(|| delay_too_short(Duration::from_millis(delay), Duration::from_millis(needs)))
    }
}

/// Explains that a shutdown ends before the slowest load balancer knows of it.
pub fn delay_too_short(delay: Duration, needs: Duration) -> String {
    let seconds = |time: Duration| time.as_millis().div_ceil(1000);
    format!(
        "a shutdown is delayed by at most {} s, but the slowest load balancer needs {} s: raise InhibitDelayMaxSec= of \
         systemd-logind",
        seconds(delay),
        seconds(needs)
    )
}
