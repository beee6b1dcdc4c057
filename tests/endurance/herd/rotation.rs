//! The steady state: each watch ends by itself after some minutes and resumes. The watches of a thousand
//! agents that started together must not all end together.

use nodegate_kube_sim::Sim;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// The range of a watch's seconds, from which node-watch draws.
const WATCH_SECONDS: RangeInclusive<u32> = 1000..=3000;
const WATCHES: usize = 2;
const MINUTE: Duration = Duration::from_mins(1);

/// Consistency checks, 45 an hour.
const QUESTIONS_A_MINUTE: f64 = 0.75;

/// Returns the resumed watches per minute at an even rate.
fn even(watchers: usize) -> f64 {
    let each: f64 =
        WATCH_SECONDS.map(|seconds| 60.0 / f64::from(seconds)).sum::<f64>() / WATCH_SECONDS.count() as f64;
    watchers as f64 * WATCHES as f64 * each
}

/// Counts requests minute by minute. After a reconnect all watches began together, the worst case.
pub(crate) fn measure(sim: &Sim, watchers: usize, minutes: u64) {
    println!(
        "steady state, measured: {watchers} watchers\n  {:>6} {:>8} {:>11} {:>9}",
        "minute", "requests", "connections", "watches"
    );
    let mut most = 0;
    for minute in 1..=minutes {
        let (began, before) = (Instant::now(), sim.counters().read());
        std::thread::sleep(MINUTE.saturating_sub(began.elapsed()));
        let after = sim.counters().read();
        let requests = after.total() - before.total();
        let connections = after.connections_accepted - before.connections_accepted;
        println!("  {minute:>6} {requests:>8} {connections:>11} {:>9}", after.watches);
        most = most.max(requests);
    }
    let even = even(watchers) + QUESTIONS_A_MINUTE * watchers as f64;
    println!("  most in a minute: {most}; an even rate is {even:.0}\n");
    assert!((most as f64) < 2.0 * even, "the rate is not even");
}

/// Calculates two hours ahead for agents whose sessions all began within ten seconds, the worst case.
pub(crate) fn reckon(watchers: usize) {
    let even = even(watchers);
    println!("steady state, reckoned for a start within 10 s; an even rate is {even:.0} requests a minute");
    println!("  {:>12} {:>18} {:>28}", "minutes", "most in a minute", "if drawn from 500 to 600 s");
    let minutes = resumptions(watchers, &WATCH_SECONDS, 120);
    let narrow = resumptions(watchers, &(500..=600), 120);
    for (block, (counts, others)) in minutes.chunks(10).zip(narrow.chunks(10)).enumerate() {
        let most = |counts: &[u32]| counts.iter().max().copied().unwrap_or_default();
        println!("  {:>5} to {:>3} {:>18} {:>28}", block * 10, block * 10 + 10, most(counts), most(others));
    }
    println!();
    assert!(minutes.iter().all(|count| f64::from(*count) < 2.0 * even), "the rate is not even");
}

#[test]
fn the_watches_of_a_thousand_agents_that_started_together_end_spread_out() {
    reckon(1000);
}

/// Returns the number of resumed watches in each minute.
fn resumptions(watchers: usize, seconds: &RangeInclusive<u32>, minutes: usize) -> Vec<u32> {
    let mut counts = vec![0; minutes];
    for _ in 0..watchers * WATCHES {
        let period = f64::from(fastrand::u32(seconds.clone()));
        let mut at = 10.0 * fastrand::f64() + period;
        while let Some(count) = counts.get_mut((at / 60.0) as usize) {
            *count += 1;
            at += period;
        }
    }
    counts
}
