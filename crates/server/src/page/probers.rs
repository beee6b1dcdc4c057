//! Who asks for the verdict, what each was told, and how far a drain has come.

use super::escape::{Breakable, Escaped};
use super::verdict_style::VerdictStyle;
use nodegate_readiness::probers::{DrainStatus, HaproxyReport, ProberRecord, Standing};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Age, Verdict};
use std::fmt::{self, Write};

/// More rows nobody reads; `/status.json` has them all.
const ROWS: usize = 40;
/// More names of those who are not waited for.
const NAMES: usize = 10;

/// The probers that go on asking as a table, the others by name.
pub(super) fn write(page: &mut String, status: &Status) -> fmt::Result {
    let (Some(drain), Some(verdict)) = (&status.drain, status.verdict) else { return Ok(()) };
    page.push_str("<section class=\"asks\"><h2>Who asks</h2>");
    write_steps(page, status, drain, verdict)?;
    write_doubts(page, drain)?;
    let (mut rows, others): (Vec<_>, Vec<_>) = status.probers.iter().partition(|prober| is_in_table(prober));
    // Those that a person waits for come first.
    rows.sort_by_key(|prober| (prober.told == Some(true), !prober.drainable, prober.standing));
    write_table(page, &rows, drain)?;
    write_others(page, &others)?;
    page.push_str("</section>");
    Ok(())
}

/// Whether it goes on asking, or did and is waited for.
fn is_in_table(prober: &ProberRecord) -> bool {
    matches!(prober.standing, Standing::Regular | Standing::Silent)
}

/// How far one step of a drain, or of the way back, has come.
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
    let sure = (!status.cache.stale).then_some(true);
    // Its number and its unit stay together.
    let since = Age(drain.since_ms.into()).to_string().replace(' ', "\u{a0}");
    Step::new(sure, title, format!("{pool} for {since}"))
}

fn told(status: &Status, drain: &DrainStatus, verdict: Verdict) -> Step {
    let come = if verdict == Verdict::Ready { drain.told_ready } else { drain.told };
    let more = match status.told_of() {
        (_, 0) => "nobody goes on asking".to_owned(),
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

/// What is not known, and why.
fn write_doubts(page: &mut String, drain: &DrainStatus) -> fmt::Result {
    for (what, why) in [("told", &drain.not_known), ("released", &drain.released_not_known)] {
        if let Some(why) = why {
            write!(page, "<p class=\"note\">Not known whether {what}: {}.</p>", Escaped(why))?;
        }
    }
    if drain.overflows > 0 {
        write!(
            page,
            "<p class=\"hint\">More have asked than can be remembered, {} times.</p>",
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

/// Who asks what, and how often.
fn write_asker(page: &mut String, prober: &ProberRecord) -> fmt::Result {
    let (address, question) = (prober.address, Breakable(&prober.question));
    page.push_str("<tr><th scope=\"row\">");
    match &prober.haproxy {
        Some(haproxy) => {
            let name = Breakable(&haproxy.node);
            write!(page, "<span class=\"name\">{name}</span> <span class=\"dim\">{address}</span>")?;
        }
        None => write!(page, "<span class=\"name\">{address}</span>")?,
    }
    write!(page, "<code>{question}</code><span class=\"more\">")?;
    if let Some(interval) = prober.interval_ms {
        write!(page, "every {}, ", Age(interval.into()))?;
    }
    write!(page, "last {} ago</span>", Age(prober.last_ms.into()))?;
    prober.haproxy.iter().try_for_each(|haproxy| write_report(page, haproxy))
}

/// What a HAProxy says of the server that this node is to it.
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

/// Whether it has been told, and what it last heard.
fn write_told(page: &mut String, prober: &ProberRecord, drain: &DrainStatus) -> fmt::Result {
    let (class, sign, word) = match (prober.drainable, prober.told) {
        (false, _) => ("not-ready", '✕', "never"),
        (true, Some(true)) => ("ready", '✓', "told"),
        (true, Some(false)) => ("draining", '…', "not yet"),
        (true, None) => ("unknown", '?', "not known"),
    };
    let style = VerdictStyle::of(prober.verdict);
    write!(
        page,
        "<td class=\"{class}\"><span aria-hidden=\"true\">{sign}</span> {word}<span class=\"more\">heard <b class=\"{}\">{}</b>",
        style.class, style.word
    )?;
    prober.code.iter().try_for_each(|code| write!(page, " ({code})"))?;
    page.push_str("</span>");
    let who = prober.who();
    let mut waiting_for = drain.waiting_for.iter();
    match waiting_for.find(|one| one.prober == who && one.question == prober.question) {
        _ if !prober.drainable => page.push_str("<span class=\"more\">no drain changes this answer</span>"),
        Some(waiting) => write!(page, "<span class=\"more\">{}</span>", Escaped(&waiting.why))?,
        None if prober.standing == Standing::Silent => page.push_str("<span class=\"more\">silent</span>"),
        None => {}
    }
    Ok(())
}

/// Who asked and is not waited for.
fn write_others(page: &mut String, others: &[&ProberRecord]) -> fmt::Result {
    if others.is_empty() {
        return Ok(());
    }
    page.push_str("<p class=\"note\">Not waited for: ");
    for (n, prober) in others.iter().take(NAMES).enumerate() {
        let ago = Age(prober.last_ms.into());
        let why =
            if prober.standing == Standing::Gone { "gone, last asked" } else { "asks now and then, last" };
        let comma = if n == 0 { "" } else { "; " };
        write!(page, "{comma}<b>{}</b> ({why} {ago} ago)", Breakable(prober.who()))?;
    }
    if let Some(more) = others.len().checked_sub(NAMES).filter(|more| *more > 0) {
        write!(page, "; and {more} more")?;
    }
    page.push_str(".</p>");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::tests::{page, status};
    use nodegate_readiness::probers::{Asked, Given, Traffic};
    use nodegate_readiness::{LastKnown, Moment, Reason};
    use std::net::IpAddr;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    /// When all of this is looked at, five minutes after the start.
    fn now() -> Moment {
        Moment::from_start(SECOND * 300)
    }

    /// Somebody who has asked once a second all the time, and had this verdict `times` times in a row.
    fn prober(address: &str, question: &str, verdict: Verdict, times: u32) -> ProberRecord {
        let since = Moment::from_start(SECOND * (300 - times + 1));
        let asked = Asked {
            first: Moment::default(),
            last: now(),
            interval: Some(SECOND),
            times: 300,
            steady: 3,
            given: Given { verdict, code: Some(if verdict == Verdict::Ready { 200 } else { 503 }) },
            in_a_row: times,
            in_a_row_since: since,
        };
        let address: IpAddr = address.parse().unwrap();
        ProberRecord::new(address, question.to_owned(), true, &asked, now())
    }

    fn haproxy(prober: ProberRecord, node: &str, server: &str, sessions: u64) -> ProberRecord {
        let report = HaproxyReport {
            node: node.to_owned(),
            server: server.to_owned(),
            state: Some("NOLB 2/3".to_owned()),
            sessions: Some(sessions),
        };
        ProberRecord { haproxy: Some(report), ..prober }
    }

    /// A node that was cordoned eight seconds ago, asked by these.
    fn draining(probers: Vec<ProberRecord>, established: Option<u64>) -> Status {
        let traffic = established.map(|established| Traffic {
            ports: vec![443],
            established: Some(established),
            age_ms: Some(100),
            error: None,
        });
        let status = Status {
            verdict: Some(Verdict::Draining),
            reason: Some(Reason::new("Unschedulable")),
            ..status()
        };
        status.with_probers(probers, DrainStatus::unjudged(SECOND * 8, SECOND * 300, 0, traffic))
    }

    fn holds(status: &Status, parts: &[&str]) {
        let page = page(status).replace("<wbr>", "");
        for part in parts {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }

    #[test]
    fn who_has_not_been_told_comes_first_and_what_it_lacks() {
        use Verdict::{Draining, Ready};
        let told = haproxy(prober("10.0.0.11", "/health", Draining, 6), "lb1", "app/worker-1", 3);
        let slow = haproxy(prober("10.0.0.12", "/health?drain=404", Draining, 2), "lb2", "app/worker-1", 14);
        let never =
            ProberRecord { drainable: false, ..prober("10.0.9.9", "/health?check=kubelet", Ready, 300) };
        let status = draining(vec![told, slow, never], Some(1));
        let parts = [
            "<li class=\"done\"><b><span aria-hidden=\"true\">✓</span> Out</b><span>of the pool for 8\u{a0}s</span>",
            "<li class=\"open\"><b><span aria-hidden=\"true\">…</span> Told</b><span>1 of 2 balancers</span>",
            "Released</b><span>1 session left</span>",
            "<span class=\"name\">lb2</span> <span class=\"dim\">10.0.0.12</span><code>/health?drain=404</code>",
            "every 1 s, last 0 ms ago",
            "app/worker-1 is NOLB 2/3 there, 14\u{a0}sessions",
            "not yet<span class=\"more\">heard <b class=\"draining\">Draining</b> (503)",
            "told 2 of 4 times, asks every 1 s",
            "never<span class=\"more\">heard <b class=\"ready\">Ready</b> (200)",
            "no drain changes this answer",
        ];
        holds(&status, &parts);
        let page = page(&status);
        let place = |name: &str| page.find(name).unwrap();
        assert!(place("lb2") < place("10.0.9.9") && place("10.0.9.9") < place("lb1"), "{page}");
    }

    #[test]
    fn the_steps_go_as_far_as_is_known() {
        let told = || vec![prober("10.0.0.11", "/health", Verdict::Draining, 6)];
        holds(
            &draining(told(), Some(0)),
            &["Told</b><span>1 of 1 balancers", "✓</span> Released</b><span>no session is left"],
        );
        holds(&draining(told(), Some(7)), &["…</span> Released</b><span>7 sessions left"]);
        holds(
            &draining(told(), None),
            &["?</span> Released</b><span>not counted", "Not known whether released: "],
        );
        let nobody = draining(Vec::new(), None);
        holds(
            &nobody,
            &["?</span> Told</b><span>nobody goes on asking", "Not known whether told: no balancer"],
        );
        assert!(!page(&nobody).contains("<table class=\"probers\">"));
        let back = Status { verdict: Some(Verdict::Ready), ..draining(told(), Some(7)) }.judged();
        holds(
            &back,
            &[
                "✓</span> In</b><span>the pool for 8\u{a0}s",
                "…</span> Told</b>",
                "Sessions</b><span>7 sessions<",
            ],
        );
    }

    #[test]
    fn a_guess_is_not_called_told() {
        let mut stale = draining(vec![prober("10.0.0.11", "/health", Verdict::Draining, 6)], Some(0));
        stale.cache.stale = true;
        stale.last_known = Some(LastKnown { verdict: Verdict::Draining, reason: None });
        let stale = stale.judged();
        holds(
            &stale,
            &[
                "?</span> Out</b>",
                "?</span> Told</b>",
                "Not known whether told: the cache is stale",
                "not known<span",
            ],
        );
    }

    #[test]
    fn strangers_are_named_but_not_waited_for() {
        let mut gone = haproxy(prober("10.0.0.14", "/health", Verdict::Ready, 9), "lb3", "app/worker-1", 1);
        (gone.standing, gone.last_ms) = (Standing::Gone, 240_000);
        let stranger = |n: u8| {
            let asked = prober(&format!("10.9.0.{n}"), "/nodecheck", Verdict::Ready, 1);
            ProberRecord { standing: Standing::Occasional, last_ms: 40_000, ..asked }
        };
        let others = std::iter::once(gone).chain((0..200).map(stranger)).collect();
        let status = draining(others, None);
        holds(
            &status,
            &[
                "Not waited for: <b>10.0.0.14 lb3 app/worker-1</b> (gone, last asked 4 min ago); ",
                "<b>10.9.0.0</b> (asks now and then, last 40 s ago)",
                "; and 191 more.",
            ],
        );
        assert!(page(&status).len() < 16 * 1024);
    }

    #[test]
    fn a_crowd_is_cut_short() {
        let all = (0..=255u8).map(|n| prober(&format!("10.9.0.{n}"), "/health", Verdict::Draining, 6));
        let status = draining(all.collect(), None);
        holds(&status, &["And 216 more, see", "256 of 256 balancers"]);
    }

    /// What a stranger sends is made harmless where it is recorded; the page does not count on that.
    #[test]
    fn nothing_that_a_prober_sends_is_markup() {
        let evil = "<script>\"'&\u{1b}\u{202e}";
        let mut hostile = haproxy(prober("10.0.0.11", evil, Verdict::Ready, 1), evil, evil, 1);
        hostile.haproxy.as_mut().unwrap().state = Some(evil.to_owned());
        let gone = ProberRecord { standing: Standing::Gone, ..hostile.clone() };
        let mut status = draining(vec![hostile, gone], None);
        let drain = status.drain.as_mut().unwrap();
        (drain.not_known, drain.released_not_known) = (Some(evil.to_owned()), Some(evil.to_owned()));
        for waiting in &mut drain.waiting_for {
            evil.clone_into(&mut waiting.why);
        }
        let page = page(&status).replace("<wbr>", "");
        assert!(
            !page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'),
            "{page}"
        );
        // Question, name, server, state, what it waits for; who is gone, twice; two doubts.
        assert_eq!(page.matches("&lt;script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}").count(), 9, "{page}");
    }
}
