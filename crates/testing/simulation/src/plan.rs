//! A seed makes a world and, for each episode in it, a plan.

use crate::fault::SimulatedFault;
use crate::network::Address;
use crate::planned::{Planned, seconds};
use crate::rare;
use fastrand::Rng;
use nodegate_readiness::OnStale;
use nodegate_readiness::probers::ToldSettings;
use nodegate_server::ProberSettings;
use std::time::Duration;

/// What a world is like.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) servers: usize,
    pub(crate) address: Address,
    /// Whether the agent may read Leases.
    pub(crate) leases: bool,
    /// Whether the agent watches a Service besides.
    pub(crate) service: bool,
    pub(crate) on_stale: OnStale,
    /// Other nodes write so often.
    pub(crate) noise_every: Duration,
    /// Who asks and is no load balancer.
    pub(crate) strangers: Strangers,
    /// `--unknown-after`.
    pub(crate) unknown_after: Duration,
}

/// What is to happen in an episode, after its calm.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) calm: Duration,
    /// Whether the control plane loses sight of the kubelet meanwhile.
    pub(crate) silence: bool,
    pub(crate) faults: Vec<Planned>,
    /// The Node changes this often, on average.
    pub(crate) event_every: Duration,
}

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

impl World {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let servers = random.usize(2..=3);
        let address = match random.u32(..10) {
            0..3 => Address::Direct,
            3..7 => Address::InTurn,
            _ => Address::AtRandom,
        };
        let on_stale = match random.u32(..4) {
            0 | 1 => OnStale::Ready,
            2 => OnStale::KeepDrain,
            _ => OnStale::NotReady,
        };
        let noise_every = seconds(random, 1.0, 6.0);
        let (leases, service) = (random.u32(..3) > 0, random.u32(..4) == 0);
        let (strangers, unknown_after) = (Strangers::draw(random), seconds(random, 4.0, 20.0));
        Self { servers, address, leases, service, on_stale, noise_every, strangers, unknown_after }
    }
}

/// One plan in so many is one of `rare.rs`.
const RARE: u32 = 30;

impl Plan {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let calm = seconds(random, 0.5, 25.0);
        let silence = random.u32(..8) == 0;
        let mut faults = if random.u32(..RARE) == 0 { rare::draw(random) } else { by_chance(random) };
        faults.sort_by_key(|planned| planned.from);
        Self { calm, silence, faults, event_every: seconds(random, 1.0, 12.0) }
    }
}

/// Draws faults of which each may come with each.
fn by_chance(random: &mut Rng) -> Vec<Planned> {
    let count = [1, 2, 2, 3, 3, 4][random.usize(..6)];
    // All of them longer than a bookmark's interval.
    let long = random.u32(..20) == 0;
    let mut faults = Vec::new();
    while faults.len() < count {
        let fault = SimulatedFault::ALL[random.usize(..SimulatedFault::ALL.len())];
        if faults.iter().all(|planned: &Planned| planned.fault != fault) {
            faults.push(Planned::draw(fault, long, random));
        }
    }
    if random.bool() {
        bring_together(&mut faults, random);
    }
    faults
}

/// Lets faults begin about when another begins or ends: what one of them has begun is in the middle then.
fn bring_together(faults: &mut [Planned], random: &mut Rng) {
    for number in 1..faults.len() {
        let other = &faults[random.usize(..number)];
        let edge = if random.bool() { other.from } else { other.until };
        let lasts = faults[number].until.saturating_sub(faults[number].from);
        faults[number].from = edge.saturating_sub(seconds(random, 0.0, 1.0)) + seconds(random, 0.0, 3.0);
        faults[number].until = faults[number].from + lasts;
    }
}
