use super::*;
use crate::page::tests::{page, status};
use nodegate_readiness::probers::{GivenAnswer, ProbeHistory, ToldSettings, Traffic};
use nodegate_readiness::{LastKnown, Moment, Reason};
use std::net::IpAddr;
use std::time::Duration;

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
        asked.again(given(verdict), at(turned).into(), at(second))
    });
    let address: IpAddr = address.parse().unwrap();
    ProberRecord::new(address, request.to_owned(), true, &asked, now())
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
    let status =
        Status { verdict: Some(Verdict::Draining), reason: Some(Reason::new("Unschedulable")), ..status() };
    status.with_probers(
        probers,
        DrainStatus::unjudged(SECOND * 8, SECOND * 300, 0, traffic, ToldSettings::default()),
    )
}

fn holds(status: &Status, parts: &[&str]) {
    let page = page(status).replace("<wbr>", "");
    for part in parts {
        assert!(page.contains(part), "no {part} in {page}");
    }
}

#[test]
fn untold_probers_come_first_with_their_reason() {
    use Verdict::{Draining, Ready};
    let told = haproxy(prober("10.0.0.11", "/health", Draining, 6), "lb1", "app/worker-1", 3);
    let slow = haproxy(prober("10.0.0.12", "/health?drain=404", Draining, 2), "lb2", "app/worker-1", 14);
    let never = ProberRecord { drainable: false, ..prober("10.0.9.9", "/health?check=kubelet", Ready, 300) };
    let status = draining(vec![told, slow, never], Some(1));
    let parts = [
        "<li class=\"done\"><b><span aria-hidden=\"true\">✓</span> Out</b><span>of the pool for 8\u{a0}s</span>",
        "<li class=\"open\"><b><span aria-hidden=\"true\">…</span> Told</b><span>1 of 2 balancers</span>",
        "Released</b><span>1 session left</span>",
        "<span class=\"name\">lb2</span> <span class=\"dim\">10.0.0.12</span><code>/health?drain=404</code>",
        "every 1 s, last 0 ms ago",
        "app/worker-1 is NOLB 2/3 there, 14\u{a0}sessions",
        "not yet<span class=\"more\">heard <b class=\"draining\">Draining</b> (503)",
        "told 2 of 4 times, probes every 1 s",
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
    let told = || vec![prober("10.0.0.11", "/health", Verdict::Draining, 6)];
    holds(
        &draining(told(), Some(0)),
        &["Told</b><span>1 of 1 balancers", "✓</span> Released</b><span>no session is left"],
    );
    holds(&draining(told(), Some(7)), &["…</span> Released</b><span>7 sessions left"]);
    holds(&draining(told(), None), &["?</span> Released</b><span>not counted", "Released is unknown: "]);
    let unprobed = draining(Vec::new(), None);
    holds(&unprobed, &["?</span> Told</b><span>no regular prober", "Told is unknown: no balancer"]);
    assert!(!page(&unprobed).contains("<table class=\"probers\">"));
    let back = Status { verdict: Some(Verdict::Ready), ..draining(told(), Some(7)) }.judged();
    holds(
        &back,
        &["✓</span> In</b><span>the pool for 8\u{a0}s", "…</span> Told</b>", "Sessions</b><span>7 sessions<"],
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
        &["?</span> Out</b>", "?</span> Told</b>", "Told is unknown: the cache is stale", "not known<span"],
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
    let drain = status.drain.as_mut().unwrap();
    (drain.not_known, drain.released_not_known) = (Some(evil.to_owned()), Some(evil.to_owned()));
    for waiting in &mut drain.waiting_for {
        evil.clone_into(&mut waiting.why);
    }
    let page = page(&status).replace("<wbr>", "");
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'), "{page}");
    // Probe request, name, server, state, reason for waiting; the gone prober, twice; two caveats.
    assert_eq!(page.matches("&lt;script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}").count(), 9, "{page}");
}
