//! The status page for people: self-contained, without scripts. `page.html` is its template.

#[cfg(test)]
mod tests;

use askama::Template;
use askama::filters::{Escaper, Html};
use nodegate_agent_api::{ProberRecord, Standing, Status};
use nodegate_agent_client::{acknowledgement, prober_answer, sentence};
use nodegate_program::sanitize;
use nodegate_readiness::moment::millis;
use nodegate_readiness::{Age, Stamp, Verdict};
use std::fmt;
use std::time::Duration;

/// The content security policy. It allows only the style sheet inside the page, by its hash, and the inline
/// icon.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'sha256-5WRg6esYwG3yyaXduDLVS9W62NsvUAcwcffG55DfRjU='; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("page.css");

/// The maximum number of probers in the table; `/status.json` has all.
const ROWS: usize = 40;
/// The maximum number of names in the list of other probers.
const NAMES: usize = 10;

#[derive(Template)]
#[template(path = "page/page.html")]
struct Page<'a> {
    status: &'a Status,
    /// The time since the epoch, in milliseconds.
    wall: u64,
}

/// Renders the page for a status at `wall`, the time since the epoch.
pub(crate) fn render(status: &Status, wall: Duration) -> askama::Result<String> {
    Page { status, wall: millis(wall) }.render()
}

/// Makes text harmless in an element and in a quoted attribute. Marks that change the writing direction could make
/// one reason read as another.
#[derive(Clone, Copy)]
pub(crate) struct ForeignText;

impl Escaper for ForeignText {
    fn write_escaped_str<W: fmt::Write>(&self, dest: W, text: &str) -> fmt::Result {
        Html.write_escaped_str(dest, &sanitize(text))
    }
}

/// A word, its class in the style sheet, and a sign of its own shape beside the colour.
struct Look {
    word: &'static str,
    class: &'static str,
    sign: char,
}

impl Look {
    /// Returns how a verdict is shown, or that of a check: a guess never looks like a Ready that was confirmed.
    fn of(verdict: impl Into<Option<Verdict>>, is_guess: bool) -> Self {
        let Some(verdict) = verdict.into() else {
            return Self { word: "Misconfigured", class: "misconfigured", sign: '!' };
        };
        let (word, class) = (verdict.title(), verdict.as_str());
        match verdict {
            Verdict::Ready if is_guess => Self { word, class: Verdict::Draining.as_str(), sign: '≈' },
            _ if is_guess => Self { word, class, sign: '≈' },
            Verdict::Ready => Self { word, class, sign: '✓' },
            Verdict::Draining => Self { word, class, sign: '▽' },
            Verdict::NotReady => Self { word, class, sign: '✕' },
        }
    }

    /// Returns how a step of a drain is shown, or of the way back: done or not, or not known.
    fn of_step(word: &'static str, is_done: Option<bool>) -> Self {
        let (class, sign) = match is_done {
            Some(true) => ("done", '✓'),
            Some(false) => ("open", '…'),
            None => ("unknown", '?'),
        };
        Self { word, class, sign }
    }
}

/// Returns the class of a prober in the style sheet.
fn class_of(prober: &ProberRecord) -> &'static str {
    match prober.acknowledged {
        _ if !prober.sees_drains => Verdict::NotReady.as_str(),
        Some(true) => Verdict::Ready.as_str(),
        Some(false) => Verdict::Draining.as_str(),
        None => "unknown",
    }
}

impl Page<'_> {
    fn node(&self) -> &str {
        self.status.node.as_deref().unwrap_or("unknown")
    }

    /// Returns true if the verdict comes from a stale cache, or against the Node's Ready condition.
    fn is_guess(&self) -> bool {
        sentence::caveat(self.status).is_some()
    }

    /// Returns the steps of a drain, or of the way back, each with more about it.
    fn steps(&self, verdict: Verdict) -> [(Look, String); 3] {
        let drain = &self.status.drain;
        let is_ready = verdict == Verdict::Ready;
        let (word, pool) = if is_ready { ("In", "the pool") } else { ("Out", "of the pool") };
        // Keeps the number and its unit on one line.
        let since = Age(drain.since_ms).to_string().replace(' ', "\u{a0}");
        let probers = match drain.probers {
            0 => "no regular prober".to_owned(),
            of => format!("{} of {of} balancers", drain.acknowledged_probers),
        };
        let sessions = self.status.sessions();
        let sessions = sessions.map_or("not counted".to_owned(), |count| format!("sessions: {count}"));
        let released = if is_ready {
            Look { word: "Sessions", class: "idle", sign: '·' }
        } else {
            Look::of_step("Released", drain.released)
        };
        [
            (Look::of_step(word, (!self.is_guess()).then_some(true)), format!("{pool} for {since}")),
            (Look::of_step("Acknowledged", drain.acknowledged_now(Some(verdict))), probers),
            (released, sessions),
        ]
    }

    /// Returns the regular and silent probers, and the others. Those that the operator still waits for come first.
    fn probers(&self) -> (Vec<&ProberRecord>, Vec<&ProberRecord>) {
        let (mut rows, others): (Vec<_>, Vec<_>) =
            self.status.probers.iter().partition(|prober| prober.standing.is_waited_for());
        rows.sort_by_key(|prober| (prober.acknowledged == Some(true), !prober.sees_drains, prober.standing));
        (rows, others)
    }
}
