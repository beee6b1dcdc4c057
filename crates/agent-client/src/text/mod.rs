//! Renders a status for a terminal: the output of `nodegate status`.

mod prober_table;

use crate::health_reply::{HealthCheck, NodeHealth};
use crate::sentence::{UNCONFIRMED, caveat, shutdown, why};
use nodegate_program::sanitize;
use nodegate_readiness::status::{CheckStatus, Status};
use nodegate_readiness::{Age, Reason, Stamp, Verdict};
use std::fmt::{Display, Write};
use std::time::Duration;

/// The maximum number of flips, so that they fit on a screen with the checks; the JSON has all.
const FLIPS_SHOWN: usize = 8;

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";

/// The output so far.
pub struct Text {
    colourful: bool,
    out: String,
}

/// A row of the table of checks.
struct Row {
    name: String,
    verdict: Verdict,
    age: String,
    reason: String,
}

impl Text {
    /// Begins an output, with or without colours.
    pub fn new(colourful: bool) -> Self {
        Self { colourful, out: String::new() }
    }

    /// Returns the text of a whole status.
    pub fn status(mut self, status: &Status, wall: Duration) -> String {
        self.headline(status.verdict, &why(status));
        if let Some(caveat) = caveat(status) {
            self.guess(&caveat);
        }
        if let Some(error) = &status.cache.error {
            let word = self.painted(BOLD, "API server");
            self.line(&format!("{word}: {}", sanitize(error)));
        }
        if let Some(hint) = &status.hint {
            let word = self.painted(BOLD, "hint");
            self.line(&format!("{word}: {}", sanitize(hint)));
        }
        self.line("");
        let uid = status.uid.as_ref().map_or(String::new(), |uid| format!(", uid {}", sanitize(uid)));
        let node = sanitize(status.node.as_deref().unwrap_or("not known"));
        self.fact("node", &format!("{node}{uid}"));
        let (trust, after) =
            (if status.cache.stale { "stale" } else { "fresh" }, Age(status.cache.stale_after_ms));
        let proof = status
            .cache
            .age_ms
            .map_or("no proof yet".to_owned(), |age| format!("last proof {} ago", Age(age)));
        self.fact("cache", &format!("{trust}, {proof}; stale after {after}"));
        let start_id =
            status.start_id.as_ref().map_or(String::new(), |id| format!(", start id {}", sanitize(id)));
        let (version, up) = (sanitize(&status.version), Age(status.uptime_ms));
        self.fact("agent", &format!("nodegate {version}, up {up}{start_id}"));
        if let Some(host) = status.host {
            self.fact("reboot", &shutdown(host));
        }
        self.told(status);
        if status.verdict.is_none() {
            // A misconfigured agent does not use its checks.
            return self.out;
        }
        let (active, idle): (Vec<_>, Vec<_>) = status.checks.iter().partition(|check| check.active);
        self.checks(&active.into_iter().map(Row::of).collect::<Vec<_>>());
        self.line("* decides the verdict");
        if !idle.is_empty() {
            let names: Vec<_> = idle.iter().map(|check| sanitize(&check.name)).collect();
            self.line(&format!("not running: {}", names.join(", ")));
        }
        self.probers(status);
        self.flips(status, wall);
        self.out
    }

    /// Returns the text of an answer about some checks.
    pub fn health(mut self, health: &NodeHealth) -> String {
        self.headline(Some(health.verdict()), &health.why());
        if health.checks.iter().any(|check| check.stale) {
            self.guess("the cache is stale; nodegate status without --check tells what was known last");
        }
        if health.checks.iter().any(|check| check.unconfirmed) {
            self.guess(UNCONFIRMED);
        }
        let row = |check: &HealthCheck| Row {
            name: sanitize(&check.name),
            // The answer does not say which checks drain, but it has the worst verdict.
            verdict: if check.passed { Verdict::Ready } else { health.verdict() },
            age: if check.stale { "stale".to_owned() } else { "-".to_owned() },
            reason: sanitize(check.reason.as_ref().map_or("", Reason::as_str)),
        };
        self.checks(&health.checks.iter().map(row).collect::<Vec<_>>());
        self.out
    }

    fn headline(&mut self, verdict: Option<Verdict>, why: &str) {
        let (word, colour) = match verdict {
            Some(Verdict::Ready) => (Verdict::Ready.title(), GREEN),
            Some(Verdict::Draining) => (Verdict::Draining.title(), YELLOW),
            Some(Verdict::NotReady) => (Verdict::NotReady.title(), RED),
            None => ("Misconfigured", RED),
        };
        let word = self.painted(&format!("{BOLD};{colour}"), word);
        self.line(&format!("{word}: {}", sanitize(why)));
    }

    fn guess(&mut self, caveat: &str) {
        let guess = self.painted(YELLOW, "a guess");
        self.line(&format!("{guess}: {}", sanitize(caveat)));
    }

    fn fact(&mut self, name: &str, value: &str) {
        let name = self.painted(DIM, format!("{name:<6}"));
        self.line(&format!("{name} {value}"));
    }

    fn checks(&mut self, rows: &[Row]) {
        let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or_default().max(5);
        let head = self.painted(DIM, format!("{:<width$}  {:<6}  {:>7}  REASON", "CHECK", "RESULT", "AGE"));
        self.line("");
        self.line(&head);
        for row in rows {
            let (colour, word) = match row.verdict {
                Verdict::Ready => (GREEN, "passes"),
                Verdict::Draining => (YELLOW, "drains"),
                Verdict::NotReady => (RED, "fails "),
            };
            let word = self.painted(colour, word);
            let line = format!("{:<width$}  {word}  {:>7}  {}", row.name, row.age, row.reason);
            self.line(line.trim_end());
        }
    }

    fn flips(&mut self, status: &Status, wall: Duration) {
        self.line("");
        if status.flips.is_empty() {
            return self.line("no flip since the start");
        }
        let head = self.painted(DIM, format!("{:<19}  {:>8}  FLIP", "UTC", "AGO"));
        self.line(&head);
        for flip in status.flips.iter().take(FLIPS_SHOWN) {
            let ago = Age(wall.saturating_sub(Duration::from_millis(flip.at_unix_ms)).as_millis());
            let (at, reason) = (Stamp(flip.at_unix_ms), sanitize(flip.reason.as_str()));
            let (from, to) = (flip.from.title(), flip.to.title());
            self.line(&format!("{at:#}  {ago:>8}  {from} -> {to}  {reason}"));
        }
        if let Some(more @ 1..) = status.flips.len().checked_sub(FLIPS_SHOWN) {
            self.line(&format!("and {more} more: -o json"));
        }
    }

    fn painted(&self, colour: &str, text: impl Display) -> String {
        if self.colourful { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_string() }
    }

    fn line(&mut self, text: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.out, "{text}");
    }
}

impl Row {
    fn of(check: &CheckStatus) -> Self {
        let reason = match (&check.reason, &check.last_reason) {
            (Some(reason), _) => sanitize(reason.as_str()),
            (None, Some(last)) => format!("last: {}", sanitize(last.as_str())),
            (None, None) => String::new(),
        };
        Self {
            name: format!("{}{}", sanitize(&check.name), if check.default { " *" } else { "" }),
            verdict: check.verdict.unwrap_or(Verdict::NotReady),
            age: check.age_ms.map_or("-".to_owned(), |age| Age(age).to_string()),
            reason,
        }
    }
}
