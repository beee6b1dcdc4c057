//! Runs many seeds on two threads and prints their coverage, for `make simulate`.

use nodegate_simulation::{SimulationReport, run};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The number of episodes from which on a run must have covered every pair of faults and every transition.
const LONG: u64 = 100_000;
const THREADS: u32 = 2;
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
    let began = nodegate_clock::now();
    let (report, violation) = many(setting("SIM_FIRST_SEED").unwrap_or(1), episodes);
    let took = nodegate_clock::now() - began;
    println!("{report}");
    println!(
        "{} episodes in {:.1} s, {} a second on {THREADS} threads; violations: {}",
        report.episodes,
        took.as_secs_f64(),
        u128::from(report.episodes) * 1000 / took.as_millis().max(1),
        u8::from(violation.is_some())
    );
    if let Some(seed) = violation {
        println!("SIM_SEED={seed} make simulate shows it");
        return ExitCode::FAILURE;
    }
    let covers = report.fewest_pair() >= PAIRS && report.never_taken().is_empty();
    if episodes >= LONG && !covers {
        println!("coverage is incomplete: each pair of faults must come {PAIRS} times, each transition once");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

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

/// Runs seeds on several threads until there are enough episodes, or a violation, whose seed it returns.
fn many(first: u64, episodes: u64) -> (SimulationReport, Option<u64>) {
    let (next, done) = (AtomicU64::new(first), AtomicBool::new(false));
    let sums = Mutex::new((SimulationReport::default(), None));
    let work = || {
        while !done.load(Ordering::Relaxed) {
            let outcome = run(next.fetch_add(1, Ordering::Relaxed), false);
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            sums.0.add(&outcome.report);
            if let Some(what) = &outcome.violation {
                eprintln!("seed {}: {what}", outcome.seed);
                sums.1 = Some(outcome.seed);
            }
            done.fetch_or(sums.0.episodes >= episodes || sums.1.is_some(), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    sums.into_inner().unwrap_or_else(PoisonError::into_inner)
}
