//! Renders a status for a terminal, by the templates beside this file: the output of `nodegate status`.

use crate::colour::{BOLD, DIM, GREEN, RED, YELLOW};
use crate::{acknowledgement, sentence};
use askama::Template;
use askama::filters::{Escaper, Safe};
use nodegate_agent_api::{CheckStatus, ProberRecord, Standing, Status};
use nodegate_program::sanitize;
use nodegate_readiness::answer::{CheckBody, HealthBody};
use nodegate_readiness::{Age, Stamp, Verdict};
use std::fmt::{self, Display};

/// The maximum number of flips and of probers, so that they fit on a screen with the rest; the JSON has all.
const FLIPS_SHOWN: usize = 8;
const PROBERS_SHOWN: usize = 16;

/// Returns the text of a whole status.
pub fn status_text(status: &Status, colourful: bool) -> String {
    let rows = status.checks.iter().filter(|check| check.active).map(Row::of).collect();
    rendered(&StatusText { status, rows, paint: Paint(colourful) })
}

/// Returns the text of an answer about some checks.
pub fn health_text(health: &HealthBody<'_>, colourful: bool) -> String {
    let row = |check: &CheckBody<'_>| Row {
        name: check.name.clone().into_owned(),
        // The answer does not say which checks drain, but it has the worst verdict.
        verdict: if check.passed { Verdict::Ready } else { health.status },
        age: if check.stale { "stale" } else { "-" }.to_owned(),
        reason: check.reason.as_ref().map_or(String::new(), |reason| sentence::explained(reason)),
    };
    rendered(&HealthText { health, rows: health.checks.iter().map(row).collect(), paint: Paint(colourful) })
}

/// Rendering fails only if a value can't be written, and a string takes all.
fn rendered(text: &impl Template) -> String {
    text.render().unwrap_or_else(|error| error.to_string())
}

#[derive(Template)]
#[template(path = "text/status.txt")]
struct StatusText<'a> {
    status: &'a Status,
    rows: Vec<Row>,
    paint: Paint,
}

#[derive(Template)]
#[template(path = "text/health.txt")]
struct HealthText<'a> {
    health: &'a HealthBody<'a>,
    rows: Vec<Row>,
    paint: Paint,
}

/// Cleans what the templates show: it comes from the network.
#[derive(Clone, Copy)]
pub(crate) struct ForTerminal;

impl Escaper for ForTerminal {
    fn write_escaped_str<W: fmt::Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        dest.write_str(&sanitize(text))
    }
}

/// True if the output has colours.
struct Paint(bool);

impl Paint {
    fn on(&self, code: &str) -> Safe<String> {
        Safe(if self.0 { format!("\u{1b}[{code}m") } else { String::new() })
    }

    fn off(&self) -> Safe<String> {
        self.on("0")
    }

    fn verdict(&self, verdict: Option<Verdict>) -> Safe<String> {
        let colour = match verdict {
            Some(Verdict::Ready) => GREEN,
            Some(Verdict::Draining) => YELLOW,
            Some(Verdict::NotReady) | None => RED,
        };
        let word = verdict.map_or("Misconfigured", Verdict::title);
        Safe(format!("{}{word}{}", self.on(&format!("{BOLD};{colour}")), self.off()))
    }
}

/// A row of the table of checks.
struct Row {
    name: String,
    verdict: Verdict,
    age: String,
    reason: String,
}

impl Row {
    fn of(check: &CheckStatus) -> Self {
        let reason = match (&check.reason, &check.last_reason) {
            (Some(reason), _) => reason.to_string(),
            (None, Some(last)) => format!("last: {last}"),
            (None, None) => String::new(),
        };
        Self {
            name: format!("{}{}", check.name, if check.default { " *" } else { "" }),
            verdict: check.verdict.unwrap_or(Verdict::NotReady),
            age: check.age_ms.map_or("-".to_owned(), |age| Age(age).to_string()),
            reason,
        }
    }
}

impl StatusText<'_> {
    /// Returns the probers that are regular or were so lately; those that are waited for come first.
    fn probers(&self) -> Vec<&ProberRecord> {
        let probers = self.status.probers.iter();
        let mut shown: Vec<_> = probers.filter(|prober| prober.standing != Standing::Occasional).collect();
        shown.sort_by_key(|prober| (!prober.is_waited_for(), prober.acknowledged == Some(true)));
        shown
    }
}

/// Returns the width of the column of these texts.
fn width(texts: impl Iterator<Item = usize>, least: usize) -> usize {
    texts.max().unwrap_or_default().max(least)
}

fn name_width(rows: &[Row]) -> usize {
    width(rows.iter().map(|row| row.name.chars().count()), 5)
}

/// Returns the widths of the columns with the probers and with their requests.
fn widths(probers: &[&ProberRecord]) -> (usize, usize) {
    let shown = || probers.iter().take(PROBERS_SHOWN);
    let who = width(shown().map(|prober| prober.who().chars().count()), 8);
    (who, width(shown().map(|prober| prober.request.chars().count()), 8))
}

fn pad(text: impl Display, width: usize) -> String {
    format!("{text:<width$}")
}

/// Returns the last answer to a prober, and its consequence; what HAProxy says of it follows in the template.
pub fn prober_answer(prober: &ProberRecord) -> String {
    let code = prober.code.map_or(String::new(), |code| format!("{code} "));
    let times = format!("{code}{} x{}", prober.verdict.title(), prober.in_a_row);
    let means = match (prober.standing, prober.sees_drains, prober.acknowledged) {
        _ if prober.misses_drains() => ", can't see drains",
        (Standing::Gone, ..) => ", gone",
        (_, false, _) => ", no drain changes it",
        (Standing::Silent, ..) => ", silent",
        (_, _, Some(true)) => ", acknowledged",
        _ => "",
    };
    times + means
}
