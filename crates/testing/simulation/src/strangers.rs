//! Who asks and is no load balancer: forgers at the balancer's own address, and floods from others. No answer that they get may
//! make told true before the balancer has had its own, and with `--balancers` none may delay it.

use crate::oracle::KINDS;
use crate::trace::note;
use crate::truth::ProbeKind;
use crate::world::RunningWorld;
use fastrand::Rng;
use nodegate_readiness::probers::ToldSettings;
use nodegate_server::ProberSettings;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// An agent knows the balancer's own pace after it has listened for this time without a forger. It remembers it for an hour, and
/// no world is that long.
const PACE_IS_KNOWN: Duration = Duration::from_mins(4);
/// `--told-interval`, where a forger was there from the beginning.
const TOLD_INTERVAL: Duration = Duration::from_millis(220);
const BALANCERS: &str = "10.0.0.0/24";

/// Who asks besides the balancers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strangers {
    /// Nobody.
    None,
    /// A forger at the balancer's address, which comes when the agent has listened for some minutes.
    Forger,
    /// A forger that was there before; `--told-interval` is set.
    OldForger,
    /// Many from elsewhere, with `--balancers` set.
    Flood,
}

impl Strangers {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        [Self::None, Self::None, Self::Forger, Self::OldForger, Self::Flood][random.usize(..5)]
    }

    /// Whether someone asks at the balancer's address, whose own questions come at an even pace then.
    pub(crate) fn forge(self) -> bool {
        matches!(self, Self::Forger | Self::OldForger)
    }

    /// The agent's settings.
    pub(crate) fn settings(self) -> ProberSettings {
        let interval_ms = (self == Self::OldForger).then_some(TOLD_INTERVAL.as_millis() as u64);
        let balancers = if self == Self::Flood { BALANCERS } else { "" };
        ProberSettings {
            balancers: balancers.parse().unwrap_or_default(),
            traffic: None,
            told: ToldSettings { interval_ms, ..ToldSettings::default() },
        }
    }
}

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
