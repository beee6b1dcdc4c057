//! Draws the settings of a world, and a plan of faults for each episode, from a seed.

use crate::fault::SimulatedFault;
use crate::network::Address;
use fastrand::Rng;
use nodegate_readiness::{OnStale, Policy};
use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct WorldSettings {
    pub(crate) servers: usize,
    pub(crate) address: Address,
    pub(crate) leases: bool,
    pub(crate) service: bool,
    /// True if a client keeps the credentials with which it was made, as with a token; else each request has new ones.
    pub(crate) fixed_credentials: bool,
    pub(crate) on_stale: OnStale,
    /// The average interval of other nodes' writes.
    pub(crate) noise_every: Duration,
}

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
        let noise_every = seconds(random, 1.0..6.0);
        let (leases, service) = (random.u32(..3) > 0, random.u32(..4) == 0);
        let fixed_credentials = random.bool();
        Self { servers, address, leases, service, fixed_credentials, on_stale, noise_every }
    }

    pub(crate) fn policy(&self) -> Policy {
        Policy { on_stale: self.on_stale, ..Policy::default() }
    }
}

/// One plan of this number is one of [`PLANS`].
const RARE: u32 = 30;

impl Plan {
    pub(crate) fn draw(random: &mut Rng) -> Self {
        let calm = seconds(random, 0.5..25.0);
        let mut faults = if random.u32(..RARE) == 0 { draw_rare(random) } else { by_chance(random) };
        faults.sort_by_key(|planned| planned.from);
        Self { calm, faults, event_every: seconds(random, 1.0..12.0) }
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
        faults[number].from = edge.saturating_sub(seconds(random, 0.0..1.0)) + seconds(random, 0.0..3.0);
        faults[number].until = faults[number].from + lasts;
    }
}

/// The time for which a momentary fault has effects: that in which the kernel gives a connection up.
const AFTERMATH: Duration = Duration::from_secs(4);

#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: SimulatedFault,
    pub(crate) from: Duration,
    /// The end; the same as `from` for a momentary fault.
    pub(crate) until: Duration,
    pub(crate) all: bool,
    /// True if the fault hits the server that the agent uses, false for another one. Without effect if `all`.
    pub(crate) in_use: bool,
    /// The force of the fault, from 0 to 1: the share of requests, the delay, or the distance.
    pub(crate) force: f64,
}

impl Planned {
    pub(crate) fn draw(fault: SimulatedFault, long: bool, random: &mut Rng) -> Self {
        let from = seconds(random, 0.0..12.0);
        let lasts = match random.u32(..3) {
            _ if long => seconds(random, 70.0..110.0),
            // The agent misses a bookmark after a minute at the earliest.
            _ if fault == SimulatedFault::NoBookmarks => seconds(random, 70.0..160.0),
            0 => seconds(random, 0.2..9.0),
            1 => seconds(random, 9.0..22.0),
            _ => seconds(random, 18.0..45.0),
        };
        let until = if fault.is_a_moment() { from } else { from + lasts };
        Self {
            fault,
            from,
            until,
            all: !fault.is_of_a_server() || random.u32(..4) == 0,
            in_use: random.u32(..4) > 0,
            force: random.f64(),
        }
    }

    /// Returns true if both faults were active at the same time. A momentary one has effects for some seconds.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let until = |planned: &Self| planned.until.max(planned.from + AFTERMATH);
        self.from <= until(other) && other.from <= until(self)
    }
}

fn drawn(random: &mut Rng, Range { start, end }: Range<f64>) -> f64 {
    start + (end - start) * random.f64()
}

/// Draws a time in whole milliseconds, the resolution of tokio's timers.
fn seconds(random: &mut Rng, range: Range<f64>) -> Duration {
    Duration::from_millis(Duration::from_secs_f64(drawn(random, range)).as_millis() as u64)
}

// === Plans that random faults produce too rarely ===

/// One fault of a plan whose faults test a protection only together, in this order, and for long enough: its beginning
/// and its duration in seconds, the servers that it hits, and its force. Values are drawn evenly from the ranges.
type Step = (SimulatedFault, Range<f64>, Range<f64>, Hits, Range<f64>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hits {
    All,
    InUse,
    Another,
}

/// The force with which [`SimulatedFault::Refusals`] refuses every check without `Retry-After`.
const EVERY_CHECK: Range<f64> = 0.13..0.16;
/// The force with which it refuses one or two checks, with a `Retry-After` of 2 s.
const A_FEW_CHECKS: Range<f64> = 0.34..0.41;
/// The force with which it refuses every check, with a `Retry-After` of 3 s.
const FOR_LONG: Range<f64> = 0.63..0.66;
const ANY: Range<f64> = 0.0..1.0;

const PLANS: [&[Step]; 8] = [
    // Events of the Node are lost, bookmarks and Leases arrive, and no check is answered.
    &[
        (SimulatedFault::LostEvents, 0.0..2.0, 125.0..150.0, Hits::All, ANY),
        (SimulatedFault::Refusals, 2.0..12.0, 120.0..140.0, Hits::All, EVERY_CHECK),
    ],
    // Bookmarks are lost, too.
    &[
        (SimulatedFault::UnresponsiveStream, 0.0..2.0, 110.0..130.0, Hits::All, 0.0..0.8),
        (SimulatedFault::Refusals, 30.0..60.0, 70.0..90.0, Hits::All, EVERY_CHECK),
    ],
    // The Lease's watch is reopened on another connection than the Node's, and its server loses etcd.
    &[
        (SimulatedFault::GoAway, 0.0..2.0, 0.0..0.1, Hits::All, 0.0..0.5),
        (SimulatedFault::StreamLost, 2.0..3.0, 0.0..0.1, Hits::All, 0.4..0.6),
        (SimulatedFault::CutOff, 16.0..45.0, 40.0..60.0, Hits::Another, ANY),
    ],
    // The same with a Service's watch.
    &[
        (SimulatedFault::GoAway, 0.0..2.0, 0.0..0.1, Hits::All, 0.0..0.5),
        (SimulatedFault::StreamLost, 2.0..3.0, 0.0..0.1, Hits::All, 0.7..1.0),
    ],
    // The server in use is overloaded; another one is not.
    &[(SimulatedFault::Refusals, 0.0..2.0, 90.0..120.0, Hits::InUse, FOR_LONG)],
    // All servers are overloaded for a moment.
    &[(SimulatedFault::Refusals, 0.0..2.0, 90.0..120.0, Hits::All, A_FEW_CHECKS)],
    // The Node changes while lists are on their way.
    &[
        (SimulatedFault::Reset, 0.0..20.0, 0.0..0.1, Hits::All, ANY),
        (SimulatedFault::LateAnswers, 0.0..1.0, 20.0..40.0, Hits::All, 0.5..1.0),
        (SimulatedFault::Expired, 4.0..20.0, 0.0..0.1, Hits::All, ANY),
    ],
    // The server in use reconnects to the restored etcd, and sends old versions on an open watch.
    &[
        (SimulatedFault::Rewound, 9.0..12.0, 30.0..40.0, Hits::All, 0.3..1.0),
        (SimulatedFault::CutOff, 12.0..12.2, 0.1..1.0, Hits::InUse, ANY),
    ],
];

fn draw_rare(random: &mut Rng) -> Vec<Planned> {
    let plan = PLANS[random.usize(..PLANS.len())];
    let faults = plan.iter().map(|(fault, from, lasts, hits, force)| {
        let from = seconds(random, from.clone());
        let lasts = seconds(random, lasts.clone());
        Planned {
            fault: *fault,
            from,
            until: if fault.is_a_moment() { from } else { from + lasts },
            all: *hits == Hits::All || !fault.is_of_a_server(),
            in_use: *hits == Hits::InUse,
            force: drawn(random, force.clone()),
        }
    });
    faults.collect()
}
