//! The output on stdout.

use crate::answer::{Answer, Verdict};
use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

const PLAIN: &str = "";
const BOLD: &str = "1";
const DIM: &str = "2";
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
    /// True if the column names have been shown. Flips before that are not shown.
    begun: Arc<AtomicBool>,
}

/// The sequence that clears the line of the cursor.
const CLEAR: &str = "\r\x1b[K";
/// The sequence that keeps a line longer than the terminal from wrapping.
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
            begun: Arc::default(),
        }
    }

    /// Returns when a line could not be written: the terminal or the reader of the pipe is gone.
    pub(crate) async fn closed(&self) {
        // The sender lives in `self`, so this can't fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn line(&self, text: impl Display) {
        let mut out = stdout().lock();
        let bottom = self.bottom.lock().unwrap_or_else(PoisonError::into_inner);
        // `println!` would panic without a reader.
        let written = if bottom.is_empty() {
            writeln!(out, "{text}")
        } else {
            writeln!(out, "{CLEAR}{text}").and_then(|()| write!(out, "{NO_WRAP}{bottom}{WRAP}"))
        };
        if written.and_then(|()| out.flush()).is_err() {
            self.closed.send_replace(true);
        }
    }

    /// Shows a line that replaces the last one of its kind. In a pipe, the lines follow each other.
    fn bottom_line(&self, text: &str) {
        if !self.terminal {
            return self.line(text);
        }
        let mut out = stdout().lock();
        text.clone_into(&mut self.bottom.lock().unwrap_or_else(PoisonError::into_inner));
        let written = write!(out, "{CLEAR}{NO_WRAP}{text}{WRAP}");
        if written.and_then(|()| out.flush()).is_err() {
            self.closed.send_replace(true);
        }
    }

    /// Keeps the current line at the bottom.
    pub(crate) fn keep_bottom_line(&self) {
        let kept = std::mem::take(&mut *self.bottom.lock().unwrap_or_else(PoisonError::into_inner));
        if !kept.is_empty() {
            self.line("");
        }
    }

    fn paint(&self, colour: &str, text: impl Display) -> String {
        if self.colour && !colour.is_empty() {
            format!("\x1b[{colour}m{text}\x1b[0m")
        } else {
            text.to_string()
        }
    }

    pub(crate) fn bold(&self, text: impl Display) -> String {
        self.paint(BOLD, text)
    }

    pub(crate) fn dim(&self, text: impl Display) -> String {
        self.paint(DIM, text)
    }

    pub(crate) fn mark(&self, good: bool) -> String {
        if good { self.paint(GREEN, "✓") } else { self.paint(RED, "✗") }
    }

    fn verdict(&self, verdict: Verdict) -> String {
        let colour = match verdict {
            Verdict::Ready => GREEN,
            Verdict::Draining => YELLOW,
            Verdict::NotReady => RED,
            Verdict::Silent => PLAIN,
        };
        // The word is padded before it is colored, since escape sequences have no width.
        self.paint(colour, format!("{:<9}", verdict.word()))
    }

    /// Shows the column names of [`Screen::flip`].
    pub(crate) fn header(&self) {
        let names =
            format!("{:<12}  {:<8}  {:<9}    {:<9}  {:<28}  latency", "time", "node", "from", "to", "reason");
        self.line(self.dim(names));
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Shows a change of the verdict or of its reason.
    pub(crate) fn flip(&self, node: &str, from: &Answer, to: &Answer, latency: Option<Duration>) {
        // The lock is taken before the clock is read, so that the times of the lines ascend.
        let _turn = stdout().lock();
        let latency = latency.map(millis).unwrap_or_default();
        let (from, verdict) = (self.verdict(from.verdict), self.verdict(to.verdict));
        let line = format!(
            "{}  {node}  {from} -> {verdict}  {:<28}  {latency}",
            self.dim(clock()),
            to.reason_or_dash()
        );
        self.line(line.trim_end());
    }

    /// Returns the traffic of one node and its state in the balancers as text.
    pub(crate) fn share(&self, node: &str, rate: f64, state: &str, sessions: u64) -> String {
        let colour = match state {
            "UP" => GREEN,
            _ if state.starts_with("DRAIN") || state == "NOLB" => YELLOW,
            _ => RED,
        };
        format!("{node} {rate:>3.0}/s {sessions:>2} open {}", self.paint(colour, format!("{state:<6}")))
    }

    /// Shows one second of traffic.
    pub(crate) fn traffic(&self, nodes: &str, lost: u64, total: u64) {
        let lost_of = format!("{lost} of {total} lost");
        let lost_of = if lost > 0 { self.paint(RED, lost_of) } else { lost_of };
        self.bottom_line(&format!("{}  {nodes}  {lost_of}", self.dim(clock())));
    }

    /// Shows an event of a pod on this node.
    pub(crate) fn pod(&self, node: &str, what: &str) {
        self.of_node(node, &self.dim(what));
    }

    /// Shows a step of a drain.
    pub(crate) fn drain(&self, node: &str, what: &str) {
        self.of_node(node, &self.paint(CYAN, what));
    }

    fn of_node(&self, node: &str, what: &str) {
        let _turn = stdout().lock();
        if !self.begun.load(Ordering::Relaxed) {
            return;
        }
        self.line(format!("{}  {node}  {what}", self.dim(clock())));
    }

    /// Shows the start or the end of a time in which the cache is stale.
    pub(crate) fn stale(&self, node: &str, begins: bool) {
        let _turn = stdout().lock();
        let text = if begins {
            "stale begins: no proof any more that the cache is current; failing open"
        } else {
            "stale ends: the cache follows the API server again"
        };
        self.line(format!("{}  {node}  {}", self.dim(clock()), self.paint(CYAN, text)));
    }
}

/// Returns the local time.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string()
}

/// Returns a time in milliseconds if it is short, and in seconds otherwise.
pub(crate) fn millis(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}
