//! The status page for people: self-contained, without scripts. `page.html` is its template.

#[cfg(test)]
mod tests;

use askama::Template;
use askama::filters::{Escaper, Html};
use nodegate_agent_api::{ProberRecord, Standing, Status};
use nodegate_agent_client::{acknowledgement, sentence};
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
    refreshes: bool,
}

/// Renders the page for a status at `wall`, the time since the epoch. With `refreshes` the page reloads
/// itself every few seconds.
pub(crate) fn render(status: &Status, wall: Duration, refreshes: bool) -> askama::Result<String> {
    Page { status, wall: millis(wall), refreshes }.render()
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

/// The progress of one step of a drain, or of the way back.
type Step = (Look, String);

impl Page<'_> {
    fn node(&self) -> &str {
        self.status.node.as_deref().unwrap_or("unknown")
    }

    /// Returns true if the verdict comes from a stale cache, or against the Node's Ready condition.
    fn is_guess(&self) -> bool {
        let against_ready = self.status.unconfirmed || self.status.not_ready_pending.is_some();
        (self.status.is_based_on_stale_cache() || against_ready) && self.status.verdict.is_some()
    }

    /// Returns how the verdict is shown: a guess never looks like a Ready that was confirmed.
    fn verdict(&self) -> Look {
        let look = self.status.verdict.look();
        if self.is_guess() { Look { word: look.word, ..guess(look.class) } } else { look }
    }

    fn steps(&self, verdict: Verdict) -> [Step; 3] {
        let drain = &self.status.drain;
        let is_ready = verdict == Verdict::Ready;
        let step = |come, word| {
            let (class, sign) = match come {
                Some(true) => ("done", '✓'),
                Some(false) => ("open", '…'),
                None => ("unknown", '?'),
            };
            Look { word, class, sign }
        };
        let (word, pool) = if is_ready { ("In", "the pool") } else { ("Out", "of the pool") };
        let sure = (!self.is_guess()).then_some(true);
        // Keeps the number and its unit on one line.
        let since = drain.since_ms.age().to_string().replace(' ', "\u{a0}");
        let acknowledged = match (drain.acknowledged_probers, drain.probers) {
            (_, 0) => "no regular prober".to_owned(),
            (acknowledged, of) => format!("{acknowledged} of {of} balancers"),
        };
        let sessions = match self.status.sessions() {
            None => "not counted".to_owned(),
            Some(_) if !is_ready && drain.released == Some(true) => "no session is left".to_owned(),
            Some(count) => {
                let (plural, left) = (if count == 1 { "" } else { "s" }, if is_ready { "" } else { " left" });
                format!("{count} session{plural}{left}")
            }
        };
        let released = if is_ready {
            Look { word: "Sessions", class: "idle", sign: '·' }
        } else {
            step(drain.released, "Released")
        };
        [
            (step(sure, word), format!("{pool} for {since}")),
            (
                step(if is_ready { drain.acknowledged_ready } else { drain.acknowledged }, "Acknowledged"),
                acknowledged,
            ),
            (released, sessions),
        ]
    }

    /// Returns the regular and silent probers, and the others. Those that the operator still waits for come first.
    fn probers(&self) -> (Vec<&ProberRecord>, Vec<&ProberRecord>) {
        let (mut rows, others): (Vec<_>, Vec<_>) =
            self.status.probers.iter().partition(|prober| prober.standing.is_waited_for());
        rows.sort_by_key(|prober| (prober.acknowledged == Some(true), !prober.drainable, prober.standing));
        (rows, others)
    }
}

fn guess(class: &'static str) -> Look {
    Look { word: "", class: if class == "ready" { "draining" } else { class }, sign: '≈' }
}

/// Returns how the result of a check is shown.
fn result(verdict: Verdict, is_stale: bool) -> Look {
    let look = Some(verdict).look();
    if is_stale { guess(look.class) } else { look }
}

/// Returns whether the prober has acknowledged the verdict.
fn acknowledged(prober: &ProberRecord) -> Look {
    let (word, class, sign) = match (prober.drainable, prober.acknowledged) {
        (false, _) => ("never", "not-ready", '✕'),
        (true, Some(true)) => ("acknowledged", "ready", '✓'),
        (true, Some(false)) => ("not yet", "draining", '…'),
        (true, None) => ("not known", "unknown", '?'),
    };
    Look { word, class, sign }
}

/// Returns what the operator should know of a prober.
fn remark<'a>(prober: &ProberRecord, status: &'a Status) -> Option<&'a str> {
    let who = prober.who();
    let mut waiting_for = status.drain.waiting_for.iter();
    match waiting_for.find(|one| one.prober == who && one.request == prober.request) {
        _ if prober.misses_drains() => Some("can't see drains: a drain does not change this answer"),
        _ if !prober.drainable => Some("a drain does not change this answer"),
        Some(waiting) => Some(&waiting.why),
        None => (prober.standing == Standing::Silent).then_some("silent"),
    }
}

/// The forms in which the template shows values.
trait Shown {
    fn look(&self) -> Look
    where
        Self: Copy + Into<Option<Verdict>>,
    {
        let (word, class, sign) = match (*self).into() {
            Some(Verdict::Ready) => ("Ready", "ready", '✓'),
            Some(Verdict::Draining) => ("Draining", "draining", '▽'),
            Some(Verdict::NotReady) => ("NotReady", "not-ready", '✕'),
            None => ("Misconfigured", "misconfigured", '!'),
        };
        Look { word, class, sign }
    }

    fn age(&self) -> Age
    where
        Self: Copy + Into<u64>,
    {
        Age((*self).into())
    }
}

impl<T> Shown for T {}
