//! The probers, their acknowledgement, and the progress of a drain.

#[cfg(test)]
mod tests;

use super::VerdictStyle;
use super::escape::{Breakable, Escaped};
use nodegate_agent_client::sentence;
use nodegate_readiness::probers::{DrainStatus, HaproxyReport, ProberRecord, Standing, cant_see};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Age, Verdict};
use std::fmt::{self, Write};

/// The maximum number of rows; `/status.json` has all probers.
const ROWS: usize = 40;
/// The maximum number of names in the list of other probers.
const NAMES: usize = 10;

/// Writes the regular and silent probers as a table, the others by name.
pub(super) fn write(page: &mut String, status: &Status) -> fmt::Result {
    let (Some(drain), Some(verdict)) = (&status.drain, status.verdict) else { return Ok(()) };
    page.push_str("<section class=\"asks\"><h2>Load balancers</h2>");
    write_steps(page, status, drain, verdict)?;
    write_caveats(page, drain)?;
    for service in &status.services {
        write!(page, "<p class=\"note\">{}.</p>", Escaped(sentence::service(service)))?;
    }
    let (mut rows, others): (Vec<_>, Vec<_>) = status.probers.iter().partition(|prober| is_in_table(prober));
    // Probers that the operator still waits for come first.
    rows.sort_by_key(|prober| (prober.told == Some(true), !prober.drainable, prober.standing));
    write_table(page, &rows, drain)?;
    write_others(page, &others)?;
    page.push_str("</section>");
    Ok(())
}

/// Returns true if the prober is regular, or was and is still waited for.
fn is_in_table(prober: &ProberRecord) -> bool {
    prober.standing.is_waited_for()
}

/// The progress of one step of a drain, or of the way back.
struct Step {
    class: &'static str,
    sign: char,
    title: &'static str,
    more: String,
}

impl Step {
    fn new(come: Option<bool>, title: &'static str, more: String) -> Self {
        let (class, sign) = match come {
            Some(true) => ("done", '✓'),
            Some(false) => ("open", '…'),
            None => ("unknown", '?'),
        };
        Self { class, sign, title, more }
    }
}

fn write_steps(page: &mut String, status: &Status, drain: &DrainStatus, verdict: Verdict) -> fmt::Result {
    let steps = [turned, told, released].map(|step| step(status, drain, verdict));
    page.push_str("<ol class=\"steps\">");
    for Step { class, sign, title, more } in steps {
        write!(
            page,
            "<li class=\"{class}\"><b><span aria-hidden=\"true\">{sign}</span> {title}</b><span>{more}</span>"
        )?;
    }
    page.push_str("</ol>");
    Ok(())
}

fn turned(status: &Status, drain: &DrainStatus, verdict: Verdict) -> Step {
    let (title, pool) = if verdict == Verdict::Ready { ("In", "the pool") } else { ("Out", "of the pool") };
    let sure = (!status.rests_on_stale_cache()).then_some(true);
    // Keeps the number and its unit on one line.
    let since = Age(drain.since_ms.into()).to_string().replace(' ', "\u{a0}");
    Step::new(sure, title, format!("{pool} for {since}"))
}

fn told(status: &Status, drain: &DrainStatus, verdict: Verdict) -> Step {
    let come = if verdict == Verdict::Ready { drain.told_ready } else { drain.told };
    let more = match status.told_of() {
        (_, 0) => "no regular prober".to_owned(),
        (told, of) => format!("{told} of {of} balancers"),
    };
    Step::new(come, "Told", more)
}

fn released(status: &Status, drain: &DrainStatus, verdict: Verdict) -> Step {
    let sessions = match status.sessions() {
        Some(1) => "1 session".to_owned(),
        Some(sessions) => format!("{sessions} sessions"),
        None => "not counted".to_owned(),
    };
    if verdict == Verdict::Ready {
        return Step { class: "idle", sign: '·', title: "Sessions", more: sessions };
    }
    let more = match status.sessions() {
        None => sessions,
        Some(_) if drain.released == Some(true) => "no session is left".to_owned(),
        Some(_) => format!("{sessions} left"),
    };
    Step::new(drain.released, "Released", more)
}

fn write_caveats(page: &mut String, drain: &DrainStatus) -> fmt::Result {
    for (what, why) in [("Told", &drain.not_known), ("Released", &drain.released_not_known)] {
        if let Some(why) = why {
            write!(page, "<p class=\"note\">{what} is unknown: {}.</p>", Escaped(why))?;
        }
    }
    if let Some(who) = cant_see(&drain.cant_see_drains) {
        write!(page, "<p class=\"hint\">{}: let it probe <code>/health</code>.</p>", Escaped(&who))?;
    }
    if drain.overflows > 0 {
        write!(
            page,
            "<p class=\"hint\">The table of probers overflowed {} times: --balancers names the probers that count.</p>",
            drain.overflows
        )?;
    }
    Ok(())
}

fn write_table(page: &mut String, rows: &[&ProberRecord], drain: &DrainStatus) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    page.push_str(
        "<table class=\"probers\"><thead><tr><th scope=\"col\">Balancer<th scope=\"col\">Told</thead><tbody>",
    );
    for prober in rows.iter().take(ROWS) {
        write_asker(page, prober)?;
        write_told(page, prober, drain)?;
    }
    page.push_str("</tbody></table>");
    if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
        write!(
            page,
            "<p class=\"note\">And {more} more, see <a href=\"status.json?pretty\">status.json</a>.</p>"
        )?;
    }
    Ok(())
}

fn write_asker(page: &mut String, prober: &ProberRecord) -> fmt::Result {
    let (address, request) = (prober.address, Breakable(&prober.request));
    page.push_str("<tr><th scope=\"row\">");
    match &prober.haproxy {
        Some(haproxy) => {
            let name = Breakable(&haproxy.node);
            write!(page, "<span class=\"name\">{name}</span> <span class=\"dim\">{address}</span>")?;
        }
        None => write!(page, "<span class=\"name\">{address}</span>")?,
    }
    write!(page, "<code>{request}</code><span class=\"more\">")?;
    if let Some(interval) = prober.interval_ms {
        write!(page, "every {}, ", Age(interval.into()))?;
    }
    write!(page, "last {} ago</span>", Age(prober.last_ms.into()))?;
    prober.haproxy.iter().try_for_each(|haproxy| write_report(page, haproxy))
}

/// Writes HAProxy's report about the server that stands for this node.
fn write_report(page: &mut String, haproxy: &HaproxyReport) -> fmt::Result {
    write!(page, "<span class=\"more\">{}", Breakable(&haproxy.server))?;
    if let Some(state) = &haproxy.state {
        write!(page, " is {} there", Escaped(state))?;
    }
    match haproxy.sessions {
        Some(1) => page.push_str(", 1\u{a0}session"),
        Some(sessions) => write!(page, ", {sessions}\u{a0}sessions")?,
        None => {}
    }
    page.push_str("</span>");
    Ok(())
}

/// Writes whether the prober has acknowledged the verdict, and the last answer that it got.
fn write_told(page: &mut String, prober: &ProberRecord, drain: &DrainStatus) -> fmt::Result {
    let (class, sign, word) = match (prober.drainable, prober.told) {
        (false, _) => ("not-ready", '✕', "never"),
        (true, Some(true)) => ("ready", '✓', "told"),
        (true, Some(false)) => ("draining", '…', "not yet"),
        (true, None) => ("unknown", '?', "not known"),
    };
    let style = VerdictStyle::of(Some(prober.verdict));
    write!(
        page,
        "<td class=\"{class}\"><span aria-hidden=\"true\">{sign}</span> {word}<span class=\"more\">heard <b class=\"{}\">{}</b>",
        style.class, style.word
    )?;
    prober.code.iter().try_for_each(|code| write!(page, " ({code})"))?;
    page.push_str("</span>");
    let who = prober.who();
    let mut waiting_for = drain.waiting_for.iter();
    match waiting_for.find(|one| one.prober == who && one.request == prober.request) {
        _ if prober.misses_drains() => {
            page.push_str(
                "<span class=\"more\">can&#39;t see drains: a drain does not change this answer</span>",
            );
        }
        _ if !prober.drainable => {
            page.push_str("<span class=\"more\">a drain does not change this answer</span>");
        }
        Some(waiting) => write!(page, "<span class=\"more\">{}</span>", Escaped(&waiting.why))?,
        None if prober.standing == Standing::Silent => page.push_str("<span class=\"more\">silent</span>"),
        None => {}
    }
    Ok(())
}

/// Writes the probers that are not waited for.
fn write_others(page: &mut String, others: &[&ProberRecord]) -> fmt::Result {
    if others.is_empty() {
        return Ok(());
    }
    page.push_str("<p class=\"note\">Not waited for: ");
    for (n, prober) in others.iter().take(NAMES).enumerate() {
        let ago = Age(prober.last_ms.into());
        let why =
            if prober.standing == Standing::Gone { "gone, last probe" } else { "irregular, last probe" };
        let comma = if n == 0 { "" } else { "; " };
        write!(page, "{comma}<b>{}</b> ({why} {ago} ago)", Breakable(prober.who()))?;
    }
    if let Some(more) = others.len().checked_sub(NAMES).filter(|more| *more > 0) {
        write!(page, "; and {more} more")?;
    }
    page.push_str(".</p>");
    Ok(())
}
