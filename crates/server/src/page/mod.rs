//! The status page for people: self-contained, without scripts.

mod escape;
mod prober_section;
mod tables;

use escape::{Breakable, Escaped};
use nodegate_agent_client::sentence::{caveat, shutdown, why};
use nodegate_readiness::status::Status;
use nodegate_readiness::{Age, Stamp, Verdict};
use std::fmt::{self, Write};
use std::time::Duration;

/// The content security policy. It allows only the style sheet inside the page, by its hash, and the inline
/// icon.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'sha256-Qbdzl6GSX/PQpLv61gC+1UxvEZJm1hBjQ8wHLau6Pxc='; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = include_str!("page.css");

/// The hint for an agent that does not know its node.
const NODE_NAME_ENV: &str =
    "env:\n- name: NODE_NAME\n  valueFrom:\n    fieldRef:\n      fieldPath: spec.nodeName";

/// The look of a verdict: a sign of its own shape beside the colour.
#[derive(Clone, Copy)]
struct VerdictStyle {
    word: &'static str,
    /// The class in the style sheet.
    class: &'static str,
    sign: char,
    /// The colour of the icon in the browser's tab; it must work on a light and on a dark tab.
    icon: &'static str,
}

impl VerdictStyle {
    /// Returns the style of a verdict, or of an agent without one.
    fn of(verdict: Option<Verdict>) -> Self {
        let (word, class, sign, icon) = match verdict {
            Some(Verdict::Ready) => ("Ready", "ready", '✓', "2a9d5c"),
            Some(Verdict::Draining) => ("Draining", "draining", '▽', "c98200"),
            Some(Verdict::NotReady) => ("NotReady", "not-ready", '✕', "d63a32"),
            None => ("Misconfigured", "misconfigured", '!', "d63a32"),
        };
        Self { word, class, sign, icon }
    }
}

/// Returns true if the verdict comes from a stale cache, or against the Node's Ready condition.
fn is_guess(status: &Status) -> bool {
    let against_ready = status.unconfirmed || status.not_ready_pending.is_some();
    (status.rests_on_stale_cache() || against_ready) && status.verdict.is_some()
}

/// Renders the page for a status at `wall`, the time since the epoch. With `refreshes` the page reloads
/// itself every few seconds.
pub(crate) fn render(status: &Status, wall: Duration, refreshes: bool) -> String {
    let mut page = String::with_capacity(16 * 1024);
    let wall = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    // Writing to a string does not fail.
    let _ = write_page(&mut page, status, wall, refreshes);
    page
}

fn write_page(page: &mut String, status: &Status, wall: u64, refreshes: bool) -> fmt::Result {
    write_head(page, status, refreshes)?;
    // Two columns on a wide screen, one on a phone.
    page.push_str("<body><main><div>");
    write_verdict(page, status, wall)?;
    write_facts(page, status)?;
    prober_section::write(page, status)?;
    page.push_str("</div><div>");
    // A misconfigured agent answers 500, whatever its checks say.
    if status.verdict.is_some() {
        tables::write_checks(page, &status.checks)?;
    }
    tables::write_flips(page, status, wall)?;
    page.push_str("</div></main>");
    write_foot(page, status, wall, refreshes)
}

fn write_head(page: &mut String, status: &Status, refreshes: bool) -> fmt::Result {
    let style = VerdictStyle::of(status.verdict);
    let node = status.node.as_deref().unwrap_or("unknown node");
    let refresh = if refreshes { "<meta http-equiv=\"refresh\" content=\"5\">" } else { "" };
    let question_mark = if is_guess(status) { "?" } else { "" };
    write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">{refresh}<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>{}{question_mark} · {}</title><link rel=\"icon\" href=\"data:image/svg+xml,%3Csvg \
         xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Ctext x='12' y='21' font-size='24' \
         text-anchor='middle' fill='%23{}'%3E{}%3C/text%3E%3C/svg%3E\"><style>{STYLE}</style></head>",
        style.word,
        Escaped(node),
        style.icon,
        style.sign,
    )
}

fn write_verdict(page: &mut String, status: &Status, wall: u64) -> fmt::Result {
    let style = VerdictStyle::of(status.verdict);
    let (guess, question_mark) = if is_guess(status) { (" guess", "<span>?</span>") } else { ("", "") };
    write!(
        page,
        "<header class=\"verdict {}{guess}\"><p class=\"node\"><span>Node</span> {}</p>\
         <h1><span aria-hidden=\"true\">{}</span> {}{question_mark}</h1><p class=\"why\">{}</p>",
        style.class,
        Escaped(status.node.as_deref().unwrap_or("unknown")),
        style.sign,
        style.word,
        Breakable(why(status)),
    )?;
    if let Some(caveat) = caveat(status) {
        write!(page, "<p class=\"caveat\"><strong>A guess:</strong> {}.</p>", Escaped(caveat))?;
    }
    if let Some(error) = &status.cache.error {
        write!(page, "<p class=\"caveat\"><strong>API server:</strong> {}.</p>", Escaped(error))?;
    }
    if let Some(hint) = &status.hint {
        write!(page, "<p class=\"hint\"><strong>Hint:</strong> {}.</p>", Escaped(hint))?;
    }
    if status.verdict.is_none() {
        write!(page, "<pre>{NODE_NAME_ENV}</pre>")?;
    } else if let Some(flip) = status.flips.first() {
        let (since, ago) = (Stamp(flip.at_unix_ms), Age(u128::from(wall.saturating_sub(flip.at_unix_ms))));
        write!(
            page,
            "<p class=\"since\">for {ago}, since <time datetime=\"{since}\">{since:#}</time> UTC</p>"
        )?;
    } else {
        write!(page, "<p class=\"since\">since the agent's start {} ago</p>", Age(status.uptime_ms))?;
    }
    page.push_str("</header>");
    Ok(())
}

fn write_facts(page: &mut String, status: &Status) -> fmt::Result {
    let answer = match status.verdict {
        Some(Verdict::Ready) => "200",
        Some(Verdict::Draining | Verdict::NotReady) => "503",
        None => "500",
    };
    let (class, trust) = if status.cache.stale { ("draining", "stale") } else { ("ready", "fresh") };
    write!(page, "<dl><div><dt>Cache<dd><b class=\"{class}\">{trust}</b></div><div><dt>Last proof<dd>")?;
    match status.cache.age_ms {
        Some(age) => write!(page, "{} ago", Age(age))?,
        None => page.push_str("none yet"),
    }
    write!(
        page,
        "</div><div><dt>Stale after<dd>{}</div><div><dt>/health<dd>{answer}</div></dl>",
        Age(status.cache.stale_after_ms)
    )?;
    match status.host {
        Some(host) => write!(page, "<dl><div><dt>Reboot<dd>{}</div></dl>", Escaped(shutdown(host))),
        None => Ok(()),
    }
}

fn write_foot(page: &mut String, status: &Status, wall: u64, refreshes: bool) -> fmt::Result {
    let refresh = if refreshes {
        "Reloads every 5 s (<a href=\"?pause\">pause</a>)"
    } else {
        "Paused (<a href=\"./\">resume</a>)"
    };
    write!(
        page,
        "<footer><p>As of <time datetime=\"{0}\">{0:#}</time> UTC. {refresh}.</p><p>nodegate {1}, up {2} · \
         <a href=\"status.json?pretty\">status.json</a> · <a href=\"metrics\">metrics</a></p></footer></body></html>",
        Stamp(wall),
        Escaped(&status.version),
        Age(status.uptime_ms)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::status::{CacheStatus, CheckStatus};
    use nodegate_readiness::{LastKnown, Reason};
    use std::borrow::Cow;
    use std::process::Command;

    /// Returns the status of a ready node from an agent that has just started.
    pub(super) fn status() -> Status {
        let cache = CacheStatus {
            age_ms: Some(100),
            stale_after_ms: 15_000,
            on_stale: "ready".to_owned(),
            ..CacheStatus::default()
        };
        Status {
            node: Some("n1".to_owned()),
            version: Cow::Borrowed("1.2.3"),
            verdict: Some(Verdict::Ready),
            cache,
            ..Status::default()
        }
    }

    pub(super) fn page(status: &Status) -> String {
        render(status, Duration::from_secs(1_700_000_000), true)
    }

    #[test]
    fn nothing_from_elsewhere_is_markup() {
        let evil = "<script>\"'&\u{1b}\u{202e}";
        let mut status = Status { node: Some(evil.to_owned()), verdict: Some(Verdict::NotReady), ..status() };
        status.reason = Some(Reason::new(evil));
        status.version = Cow::Borrowed(evil);
        status.checks.push(CheckStatus {
            name: evil.to_owned(),
            default: false,
            active: true,
            passed: Some(false),
            verdict: Some(Verdict::NotReady),
            reason: Some(Reason::new(evil)),
            last_reason: Some(Reason::new(evil)),
            age_ms: None,
            duration_ms: 0,
        });
        let (from, to, reason) = (Verdict::Ready, Verdict::NotReady, Reason::new(evil));
        status.flips.push(nodegate_readiness::Flip { at_unix_ms: 1, from, to, reason });
        let page = page(&status).replace("<wbr>", "");
        assert!(
            !page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'),
            "{page}"
        );
        // Reasons arrive without control characters.
        let shown = |end| page.matches(&format!("&lt;script&gt;&quot;&#39;&amp;{end}")).count();
        assert_eq!((shown("\u{fffd}\u{fffd}"), shown(" \u{fffd}")), (4, 3), "{page}");
    }

    #[test]
    fn a_guess_is_one_at_a_glance() {
        let mut status = status();
        assert!(!page(&status).contains("A guess:"));
        status.cache.stale = true;
        status.cache.error = Some("certificate expired; renew it".to_owned());
        status.last_known =
            Some(LastKnown { verdict: Verdict::Draining, reason: Some(Reason::new("Unschedulable")) });
        let page = page(&status);
        for part in [
            "<title>Ready? · n1",
            "class=\"verdict ready guess\"",
            "A guess:</strong> the API server was last heard 100 ms ago; before that the node was Draining: cordoned \
             (Unschedulable); the answer fails open.",
            "API server:</strong> certificate expired; renew it.",
        ] {
            assert!(page.contains(part), "no {part} in {page}");
        }
    }

    #[test]
    fn it_can_be_paused() {
        let paused = render(&status(), Duration::ZERO, false);
        assert!(!paused.contains("http-equiv") && paused.contains("resume"));
        assert!(page(&status()).contains("http-equiv=\"refresh\" content=\"5\""));
    }

    #[test]
    fn the_policy_names_the_style_sheet() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page/page.css");
        let hash = format!("sha256sum {path} | cut -c1-64 | tr a-f A-F | basenc --base16 -d | base64");
        let output = Command::new("sh").args(["-c", &hash]).output().expect("coreutils");
        let hash = String::from_utf8(output.stdout).unwrap();
        let source = format!("'sha256-{}'", hash.trim());
        assert!(POLICY.contains(&source), "the style sheet has changed: {source}");
    }
}
