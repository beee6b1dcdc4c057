//! Draws the settings of a world, and a plan for each episode, from a seed. `world.rs` and `episode.rs` call
//! it.

use crate::fault::SimulatedFault;
use crate::network::Address;
use crate::planned::{Planned, seconds};
use crate::rare;
use fastrand::Rng;
use nodegate_readiness::{OnStale, Policy};
use std::time::Duration;

/// The settings of a world.
#[derive(Clone, Debug)]
pub(crate) struct WorldSettings {
    pub(crate) servers: usize,
    pub(crate) address: Address,
    /// True if the agent may read Leases.
    pub(crate) leases: bool,
    /// True if the agent also watches a Service.
    pub(crate) service: bool,
    pub(crate) on_stale: OnStale,
    /// The average interval of other nodes' writes.
    pub(crate) noise_every: Duration,
}

/// The plan of an episode.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) calm: Duration,
    pub(crate) faults: Vec<Planned>,
    /// The average interval of the Node's changes.
    pub(crate) event_every: Duration,
}

impl WorldSettings {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let servers = random.usize(2..=3);
        let address = match random.u32(..10) {
            0..3 => Address::Direct,
            3..7 => Address::RoundRobin,
            _ => Address::Random,
        };
        let on_stale = match random.u32(..4) {
            0 | 1 => OnStale::Ready,
            2 => OnStale::KeepDrain,
            _ => OnStale::NotReady,
        };
        let noise_every = seconds(random, 1.0, 6.0);
        let (leases, service) = (random.u32(..3) > 0, random.u32(..4) == 0);
        Self { servers, address, leases, service, on_stale, noise_every }
    }

    /// Returns the agent's rules.
    pub(crate) fn policy(&self) -> Policy {
        Policy { on_stale: self.on_stale, ..Policy::default() }
    }
}

/// One plan of this number comes from `rare.rs`.
const RARE: u32 = 30;

impl Plan {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let calm = seconds(random, 0.5, 25.0);
        let mut faults = if random.u32(..RARE) == 0 { rare::draw(random) } else { by_chance(random) };
        faults.sort_by_key(|planned| planned.from);
        Self { calm, faults, event_every: seconds(random, 1.0, 12.0) }
    }
}

/// Draws faults in any combination.
fn by_chance(random: &mut Rng) -> Vec<Planned> {
    let count = [1, 2, 2, 3, 3, 4][random.usize(..6)];
    // All faults last longer than a bookmark's interval.
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

/// Moves faults so that they begin about when another begins or ends, in the middle of its effects.
fn bring_together(faults: &mut [Planned], random: &mut Rng) {
    for number in 1..faults.len() {
        let other = &faults[random.usize(..number)];
        let edge = if random.bool() { other.from } else { other.until };
        let lasts = faults[number].until.saturating_sub(faults[number].from);
        faults[number].from = edge.saturating_sub(seconds(random, 0.0, 1.0)) + seconds(random, 0.0, 3.0);
        faults[number].until = faults[number].from + lasts;
    }
}
