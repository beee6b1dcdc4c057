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

/// Returns the sequences that clear the line of the cursor, and show this text there without wrapping it.
fn bottom_line(text: &str) -> String {
    format!("\r\x1b[K\x1b[?7l{text}\x1b[?7h")
}

/// The writer of lines. Clones write to the same screen.
#[derive(Clone)]
pub(crate) struct Screen {
    terminal: bool,
    colour: bool,
    view: Arc<Mutex<View>>,
}

#[derive(Default)]
struct View {
    /// The line at the bottom of a terminal, which is rewritten each second.
    bottom: String,
    /// True from the column names to the end. Events before and after are not shown.
    live: bool,
}

impl View {
    /// Writes a line above the bottom line. `print!` would panic without a reader; here, the demo ends.
    fn line(&self, text: impl Display) {
        match self.bottom.as_str() {
            "" => write(&format!("{text}\n")),
            bottom => write(&format!("\r\x1b[K{text}\n{}", bottom_line(bottom))),
        }
    }
}

fn write(text: &str) {
    let mut out = stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        let _ = kill_process(getpid(), Signal::TERM);
    }
}

impl Screen {
    pub(crate) fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = stdout().is_terminal();
        Self { terminal, colour: terminal && !refused, view: Arc::default() }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn line(&self, text: impl Display) {
        self.view().line(text);
    }

    /// Ends the live view, and keeps the current line at the bottom.
    pub(crate) fn end(&self) {
        let View { bottom, .. } = std::mem::take(&mut *self.view());
        if !bottom.is_empty() {
            self.line("");
        }
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
        self.view().live = true;
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

    /// Shows one second of traffic: the rate, the state and the sessions of each node. The line replaces the
    /// last one of its kind; in a pipe, the lines follow each other.
    pub(crate) fn traffic(&self, nodes: &[(&str, f64, String, u64)], lost: u64, total: u64) {
        let share = |(node, rate, state, sessions): &(&str, f64, String, u64)| {
            let colour = match state.as_str() {
                "UP" => GREEN,
                _ if state.starts_with("DRAIN") || state == "NOLB" => YELLOW,
                _ => RED,
            };
            format!("{node} {rate:>3.0}/s {sessions:>2} open {}", self.paint(colour, format!("{state:<6}")))
        };
        let nodes = nodes.iter().map(share).collect::<Vec<_>>().join("  ");
        let lost_of = format!("{lost} of {total} lost");
        let lost_of = if lost > 0 { self.paint(RED, lost_of) } else { lost_of };
        let mut view = self.view();
        let text = format!("{}  {nodes}  {lost_of}", self.dim(clock()));
        match (view.live, self.terminal) {
            (false, _) => {}
            (true, false) => view.line(text),
            (true, true) => {
                write(&bottom_line(&text));
                view.bottom = text;
            }
        }
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
        let view = self.view();
        if view.live {
            view.line(format!("{}  {node}  {what}", self.dim(clock())));
        }
    }
}

/// Returns the local time.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string()
}

/// Returns a time in milliseconds if it is short, and in seconds otherwise.
pub(crate) fn millis(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds @ 1.0.. => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}
