//! Draws plans that random faults produce too rarely: faults that test a protection only together, in this
//! order, and for long enough. `plan.rs` calls it.

use crate::fault::SimulatedFault;
use crate::planned::{Planned, seconds};
use fastrand::Rng;
use std::time::Duration;

/// One fault of such a plan. Values are drawn evenly from the ranges.
struct Step {
    fault: SimulatedFault,
    /// The time of its beginning, in seconds.
    from: (f64, f64),
    /// Its duration, in seconds.
    lasts: (f64, f64),
    /// The servers that it hits.
    hits: Hits,
    force: (f64, f64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hits {
    All,
    InUse,
    Another,
}

const fn step(
    fault: SimulatedFault,
    from: (f64, f64),
    lasts: (f64, f64),
    hits: Hits,
    force: (f64, f64),
) -> Step {
    Step { fault, from, lasts, hits, force }
}

/// The force with which [`SimulatedFault::Refusals`] refuses every check without `Retry-After`.
const EVERY_CHECK: (f64, f64) = (0.13, 0.16);
/// The force with which it refuses one or two checks, with a `Retry-After` of 2 s.
const A_FEW_CHECKS: (f64, f64) = (0.34, 0.41);
/// The force with which it refuses every check, with a `Retry-After` of 3 s.
const FOR_LONG: (f64, f64) = (0.63, 0.66);
const ANY: (f64, f64) = (0.0, 1.0);

const PLANS: [&[Step]; 8] = [
    // Events of the Node are lost, bookmarks and Leases arrive, and no check is answered.
    &[
        step(SimulatedFault::LostEvents, (0.0, 2.0), (125.0, 150.0), Hits::All, ANY),
        step(SimulatedFault::Refusals, (2.0, 12.0), (120.0, 140.0), Hits::All, EVERY_CHECK),
    ],
    // Bookmarks are lost, too.
    &[
        step(SimulatedFault::UnresponsiveStream, (0.0, 2.0), (110.0, 130.0), Hits::All, (0.0, 0.8)),
        step(SimulatedFault::Refusals, (30.0, 60.0), (70.0, 90.0), Hits::All, EVERY_CHECK),
    ],
    // The Lease's watch is reopened on another connection than the Node's, and its server loses etcd.
    &[
        step(SimulatedFault::GoAway, (0.0, 2.0), (0.0, 0.1), Hits::All, (0.0, 0.5)),
        step(SimulatedFault::StreamLost, (2.0, 3.0), (0.0, 0.1), Hits::All, (0.4, 0.6)),
        step(SimulatedFault::CutOff, (16.0, 45.0), (40.0, 60.0), Hits::Another, ANY),
    ],
    // The same with a Service's watch.
    &[
        step(SimulatedFault::GoAway, (0.0, 2.0), (0.0, 0.1), Hits::All, (0.0, 0.5)),
        step(SimulatedFault::StreamLost, (2.0, 3.0), (0.0, 0.1), Hits::All, (0.7, 1.0)),
    ],
    // The server in use is overloaded; another one is not.
    &[step(SimulatedFault::Refusals, (0.0, 2.0), (90.0, 120.0), Hits::InUse, FOR_LONG)],
    // All servers are overloaded for a moment.
    &[step(SimulatedFault::Refusals, (0.0, 2.0), (90.0, 120.0), Hits::All, A_FEW_CHECKS)],
    // The Node changes while lists are on their way.
    &[
        step(SimulatedFault::Reset, (0.0, 20.0), (0.0, 0.1), Hits::All, ANY),
        step(SimulatedFault::LateAnswers, (0.0, 1.0), (20.0, 40.0), Hits::All, (0.5, 1.0)),
        step(SimulatedFault::Expired, (4.0, 20.0), (0.0, 0.1), Hits::All, ANY),
    ],
    // The server in use reconnects to the restored etcd, and sends old versions on an open watch.
    &[
        step(SimulatedFault::Rewound, (9.0, 12.0), (30.0, 40.0), Hits::All, (0.3, 1.0)),
        step(SimulatedFault::CutOff, (12.0, 12.2), (0.1, 1.0), Hits::InUse, ANY),
    ],
];

/// Draws the faults of one of these plans.
pub(crate) fn draw(random: &mut Rng) -> Vec<Planned> {
    let plan = PLANS[random.usize(..PLANS.len())];
    let faults = plan.iter().map(|step| {
        let from = seconds(random, step.from.0, step.from.1);
        let lasts = if step.fault.is_a_moment() {
            Duration::ZERO
        } else {
            seconds(random, step.lasts.0, step.lasts.1)
        };
        let (least, most) = step.force;
        Planned {
            fault: step.fault,
            from,
            until: from + lasts,
            all: step.hits == Hits::All || !step.fault.is_of_a_server(),
            in_use: step.hits == Hits::InUse,
            force: least + (most - least) * random.f64(),
        }
    });
    faults.collect()
}
