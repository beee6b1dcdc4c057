//! A long run of the real agent: a thousand probes a second, an event every second, an outage every minute. The
//! oracle of the simulation judges the answers; memory, descriptors and threads must not grow.

// `cargo test` runs a quarter of a minute of it, and shows that the oracle finds wrong answers; `make soak`
// runs an hour.

mod balancers;
mod judge;
mod outage;
mod report;
mod run;

use crate::setting;
use nodegate_testbed::programs;
use outage::{Outage, named};
use run::Plan;
use std::time::Duration;

/// Returns a plan with a tenth of the real times, as far as the agent's own constants allow it.
fn compact(length: u64, outages: &[&str]) -> Plan {
    let stale_after = Duration::from_secs(3);
    Plan {
        length: Duration::from_secs(length),
        seed: 7,
        agent: programs::agent(),
        stale_after: (stale_after, stale_after),
        lease_interval: Duration::from_secs(1),
        outage_every: Duration::from_secs(5),
        outages: outages.iter().flat_map(|name| named(name)).collect(),
        row_every: Duration::from_secs(5),
    }
}

#[test]
fn a_short_soak_has_no_wrong_answer() {
    let mut report = run::run(compact(15, &["killed", "malformed", "connections reset"]));
    let (_, text) = report.verdict();
    eprintln!("{text}");
    // Memory settles only in a longer run.
    assert!(report.complaints.is_empty(), "{:#?}", report.complaints);
    assert!(report.probes > 0 && report.recoveries > 0);
}

/// Shows that the oracle finds an agent whose `--stale-after` differs from its own: the agent fails open too
/// late.
#[test]
fn the_oracle_finds_an_agent_with_another_stale_after() {
    let mut plan = compact(4, &["frozen"]);
    plan.stale_after.1 = Duration::from_secs(12);
    let report = run::run(plan);
    assert!(report.wrong > 0, "an agent that is stale after 12 s passed for one that is after 3 s");
}

/// Runs `make soak`: `SOAK` is the length, `SOAK_SEED` the seed, `SOAK_AGENT` the program, and `SOAK_OUTAGE`
/// selects outages by a word in their names.
#[test]
#[ignore = "takes an hour: make soak"]
fn soak() {
    let seed = setting("SOAK_SEED", fastrand::u64(..));
    let mut outages: Vec<Outage> = named(&setting("SOAK_OUTAGE", String::new())).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut outages);
    let plan = Plan {
        length: *setting("SOAK", humantime::Duration::from(Duration::from_hours(1))),
        seed,
        agent: setting("SOAK_AGENT", programs::agent()),
        stale_after: (Duration::from_secs(15), Duration::from_secs(15)),
        lease_interval: Duration::from_secs(10),
        outage_every: Duration::from_mins(1),
        outages,
        row_every: Duration::from_mins(1),
    };
    eprintln!("{} for {:?}, SOAK_SEED={seed}", plan.agent.display(), plan.length);
    let (good, text) = run::run(plan).verdict();
    eprintln!("{text}");
    assert!(good, "see above");
}
