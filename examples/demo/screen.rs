//! The output on stdout.

use crate::probe::Answer;
use nodegate_readiness::Verdict;
use rustix::process::{Signal, getpid, kill_process};
use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// The writer of lines. Clones write to the same screen.
#[derive(Clone)]
pub(crate) struct Screen {
    colour: bool,
    /// True from the column names to the end. Events before and after are not shown.
    live: Arc<Mutex<bool>>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: stdout().is_terminal() && !refused, live: Arc::default() }
    }

    fn live(&self) -> MutexGuard<'_, bool> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line. `println!` would panic without a reader; here, the demo ends.
    #[expect(clippy::unused_self, reason = "reads beside the other lines")]
    pub(crate) fn line(&self, text: impl Display) {
        if writeln!(stdout().lock(), "{text}").is_err() {
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }

    /// Ends the live view.
    pub(crate) fn end(&self) {
        *self.live() = false;
    }

    fn paint(&self, colour: &str, text: impl Display) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_string() }
    }

    pub(crate) fn bold(&self, text: impl Display) -> String {
        self.paint("1", text)
    }

    pub(crate) fn dim(&self, text: impl Display) -> String {
        self.paint("2", text)
    }

    pub(crate) fn mark(&self, good: bool) -> String {
        if good { self.paint(GREEN, "✓") } else { self.paint(RED, "✗") }
    }

    /// Shows the column names of [`Screen::flip`], and begins the live view.
    pub(crate) fn header(&self) {
        let columns =
            format!("{:<12}  {:<8}  {:<11}  {:<11}  {:<28}  latency", "time", "node", "from", "to", "reason");
        self.line(self.dim(columns));
        *self.live() = true;
    }

    /// Shows a change of the verdict or of its reason.
    pub(crate) fn flip(&self, node: &str, from: &Answer, to: &Answer, latency: Option<Duration>) {
        let verdict = |answer: &Answer| {
            let colour = match answer.verdict {
                Some(Verdict::Ready) => GREEN,
                Some(Verdict::Draining) => YELLOW,
                Some(Verdict::NotReady) => RED,
                None => "0",
            };
            // The word is padded before it is colored, since escape sequences have no width.
            self.paint(colour, format!("{:<9}", answer.word()))
        };
        let latency = latency.map(millis).unwrap_or_default();
        let line = format!("{} -> {}  {:<28}  {latency}", verdict(from), verdict(to), to.reason_or_dash());
        self.event(node, line.trim_end());
    }

    /// Shows an event of a pod on this node.
    pub(crate) fn pod(&self, node: &str, what: &str) {
        self.event(node, &self.dim(what));
    }

    /// Shows a step of a drain, or the start or the end of a time in which the cache is stale.
    pub(crate) fn note(&self, node: &str, what: &str) {
        self.event(node, &self.paint(CYAN, what));
    }

    fn event(&self, node: &str, what: &str) {
        // The lock is taken before the clock is read, so that the times of the lines ascend.
        let live = self.live();
        if *live {
            self.line(format!("{}  {node}  {what}", self.dim(jiff::Zoned::now().strftime("%H:%M:%S%.3f"))));
        }
    }
}

/// Returns a time in milliseconds if it is short, and in seconds otherwise.
pub(crate) fn millis(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ 1.0.. => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}
