use super::*;
use nodegate_agent_api::{CacheStatus, CheckStatus, DrainStatus, HaproxyReport, Traffic, WaitingFor};
use nodegate_readiness::probers::{GivenAnswer, ProbeHistory};
use nodegate_readiness::{LastKnown, Moment, Reason};
use std::borrow::Cow;
use std::net::IpAddr;
use std::process::Command;

const SECOND: Duration = Duration::from_secs(1);

/// The moment of the status, five minutes after the start.
fn now() -> Moment {
    Moment::from_start(SECOND * 300)
}

/// Returns a prober that has asked once a second from the start, and got this verdict the last `times` times.
fn prober(address: &str, request: &str, verdict: Verdict, times: u32) -> ProberRecord {
    let before = if verdict == Verdict::Ready { Verdict::Draining } else { Verdict::Ready };
    let given =
        |verdict| GivenAnswer { verdict, code: Some(if verdict == Verdict::Ready { 200 } else { 503 }) };
    let (turned, at) = (301 - times, |second| Moment::from_start(SECOND * second));
    let asked = (1..=300).fold(ProbeHistory::first(given(before), Moment::default()), |asked, second| {
        let verdict = if second < turned { before } else { verdict };
        asked.again(given(verdict), at(turned), at(second))
    });
    let address: IpAddr = address.parse().unwrap();
    ProberRecord::new(address.to_string(), request.to_owned(), true, &asked, now())
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

/// Returns the status of a node with these probers, cordoned eight seconds ago.
fn draining(probers: Vec<ProberRecord>, established: Option<u64>) -> Status {
    let traffic = established.map(|established| Traffic {
        ports: vec![443],
        established: Some(established),
        age_ms: Some(100),
        error: None,
    });
    let is_awaited = |prober: &ProberRecord| prober.is_waited_for();
    let knows = |prober: &ProberRecord| prober.verdict != Verdict::Ready && prober.in_a_row > 3;
    let (awaited, known): (Vec<_>, Vec<_>) = (
        probers.iter().filter(|prober| is_awaited(prober)).collect(),
        probers.iter().map(|prober| is_awaited(prober).then(|| knows(prober))).collect(),
    );
    let blind = probers.iter().filter(|prober| prober.misses_drains());
    let missing = awaited.iter().filter(|prober| !knows(prober)).map(|prober| WaitingFor {
        prober: prober.who(),
        request: prober.request.clone(),
        why: format!("got it {} of 4 times, probes every 1 s", prober.in_a_row),
    });
    let acknowledged = (!awaited.is_empty()).then(|| awaited.iter().all(|prober| knows(prober)));
    let drain = DrainStatus {
        acknowledged,
        acknowledged_ready: Some(false),
        released: established.filter(|_| acknowledged == Some(true)).map(|left| left == 0),
        released_not_known: (established.is_none() && acknowledged == Some(true))
            .then(|| "no counter".to_owned()),
        acknowledged_probers: awaited.iter().filter(|prober| knows(prober)).count(),
        probers: awaited.len(),
        waiting_for: missing.collect(),
        cant_see_drains: blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect(),
        not_known: acknowledged.is_none().then(|| "no balancer probes this agent regularly".to_owned()),
        since_ms: 8000,
        traffic,
        ..DrainStatus::default()
    };
    let probers = probers.into_iter().zip(known);
    let probers = probers.map(|(prober, acknowledged)| ProberRecord { acknowledged, ..prober }).collect();
    let (verdict, reason) = (Some(Verdict::Draining), Some(Reason::new("Unschedulable")));
    Status { verdict, reason, probers, drain, ..status() }
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
    let acknowledged = haproxy(prober("10.0.0.11", "/health", Draining, 6), "lb1", "app/worker-1", 3);
    let slow = haproxy(prober("10.0.0.12", "/health?drain=404", Draining, 2), "lb2", "app/worker-1", 14);
    let never = ProberRecord { drainable: false, ..prober("10.0.9.9", "/health?check=kubelet", Ready, 300) };
    let status = draining(vec![acknowledged, slow, never], Some(1));
    let parts = [
        "<li class=\"done\"><b><span aria-hidden=\"true\">✓</span> Out</b><span>of the pool for 8\u{a0}s</span>",
        "<li class=\"open\"><b><span aria-hidden=\"true\">…</span> Acknowledged</b><span>1 of 2 balancers</span>",
        "Released</b><span>1 session left</span>",
        "<span class=\"name\">lb2</span> <span class=\"dim\">10.0.0.12</span><code>/health?drain=404</code>",
        "every 1 s, last 0 ms ago",
        "app/worker-1 is NOLB 2/3 there, 14&nbsp;sessions",
        "not yet<span class=\"more\">heard <b class=\"draining\">Draining</b> (503)",
        "got it 2 of 4 times, probes every 1 s",
        "never<span class=\"more\">heard <b class=\"ready\">Ready</b> (200)",
        "can&#39;t see drains: a drain does not change this answer",
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
    holds(
        &draining(acknowledged(), Some(0)),
        &["Acknowledged</b><span>1 of 1 balancers", "✓</span> Released</b><span>no session is left"],
    );
    holds(&draining(acknowledged(), Some(7)), &["…</span> Released</b><span>7 sessions left"]);
    holds(
        &draining(acknowledged(), None),
        &["?</span> Released</b><span>not counted", "Released is unknown: "],
    );
    let unprobed = draining(Vec::new(), None);
    holds(
        &unprobed,
        &["?</span> Acknowledged</b><span>no regular prober", "The acknowledgement is unknown: no balancer"],
    );
    assert!(!page(&unprobed).contains("<table class=\"probers\">"));
    let back = Status { verdict: Some(Verdict::Ready), ..draining(acknowledged(), Some(7)) };
    holds(
        &back,
        &[
            "✓</span> In</b><span>the pool for 8\u{a0}s",
            "…</span> Acknowledged</b>",
            "Sessions</b><span>7 sessions<",
        ],
    );
}

#[test]
fn a_guess_is_not_called_acknowledged() {
    let mut stale = draining(vec![prober("10.0.0.11", "/health", Verdict::Draining, 6)], Some(0));
    stale.cache.stale = true;
    stale.last_known = Some(LastKnown { verdict: Verdict::Draining, reason: None });
    (stale.drain.acknowledged, stale.probers[0].acknowledged) = (None, None);
    stale.drain.not_known = Some("the cache is stale: the verdict may be a guess".to_owned());
    holds(
        &stale,
        &[
            "?</span> Out</b>",
            "?</span> Acknowledged</b>",
            "The acknowledgement is unknown: the cache is stale",
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
            "Not waited for: <b>10.0.0.14 lb3 app/worker-1</b> (gone, last probe 4 min ago); ",
            "<b>10.9.0.0</b> (irregular, last probe 40 s ago)",
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

/// The agent makes input harmless when it records it; the page must not rely on that.
#[test]
fn nothing_that_a_prober_sends_is_markup() {
    let evil = "<script>\"'&\u{1b}\u{202e}";
    let mut hostile = haproxy(prober("10.0.0.11", evil, Verdict::Ready, 1), evil, evil, 1);
    hostile.haproxy.as_mut().unwrap().state = Some(evil.to_owned());
    let gone = ProberRecord { standing: Standing::Gone, ..hostile.clone() };
    let mut status = draining(vec![hostile, gone], None);
    let drain = &mut status.drain;
    (drain.not_known, drain.released_not_known) = (Some(evil.to_owned()), Some(evil.to_owned()));
    for waiting in &mut drain.waiting_for {
        evil.clone_into(&mut waiting.why);
    }
    let page = page(&status);
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
    // Probe request, name, server, state, reason for waiting; the gone prober, twice; two caveats.
    assert_eq!(page.matches("&#60;script&#62;&#34;&#39;&#38;\u{fffd}\u{fffd}").count(), 9, "{page}");
}

/// Returns the status of a ready node from an agent that has just started.
fn status() -> Status {
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

fn page(status: &Status) -> String {
    render(status, Duration::from_secs(1_700_000_000), true).unwrap()
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
        stale: false,
        verdict: Some(Verdict::NotReady),
        reason: Some(Reason::new(evil)),
        last_reason: Some(Reason::new(evil)),
        age_ms: None,
        duration_ms: 0,
    });
    let (from, to, reason) = (Verdict::Ready, Verdict::NotReady, Reason::new(evil));
    status.flips.push(nodegate_readiness::Flip { at_unix_ms: 1, age_ms: 1, from, to, reason });
    let page = page(&status);
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
    // Reasons arrive without control characters.
    let shown = |end| page.matches(&format!("&#60;script&#62;&#34;&#39;&#38;{end}")).count();
    assert_eq!((shown("\u{fffd}\u{fffd}"), shown(" \u{fffd}")), (4, 3), "{page}");
}

#[test]
fn a_guess_is_one_at_a_glance() {
    let mut status = status();
    assert!(!page(&status).contains("A guess:"));
    status.cache.stale = true;
    status.checks.push(CheckStatus {
        name: "node_ready".to_owned(),
        default: true,
        active: true,
        passed: Some(true),
        stale: true,
        verdict: Some(Verdict::Ready),
        reason: None,
        last_reason: None,
        age_ms: Some(100),
        duration_ms: 0,
    });
    status.cache.error = Some("certificate expired; renew it".to_owned());
    status.last_known =
        Some(LastKnown { verdict: Verdict::Draining, reason: Some(Reason::new("Unschedulable")) });
    let page = page(&status);
    for part in [
        "<title>Ready? · n1",
        "class=\"verdict draining guess\"",
        "<span aria-hidden=\"true\">≈</span> Ready<span>?</span>",
        "≈</span> passes",
        "A guess:</strong> the API server was last heard 100 ms ago; before that the node was Draining: cordoned \
         (Unschedulable); the answer fails open.",
        "API server:</strong> certificate expired; renew it.",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!page.contains('✓'), "{page}");
}

#[test]
fn it_can_be_paused() {
    let paused = render(&status(), Duration::ZERO, false).unwrap();
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
