//! What is written to stdout.

use crate::answer::{Answer, Verdict};
use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::time::Duration;
use tokio::sync::watch;

const PLAIN: &str = "";
const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";

/// Writes lines; clones write to the same screen.
#[derive(Clone)]
pub(crate) struct Screen {
    colour: bool,
    closed: watch::Sender<bool>,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { colour: stdout().is_terminal() && !refused, closed: watch::Sender::new(false) }
    }

    /// Returns when a line could not be written: the terminal is gone, or whoever read the pipe.
    pub(crate) async fn closed(&self) {
        // The sender is here, so it can't fail.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub(crate) fn line(&self, text: impl Display) {
        // Not println: it panics when nobody reads.
        let mut out = stdout().lock();
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            self.closed.send_replace(true);
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
        // Padded before it is painted: escape sequences have no width.
        self.paint(colour, format!("{:<9}", verdict.word()))
    }

    /// The names of the columns of [`Screen::flip`].
    pub(crate) fn header(&self) {
        let names =
            format!("{:<12}  {:<8}  {:<9}    {:<9}  {:<28}  latency", "time", "node", "from", "to", "reason");
        self.line(self.dim(names));
    }

    /// A change of verdict or of its reason.
    pub(crate) fn flip(&self, node: &str, from: &Answer, to: &Answer, latency: Option<Duration>) {
        // Held from before the clock is read, so that the times of the lines ascend.
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

    /// What one node gets, and what the balancer thinks of it.
    pub(crate) fn share(&self, node: &str, rate: f64, state: &str) -> String {
        let colour = match state {
            "UP" => GREEN,
            _ if state.starts_with("DRAIN") || state == "NOLB" => YELLOW,
            _ => RED,
        };
        // "UP 1/2" is on its way down.
        let state = state.trim_end_matches(" (agent)");
        format!("{node} {rate:>3.0}/s {}", self.paint(colour, format!("{state:<6}")))
    }

    /// A second of traffic.
    pub(crate) fn traffic(&self, nodes: &str, failed: u64, total: u64) {
        let _turn = stdout().lock();
        let failures = format!("failed {failed} of {total}");
        let failures = if failed > 0 { self.paint(RED, failures) } else { failures };
        self.line(format!("{}  {nodes}  {failures}", self.dim(clock())));
    }

    /// The beginning or end of an episode in which the cache can't be trusted.
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

/// Local time.
fn clock() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S%.3f").to_string()
}

/// Milliseconds while they tell something, seconds from there on.
pub(crate) fn millis(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}
