//! A long run of the real agent: a thousand probes a second, an event every second, an outage every minute,
//! judged by the oracle of the simulation.
//!
//! `cargo test` runs a quarter of a minute of it, and shows that the oracle finds wrong answers; `make soak`
//! runs an hour.

mod balancers;
mod judge;
mod machine;
mod meter;
mod outage;
mod report;
mod run;

use crate::setting;
use nodegate_testbed::programs;
use outage::Outage;
use run::Plan;
use std::time::Duration;

/// Returns a plan with a tenth of the real times, as far as the agent's own constants allow it.
fn compact(outages: Vec<Outage>) -> Plan {
    let stale_after = Duration::from_secs(3);
    Plan {
        length: Duration::from_secs(15),
        seed: 7,
        agent: programs::agent(),
        stale_after: (stale_after, stale_after),
        lease_interval: Duration::from_secs(1),
        outage_every: Duration::from_secs(5),
        outages,
        row_every: Duration::from_secs(5),
    }
}

#[test]
fn a_short_soak_has_no_wrong_answer() {
    let mut report = run::run(compact(vec![Outage::Killed, Outage::Malformed, Outage::ConnectionsReset]));
    let (_, text) = report.verdict();
    eprintln!("{text}");
    // Memory settles only in a longer run.
    assert!(report.complaints.is_empty(), "{:#?}", report.complaints);
    assert!(report.probes > 0 && !report.recoveries.is_empty());
}

/// Shows that the oracle finds an agent whose `--stale-after` differs from its own: the agent fails open too
/// late, or too early.
#[test]
fn the_oracle_finds_an_agent_with_another_stale_after() {
    let mut plan = compact(vec![Outage::Frozen]);
    plan.stale_after.1 = Duration::from_secs(12);
    plan.length = Duration::from_secs(4);
    let report = run::run(plan);
    assert!(report.wrong > 0, "an agent that is stale after 12 s passed for one that is after 3 s");
}

/// Runs `make soak`: `SOAK` is the length, `SOAK_SEED` the seed, `SOAK_AGENT` the program. `SOAK_OUTAGE`
/// selects outages by a word in their names, and `SOAK_STALE_AFTER` gives the agent another value than the
/// oracle.
#[test]
#[ignore = "takes an hour: make soak"]
fn soak() {
    let duration = |name, default: Duration| *setting(name, humantime::Duration::from(default));
    let stale_after = Duration::from_secs(15);
    let seed = setting("SOAK_SEED", fastrand::u64(..));
    let word = setting("SOAK_OUTAGE", String::new());
    let mut outages: Vec<_> =
        Outage::ALL.into_iter().filter(|outage| outage.name().contains(&word)).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut outages);
    let plan = Plan {
        length: duration("SOAK", Duration::from_hours(1)),
        seed,
        agent: setting("SOAK_AGENT", programs::agent()),
        stale_after: (stale_after, duration("SOAK_STALE_AFTER", stale_after)),
        lease_interval: Duration::from_secs(10),
        outage_every: Duration::from_mins(1),
        outages,
        row_every: Duration::from_mins(1),
    };
    eprintln!("{} for {:?}, SOAK_SEED={seed}", plan.agent.display(), plan.length);
    let mut report = run::run(plan);
    let (good, text) = report.verdict();
    eprintln!("{text}");
    eprintln!("{}", if good { "PASS" } else { "FAIL" });
    assert!(good, "see above");
}
