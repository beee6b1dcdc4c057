//! The table: one row a fault.

use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// So many stories at a time: most of a story is waiting, but their times are to be the agent's and not the machine's.
const AT_A_TIME: usize = 4;

/// A fault, and the test that tells it.
pub struct Story {
    pub fault: &'static str,
    pub tell: fn() -> Row,
    /// Whether it wants the machine for itself.
    pub alone: bool,
}

/// What came of a fault.
#[derive(Default)]
pub struct Row {
    /// What a load balancer saw, one thing after the other.
    pub trail: Vec<String>,
    pub probes: usize,
    /// Until a load balancer, or if there is nothing to see the agent's metrics, showed the fault.
    pub notice: Option<Duration>,
    /// From the repair until the right answer.
    pub recover: Option<Duration>,
    /// What it cost the API server, from the fault to the recovery.
    pub requests: Option<u64>,
}

impl Row {
    /// As a row of the table.
    pub fn line(&self, fault: &str) -> String {
        let seconds = |time: Option<Duration>| {
            time.map_or_else(|| "–".to_owned(), |time| format!("{:.1}", time.as_secs_f64()))
        };
        let mut line = format!("| {fault} | {}; {} probes, 0 failed", self.trail.join(" → "), self.probes);
        let requests = self.requests.map_or_else(|| "–".to_owned(), |requests| requests.to_string());
        let _ = write!(line, " | {} | {} | {requests} |", seconds(self.notice), seconds(self.recover));
        line
    }
}

/// Tells a story on a thread of its own, which may move to another network namespace.
pub fn tell(story: &Story) -> Result<Row, String> {
    let told = thread::spawn(story.tell).join();
    told.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// Tells all of them, prints the table, and says whether all held.
pub fn print(stories: &[Story]) -> bool {
    let rows: Vec<Mutex<Option<Result<Row, String>>>> = stories.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let run = |story: &Story, row: &Mutex<Option<Result<Row, String>>>| {
        let told = catch_unwind(|| tell(story)).unwrap_or_else(|_| Err("no thread".to_owned()));
        *row.lock().unwrap() = Some(told);
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if !story.alone {
                        run(story, &rows[story_index(stories, story)]);
                    }
                }
            });
        }
    });
    for (story, row) in stories.iter().zip(&rows).filter(|(story, _)| story.alone) {
        run(story, row);
    }
    println!("| fault | what a load balancer saw | seconds to notice | seconds to recover | API requests |");
    println!("|---|---|---|---|---|");
    let mut all_held = true;
    for (story, row) in stories.iter().zip(rows) {
        match row.into_inner().unwrap().unwrap() {
            Ok(row) => println!("{}", row.line(story.fault)),
            Err(how) => {
                all_held = false;
                println!("| {} | **did not hold**: {} | | | |", story.fault, how.replace('\n', " "));
            }
        }
    }
    all_held
}

fn story_index(stories: &[Story], story: &Story) -> usize {
    stories.iter().position(|other| std::ptr::eq(other, story)).unwrap()
}
