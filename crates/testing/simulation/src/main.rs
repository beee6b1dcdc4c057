//! Runs many seeds on two threads and prints a table, for `make simulate`.

use nodegate_simulation::{EpisodeOutcome, SimulationReport, run};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of episodes from which on a run must have covered every pair of faults and every transition.
const LONG: u64 = 100_000;
/// The least number of episodes with each pair of faults.
const PAIRS: u64 = 100;

/// Returns a number from the environment. Exits with 2 if it is no number.
fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    let Ok(number) = text.parse() else {
        eprintln!("{name} takes a number, not {text:?}");
        std::process::exit(2);
    };
    Some(number)
}

fn main() -> ExitCode {
    if let Some(seed) = setting("SIM_SEED") {
        return replay(seed);
    }
    let episodes = setting("SIM_EPISODES").unwrap_or(LONG);
    let first = setting("SIM_FIRST_SEED").unwrap_or(1);
    let violations = setting("SIM_VIOLATIONS").unwrap_or(1);
    let threads = setting("SIM_THREADS").unwrap_or(2);
    let began = nodegate_clock::now();
    let (report, outcomes) = many(first, episodes, violations, threads);
    let took = nodegate_clock::now() - began;
    println!("{report}");
    println!(
        "{} episodes in {:.1} s, {} a second on {threads} threads; violations: {}",
        report.episodes,
        took.as_secs_f64(),
        u128::from(report.episodes) * 1000 / took.as_millis().max(1),
        outcomes.len()
    );
    for outcome in &outcomes {
        println!("seed {}: {}", outcome.seed, outcome.violation.as_deref().unwrap_or_default());
    }
    if let Some(worst) = outcomes.first() {
        println!("SIM_SEED={} make simulate shows it", worst.seed);
        return ExitCode::FAILURE;
    }
    let covers = report.fewest_pair() >= PAIRS && report.never_taken().is_empty();
    if episodes >= LONG && !covers {
        println!("coverage is incomplete: each pair of faults must come {PAIRS} times, each transition once");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs one seed and prints its trace.
fn replay(seed: u64) -> ExitCode {
    let outcome = run(seed, true);
    println!("seed {seed}: trace {:016x}, {} episodes", outcome.hash, outcome.report.episodes);
    match outcome.violation {
        Some(what) => {
            println!("VIOLATION {what}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Runs seeds on several threads until there are enough episodes or violations.
fn many(first: u64, episodes: u64, violations: u64, threads: u64) -> (SimulationReport, Vec<EpisodeOutcome>) {
    let (next, done) = (AtomicU64::new(first), AtomicBool::new(false));
    let sums = Mutex::new((SimulationReport::default(), Vec::new()));
    let work = || {
        while !done.load(Ordering::Relaxed) {
            let outcome = run(next.fetch_add(1, Ordering::Relaxed), false);
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            let (report, bad) = &mut *sums;
            report.add(&outcome.report);
            if let Some(what) = &outcome.violation {
                // A long run may be killed before its table.
                eprintln!("seed {}: {what}", outcome.seed);
                bad.push(outcome);
            }
            let enough = report.episodes >= episodes || bad.len() as u64 >= violations;
            done.fetch_or(enough, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (report, mut bad) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    bad.sort_by_key(|outcome| outcome.seed);
    (report, bad)
}
