//! Who asks and is no load balancer: forgers at the balancer's own address, and floods from others. No answer
//! that they get may make told true before the balancer has had its own, and with `--balancers` none may
//! delay it.

use crate::oracle::KINDS;
use crate::plan::Strangers;
use crate::trace::note;
use crate::truth::ProbeKind;
use crate::world::RunningWorld;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// An agent knows the balancer's own pace after it has listened for this time without a forger. It remembers
/// it for an hour, and no world is that long.
const PACE_IS_KNOWN: Duration = Duration::from_mins(4);

impl RunningWorld {
    /// The strangers' turn.
    pub(crate) fn strangers_ask(&mut self, now: Instant) {
        let hurry = now.saturating_duration_since(self.agent.turned()) < Duration::from_secs(3);
        let pause = if hurry { self.random.u64(5..60) } else { self.random.u64(200..20_000) };
        self.turns.strangers = now + Duration::from_millis(pause);
        if !self.listens {
            return;
        }
        match self.shape.strangers {
            Strangers::None => self.turns.strangers = now + Duration::from_hours(1000),
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
                note!(self.trace, "strangers ask");
                for _ in 0..self.random.u32(1..40) {
                    let peer = Ipv4Addr::from(0x0a09_0000 | self.random.u32(..400));
                    drop(self.agent.ask_as(IpAddr::V4(peer), ProbeKind::Health));
                }
            }
        }
    }
}
