//! The table: one row for each fault.

use super::scene::BACK_WITHIN;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The number of faults at a time: they mostly wait, but their times must be the agent's and not the
/// machine's.
const AT_A_TIME: usize = 4;

/// A fault, and its test.
pub(crate) struct Scenario {
    pub(crate) fault: &'static str,
    pub(crate) tell: fn() -> Row,
    /// True if it needs the whole machine.
    pub(crate) alone: bool,
}

/// A row, or the failure.
type Told = Result<Row, String>;

/// The result of a fault.
#[derive(Default)]
pub(crate) struct Row {
    /// The answers that a load balancer saw, in their order.
    pub(crate) trail: Vec<String>,
    pub(crate) probes: usize,
    /// From the fault until a load balancer saw it, or else until the agent's metrics showed it.
    pub(crate) notice: Option<Duration>,
    /// The bound for that.
    pub(crate) bound: Option<Duration>,
    /// From the repair to the right answer.
    pub(crate) recover: Option<Duration>,
    /// The requests to the API server, from the fault to the recovery.
    pub(crate) requests: Option<u64>,
}

impl Row {
    /// Returns the row of the table.
    pub(crate) fn line(&self, fault: &str) -> String {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "–".to_owned(), |time| format!("{:.1}", time.as_secs_f64()))
        };
        let mut line = format!("| {fault} | {}; {} probes, 0 failed", self.trail.join(" → "), self.probes);
        let bound = self.bound.map(|bound| format!(" of {}", bound.as_secs_f64())).unwrap_or_default();
        let requests = self.requests.map_or_else(|| "–".to_owned(), |requests| requests.to_string());
        let _ = write!(line, " | {}{bound} | {} | {requests} |", seconds(self.notice), seconds(self.recover));
        line
    }
}

/// Plays a fault on a thread of its own; one that panics gets a row like the others.
fn tell(scenario: &Scenario) -> Told {
    let told = thread::spawn(scenario.tell).join();
    told.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Plays all of them, prints the table, and returns true if all held.
pub(crate) fn print(scenarios: &[Scenario]) -> bool {
    let rows: Vec<Mutex<Option<Told>>> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let run = |number: usize| *rows[number].lock().unwrap() = Some(tell(&scenarios[number]));
    let (alone, beside): (Vec<usize>, Vec<usize>) =
        (0..scenarios.len()).partition(|&number| scenarios[number].alone);
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(&number) = beside.get(next.fetch_add(1, Ordering::SeqCst)) {
                    run(number);
                }
            });
        }
    });
    alone.into_iter().for_each(run);
    println!(
        "| fault | what a load balancer saw | seconds to notice, of at most | seconds to recover, of at most {} | API requests |",
        BACK_WITHIN.as_secs()
    );
    println!("|---|---|---|---|---|");
    let mut all_held = true;
    for (scenario, row) in scenarios.iter().zip(rows) {
        match row.into_inner().unwrap().unwrap() {
            Ok(row) => println!("{}", row.line(scenario.fault)),
            Err(how) => {
                all_held = false;
                println!("| {} | **did not hold**: {} | | | |", scenario.fault, how.replace('\n', " "));
            }
        }
    }
    all_held
}
