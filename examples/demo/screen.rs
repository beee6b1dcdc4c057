//! The output on stdout.

use crate::probe::{Answer, Verdict};
use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// The writer of lines. Clones write to the same screen.
#[derive(Clone)]
pub(crate) struct Screen {
    terminal: bool,
    colour: bool,
    closed: watch::Sender<bool>,
    /// The line at the bottom of a terminal, which is rewritten each second.
    bottom: Arc<Mutex<String>>,
    /// True from the column names to the end. Events before and after are not shown.
    live: Arc<AtomicBool>,
}

/// The sequence that clears the line of the cursor.
const CLEAR: &str = "\r\x1b[K";
/// The sequences that keep a line longer than the terminal from wrapping, and that let it wrap again.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

impl Screen {
    pub(crate) fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = stdout().is_terminal();
        Self {
            terminal,
            colour: terminal && !refused,
            closed: watch::Sender::new(false),
            bottom: Arc::default(),
            live: Arc::default(),
        }
    }

    /// Returns when a line could not be written: the terminal or the reader of the pipe is gone.
    pub(crate) async fn closed(&self) {
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn line(&self, text: impl Display) {
        // As in `event`: the lock of stdout before that of the bottom line.
        let _turn = stdout().lock();
        let bottom = self.bottom.lock().unwrap_or_else(PoisonError::into_inner);
        if bottom.is_empty() {
            self.write(&format!("{text}\n"));
        } else {
            self.write(&format!("{CLEAR}{text}\n{NO_WRAP}{bottom}{WRAP}"));
        }
    }

    /// Writes text. `print!` would panic without a reader.
    fn write(&self, text: &str) {
        let mut out = stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.closed.send_replace(true);
        }
    }

    /// Ends the live view, and keeps the current line at the bottom.
    pub(crate) fn end(&self) {
        self.live.store(false, Ordering::Relaxed);
        let kept = std::mem::take(&mut *self.bottom.lock().unwrap_or_else(PoisonError::into_inner));
        if !kept.is_empty() {
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

    fn verdict(&self, verdict: Verdict) -> String {
        let colour = match verdict {
            Verdict::Ready => GREEN,
            Verdict::Draining => YELLOW,
            Verdict::NotReady => RED,
            Verdict::Silent => "0",
        };
        // The word is padded before it is colored, since escape sequences have no width.
        self.paint(colour, format!("{:<9}", verdict.word()))
    }

    /// Shows the column names of [`Screen::flip`], and begins the live view.
    pub(crate) fn header(&self) {
        let (node, reason) = (format!("{:<12}  {:<8}", "time", "node"), format!("{:<28}", "reason"));
        self.line(self.dim(format!("{node}  from         to         {reason}  latency")));
        self.live.store(true, Ordering::Relaxed);
    }

    /// Shows a change of the verdict or of its reason.
    pub(crate) fn flip(&self, node: &str, from: &Answer, to: &Answer, latency: Option<Duration>) {
        let latency = latency.map(millis).unwrap_or_default();
        let (from, verdict) = (self.verdict(from.verdict), self.verdict(to.verdict));
        let line = format!("{from} -> {verdict}  {:<28}  {latency}", to.reason_or_dash());
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
        let text = format!("{}  {nodes}  {lost_of}", self.dim(clock()));
        if self.terminal {
            text.clone_into(&mut self.bottom.lock().unwrap_or_else(PoisonError::into_inner));
            self.write(&format!("{CLEAR}{NO_WRAP}{text}{WRAP}"));
        } else {
            self.line(text);
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
        let _turn = stdout().lock();
        if self.live.load(Ordering::Relaxed) {
            self.line(format!("{}  {node}  {what}", self.dim(clock())));
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
