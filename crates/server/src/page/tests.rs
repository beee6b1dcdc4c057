use super::*;
use nodegate_agent_api::{CacheStatus, CheckStatus, DrainStatus, HaproxyReport, Traffic, WaitingFor};
use nodegate_readiness::{Flip, LastKnown, Reason};
use serde_json::json;
use std::borrow::Cow;
use std::process::Command;

/// Text that would be markup, a command for a terminal, and a change of the writing direction.
const EVIL: &str = "<script>\"'&\u{1b}\u{202e}";

/// Returns a prober that asks once a second, and got this verdict the last `times` times.
fn prober(address: &str, request: &str, verdict: Verdict, times: u32) -> ProberRecord {
    let (is_out, code) = if verdict == Verdict::Ready { (None, 200) } else { (Some(times > 3), 503) };
    let record = json!({
        "address": address, "question": request, "standing": "regular", "sees_drains": true, "asked": 300,
        "first_ms": 300_000, "last_ms": 0, "interval_ms": 1000, "verdict": verdict, "code": code,
        "in_a_row": times, "acknowledged": is_out,
    });
    serde_json::from_value(record).unwrap()
}

fn haproxy(prober: ProberRecord, node: &str, server: &str, state: &str, sessions: u64) -> ProberRecord {
    let (node, server, state) = (node.to_owned(), server.to_owned(), Some(state.to_owned()));
    ProberRecord { haproxy: Some(HaproxyReport { node, server, state, sessions: Some(sessions) }), ..prober }
}

/// Returns the status of a node with these probers, cordoned eight seconds ago.
fn draining(probers: Vec<ProberRecord>, established: Option<u64>) -> Status {
    let traffic =
        established.map(|_| Traffic { ports: vec![443], established, age_ms: Some(100), error: None });
    let awaited: Vec<_> = probers.iter().filter(|prober| prober.is_waited_for()).collect();
    let missing: Vec<_> = awaited.iter().filter(|prober| prober.acknowledged != Some(true)).collect();
    let acknowledged = (!awaited.is_empty()).then_some(missing.is_empty());
    let waiting_for = missing.iter().map(|prober| WaitingFor {
        prober: prober.who(),
        request: prober.request.clone(),
        why: format!("got it {} of 4 times", prober.in_a_row),
    });
    let blind = probers.iter().filter(|prober| prober.misses_drains());
    let drain = DrainStatus {
        acknowledged,
        acknowledged_ready: Some(false),
        released: established.filter(|_| acknowledged == Some(true)).map(|left| left == 0),
        released_not_known: established.is_none().then(|| "no counter".to_owned()),
        acknowledged_probers: awaited.len() - missing.len(),
        probers: awaited.len(),
        waiting_for: waiting_for.collect(),
        cant_see_drains: blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect(),
        not_known: acknowledged.is_none().then(|| "no balancer probes this agent regularly".to_owned()),
        since_ms: 8000,
        traffic,
        ..DrainStatus::default()
    };
    let (from, to, reason) = (Verdict::Ready, Verdict::Draining, Reason::new("Unschedulable"));
    // By a wall clock that was set since.
    let flips = vec![Flip { at_unix_ms: 1, age_ms: 8000, from, to, reason: reason.clone() }];
    Status { verdict: Some(to), reason: Some(reason), probers, drain, flips, ..status() }
}

/// Returns the status of a ready node from an agent that has just started.
fn status() -> Status {
    let on_stale = "ready".to_owned();
    let cache = CacheStatus { age_ms: Some(100), stale_after_ms: 15_000, on_stale, ..CacheStatus::default() };
    let (node, version, verdict) = (Some("n1".to_owned()), Cow::Borrowed("1.2.3"), Some(Verdict::Ready));
    Status { node, version, verdict, cache, ..Status::default() }
}

fn check(name: &str, verdict: Verdict, stale: bool, reason: Option<Reason>) -> CheckStatus {
    let (name, passed, last_reason) = (name.to_owned(), Some(verdict == Verdict::Ready), reason.clone());
    let (default, active, verdict, age_ms, duration_ms) = (true, true, Some(verdict), Some(100), 0);
    CheckStatus { name, default, active, passed, stale, verdict, reason, last_reason, age_ms, duration_ms }
}

fn page(status: &Status) -> String {
    render(status, Duration::from_secs(1_700_000_000)).unwrap()
}

fn holds(status: &Status, parts: &[&str]) {
    let page = page(status);
    for part in parts {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[test]
fn waiting_probers_come_first_with_their_reason() {
    use Verdict::{Draining, Ready};
    let acknowledged = haproxy(prober("10.0.0.11", "/health", Draining, 6), "lb1", "app/worker-1", "UP", 3);
    let slow = prober("10.0.0.12", "/health?drain=404", Draining, 2);
    let slow = haproxy(slow, "lb2", "app/worker-1", "NOLB 2/3", 14);
    let never =
        ProberRecord { sees_drains: false, ..prober("10.0.9.9", "/health?check=kubelet", Ready, 300) };
    let status = draining(vec![acknowledged, slow, never], Some(1));
    let parts = [
        "<li class=\"done\"><b><span aria-hidden=\"true\">✓</span> Out</b><span>of the pool for 8\u{a0}s</span>",
        "<li class=\"open\"><b><span aria-hidden=\"true\">…</span> Acknowledged</b><span>1 of 2 balancers</span>",
        "Released</b><span>sessions: 1</span>",
        "<span class=\"name\">lb2</span> <span class=\"dim\">10.0.0.12</span><code>/health?drain=404</code>",
        "every 1 s, last 0 ms ago",
        "for 8 s, since <time datetime=\"1970-01-01T00:00:00",
        "<span class=\"ago\">8 s ago</span>",
        "app/worker-1 is NOLB 2/3 there, 14&nbsp;sessions",
        "<td class=\"draining\">503 Draining x2",
        "Waiting for 10.0.0.12 lb2 app/worker-1 /health?drain=404: got it 2 of 4 times.",
        "<td class=\"not-ready\">200 Ready x300, can&#39;t see drains",
        "10.0.9.9 /health?check=kubelet can&#39;t see drains: let it probe <code>/health</code>.",
    ];
    holds(&status, &parts);
    let page = page(&status);
    let place = |name: &str| page.find(&format!(">{name}<")).unwrap();
    assert!(place("lb2") < place("10.0.9.9") && place("10.0.9.9") < place("lb1"), "{page}");
}

#[test]
fn the_steps_go_as_far_as_is_known() {
    let acknowledged = || vec![prober("10.0.0.11", "/health", Verdict::Draining, 6)];
    let all = "Acknowledged</b><span>1 of 1 balancers";
    holds(&draining(acknowledged(), Some(0)), &[all, "✓</span> Released</b><span>sessions: 0"]);
    holds(&draining(acknowledged(), Some(7)), &["…</span> Released</b><span>sessions: 7"]);
    let uncounted = ["?</span> Released</b><span>not counted", "Released is unknown: "];
    holds(&draining(acknowledged(), None), &uncounted);
    let unprobed = draining(Vec::new(), None);
    let unknown = "The acknowledgement is unknown: no balancer";
    holds(&unprobed, &["?</span> Acknowledged</b><span>no regular prober", unknown]);
    assert!(!page(&unprobed).contains("<table class=\"probers\">"));
    let back = Status { verdict: Some(Verdict::Ready), ..draining(acknowledged(), Some(7)) };
    let sessions = "Sessions</b><span>sessions: 7<";
    holds(&back, &["✓</span> In</b><span>the pool for 8\u{a0}s", "…</span> Acknowledged</b>", sessions]);
    let mut stale = draining(acknowledged(), Some(0));
    stale.cache.stale = true;
    stale.last_known = Some(LastKnown { verdict: Verdict::Draining, reason: None });
    (stale.drain.acknowledged, stale.probers[0].acknowledged) = (None, None);
    holds(&stale, &["?</span> Out</b>", "?</span> Acknowledged</b>", "<td class=\"unknown\">503"]);
}

#[test]
fn strangers_are_named_but_not_waited_for_and_a_crowd_is_cut_short() {
    let gone = haproxy(prober("10.0.0.14", "/health", Verdict::Ready, 9), "lb3", "app/worker-1", "UP", 1);
    let gone = ProberRecord { standing: Standing::Gone, last_ms: 240_000, ..gone };
    let stranger = |n: u8| {
        let asked = prober(&format!("10.9.0.{n}"), "/nodecheck", Verdict::Ready, 1);
        ProberRecord { standing: Standing::Occasional, last_ms: 40_000, ..asked }
    };
    let status = draining(std::iter::once(gone).chain((0..200).map(stranger)).collect(), None);
    let parts = [
        "Not waited for: <b>10.0.0.14 lb3 app/worker-1</b> (gone, last probe 4 min ago); ",
        "<b>10.9.0.0</b> (irregular, last probe 40 s ago)",
        "; and 191 more.",
    ];
    holds(&status, &parts);
    assert!(page(&status).len() < 16 * 1024);
    let all = (0..=255u8).map(|n| prober(&format!("10.9.0.{n}"), "/health", Verdict::Draining, 6));
    holds(&draining(all.collect(), None), &["And 216 more, see", "256 of 256 balancers"]);
}

/// The agent makes input harmless when it records it; the page must not rely on that.
#[test]
fn nothing_from_elsewhere_is_markup() {
    let hostile = haproxy(prober("10.0.0.11", EVIL, Verdict::Draining, 1), EVIL, EVIL, EVIL, 1);
    let gone = ProberRecord { standing: Standing::Gone, ..hostile.clone() };
    let mut status = draining(vec![hostile, gone], None);
    (status.drain.not_known, status.drain.released_not_known) =
        (Some(EVIL.to_owned()), Some(EVIL.to_owned()));
    EVIL.clone_into(&mut status.drain.waiting_for[0].why);
    (status.node, status.version) = (Some(EVIL.to_owned()), Cow::Borrowed(EVIL));
    let reason = Reason::new(EVIL);
    status.reason = Some(reason.clone());
    status.checks.push(check(EVIL, Verdict::NotReady, false, Some(reason.clone())));
    let (from, to) = (Verdict::Ready, Verdict::NotReady);
    status.flips.push(Flip { at_unix_ms: 1, age_ms: 1, from, to, reason });
    let page = page(&status);
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
    // Reasons arrive without control characters.
    let shown = |end| page.matches(&format!("&#60;script&#62;&#34;&#39;&#38;{end}")).count();
    assert_eq!((shown("\u{fffd}\u{fffd}"), shown(" \u{fffd}")), (17, 3), "{page}");
}

#[test]
fn a_guess_is_one_at_a_glance() {
    let mut status = status();
    assert!(!page(&status).contains("A guess:"));
    status.cache.stale = true;
    status.checks.push(check("node_ready", Verdict::Ready, true, None));
    status.cache.error = Some("certificate expired; renew it".to_owned());
    status.last_known =
        Some(LastKnown { verdict: Verdict::Draining, reason: Some(Reason::new("Unschedulable")) });
    let parts = [
        "<title>Ready? · n1",
        "class=\"verdict draining guess\"",
        "<span aria-hidden=\"true\">≈</span> Ready<span>?</span>",
        "≈</span> passes",
        "A guess:</strong> the API server was last heard 100 ms ago; before that the node was Draining: cordoned \
         (Unschedulable); the answer fails open.",
        "API server:</strong> certificate expired; renew it.",
    ];
    holds(&status, &parts);
    assert!(!page(&status).contains('✓'));
}

#[test]
fn it_reloads_itself_and_its_policy_names_the_style_sheet() {
    assert!(page(&status()).contains("http-equiv=\"refresh\" content=\"5\""));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page/page.css");
    let hash = format!("sha256sum {path} | cut -c1-64 | tr a-f A-F | basenc --base16 -d | base64");
    let output = Command::new("sh").args(["-c", &hash]).output().expect("coreutils");
    let hash = String::from_utf8(output.stdout).unwrap();
    let source = format!("'sha256-{}'", hash.trim());
    assert!(POLICY.contains(&source), "the style sheet has changed: {source}");
}
