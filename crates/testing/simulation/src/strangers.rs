//! Simulates hostile clients: forgers at the balancer's address, and floods from other addresses. Their
//! probes must not make told true too early, and with `--balancers` must not delay it. `world.rs` calls it.

use crate::oracle::KINDS;
use crate::plan::Strangers;
use crate::trace::note;
use crate::truth::ProbeKind;
use crate::world::RunningWorld;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// The time without a forger after which an agent knows the balancer's pace. It remembers the pace for an
/// hour, which is longer than a world.
const PACE_IS_KNOWN: Duration = Duration::from_mins(4);

impl RunningWorld {
    /// Lets the hostile clients probe, and schedules the next time.
    pub(crate) fn strangers_ask(&mut self, now: Instant) {
        let hurry = now.saturating_duration_since(self.agent.last_pool_change()) < Duration::from_secs(3);
        let pause = if hurry { self.random.u64(5..60) } else { self.random.u64(200..20_000) };
        self.schedule.strangers = now + Duration::from_millis(pause);
        if !self.listens {
            return;
        }
        match self.settings.strangers {
            Strangers::None => self.schedule.strangers = now + Duration::from_hours(1000),
            Strangers::Forger if now.saturating_duration_since(self.balancer.began()) < PACE_IS_KNOWN => {}
            Strangers::Forger | Strangers::OldForger => {
                let times = self.random.u32(1..6);
                for _ in 0..times {
                    for kind in KINDS {
                        drop(self.agent.ask(kind));
                    }
                }
                self.report.forged += u64::from(times);
            }
            Strangers::Flood => {
                note!(self.trace, "strangers probe");
                for _ in 0..self.random.u32(1..40) {
                    let peer = Ipv4Addr::from(0x0a09_0000 | self.random.u32(..400));
                    drop(self.agent.ask_as(IpAddr::V4(peer), ProbeKind::Health));
                }
            }
        }
    }
}
