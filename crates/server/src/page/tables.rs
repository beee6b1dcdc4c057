//! The tables of checks and flips.

use super::VerdictStyle;
use super::escape::{Breakable, Escaped};
use nodegate_agent_client::sentence::explained;
use nodegate_readiness::status::{CheckStatus, Status};
use nodegate_readiness::{Age, Flip, Stamp, Verdict};
use std::fmt::{self, Write};

/// Writes each running check with its result, and the names of the others.
pub(super) fn write_checks(page: &mut String, checks: &[CheckStatus]) -> fmt::Result {
    page.push_str(
        "<section><h2>Checks</h2><table class=\"checks\"><thead><tr><th scope=\"col\">Check<th scope=\"col\">Result<th scope=\"col\" \
         class=\"age\">As of</thead><tbody>",
    );
    for check in checks.iter().filter(|check| check.active) {
        write_check(page, check)?;
    }
    page.push_str("</tbody></table>");
    let mut idle = checks.iter().filter(|check| !check.active).peekable();
    if idle.peek().is_some() {
        page.push_str("<p class=\"note\">Not running until a request names them:");
        for (n, check) in idle.enumerate() {
            write!(page, "{}<span>{}</span>", if n == 0 { " " } else { ", " }, Escaped(&check.name))?;
        }
        page.push_str("</p>");
    }
    page.push_str("</section>");
    Ok(())
}

fn write_check(page: &mut String, check: &CheckStatus) -> fmt::Result {
    let verdict = check.verdict.unwrap_or(Verdict::NotReady);
    let word = match verdict {
        Verdict::Ready => "passes",
        Verdict::Draining => "drains",
        Verdict::NotReady => "fails",
    };
    let VerdictStyle { class, sign, .. } = VerdictStyle::of(Some(verdict));
    write!(page, "<tr><th scope=\"row\"><span class=\"name\">{}</span>", Breakable(&check.name))?;
    if check.default {
        page.push_str(" <span class=\"tag\">decides</span>");
    }
    write!(page, "<td class=\"{class}\"><span aria-hidden=\"true\">{sign}</span> {word}<td class=\"age\">")?;
    match check.age_ms {
        Some(age) => write!(page, "{} ago", Age(age))?,
        None => page.push('–'),
    }
    // The reason gets its own line: it may be long, and a phone is narrow.
    let (class, before, reason) = match (&check.reason, &check.last_reason) {
        (Some(reason), _) => ("reason", "", reason),
        (None, Some(last)) => ("last", "last: ", last),
        (None, None) => return Ok(()),
    };
    write!(
        page,
        "<tr class=\"because\"><td colspan=\"3\"><span class=\"{class}\">{before}{}</span>",
        Breakable(explained(reason))
    )
}

/// Writes the remembered flips, newest first.
pub(super) fn write_flips(page: &mut String, status: &Status, wall: u64) -> fmt::Result {
    page.push_str("<section><h2>Flips</h2>");
    if status.flips.is_empty() {
        page.push_str("<p class=\"note\">The verdict has not changed since the start.</p></section>");
        return Ok(());
    }
    page.push_str(
        "<table class=\"flips\"><thead><tr><th scope=\"col\">Time <small>UTC</small><th scope=\"col\">Flip</thead><tbody>",
    );
    for flip in &status.flips {
        write_flip(page, flip, wall)?;
    }
    page.push_str("</tbody></table></section>");
    Ok(())
}

fn write_flip(page: &mut String, flip: &Flip, wall: u64) -> fmt::Result {
    let ago = Age(u128::from(wall.saturating_sub(flip.at_unix_ms)));
    let (at, from, to) =
        (Stamp(flip.at_unix_ms), VerdictStyle::of(Some(flip.from)), VerdictStyle::of(Some(flip.to)));
    write!(
        page,
        "<tr><td><time datetime=\"{at}\">{at:#}</time> <span class=\"ago\">{ago} ago</span><td><span class=\"change\">\
         {} <span aria-label=\"to\">→</span> <b class=\"{}\">{}</b></span> <span class=\"reason\">{}</span>",
        from.word,
        to.class,
        to.word,
        Breakable(explained(&flip.reason)),
    )
}
