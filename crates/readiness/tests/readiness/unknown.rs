//! Tests of `Ready=Unknown`: the conditions under which the node's own kubelet decides, and for how long.

use crate::scenario::{Scenario, at, facts};
use nodegate_agent_client::sentence;
use nodegate_readiness::{
    CheckId, ConditionStatus, Node, NodeFacts, OnStale, OnUnknown, Outcome, Policy, StartMode,
    UnreachableTaint, Verdict,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

type Ready = (ConditionStatus, &'static str);
const READY: Ready = (ConditionStatus::True, "KubeletReady");
const BROKEN: Ready = (ConditionStatus::False, "KubeletNotReady");
const SILENT: Ready = (ConditionStatus::Unknown, "NodeStatusUnknown");
const NEVER: Ready = (ConditionStatus::Unknown, "NodeStatusNeverUpdated");

fn wall(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second)
}

/// Returns a Node with a silent kubelet, tainted at this second.
fn tainted(second: Option<u64>) -> NodeFacts {
    let added_unix_ms = second.map(|second| (1_800_000_000 + second) * 1000);
    NodeFacts { unreachable: Some(UnreachableTaint { added_unix_ms }), ..silent() }
}

fn silent() -> NodeFacts {
    facts(SILENT.0, SILENT.1)
}

fn scenario(policy: Policy) -> Scenario {
    Scenario::with(Policy { stale_after: Duration::from_hours(1), ..policy }, Node::Unknown)
}

fn set(scenario: &Scenario, facts: NodeFacts, second: u64) {
    scenario.board.set_node(Node::Present(facts), at(second), wall(second));
}

fn set_ready(scenario: &Scenario, (status, reason): Ready, second: u64) {
    set(scenario, facts(status, reason), second);
}

/// Returns the status of the answer at a second, and true if it is unconfirmed.
fn says(scenario: &Scenario, second: u64) -> (u16, bool) {
    let reply = scenario.ask("", second);
    let unconfirmed = String::from_utf8(reply.body.to_vec()).unwrap().contains("\"unconfirmed\":true");
    let reported = scenario.board.report(CheckId::NodeReady, at(second)).unconfirmed;
    assert_eq!(unconfirmed, reported, "at {second} s");
    (reply.status, unconfirmed)
}

const IN: (u16, bool) = (200, true);
const OUT: (u16, bool) = (503, false);

#[test]
fn a_kubelet_that_answers_keeps_the_node_in_the_pool() {
    let scenario = scenario(Policy::default());
    set_ready(&scenario, READY, 0);
    assert_eq!(says(&scenario, 1), (200, false));
    set_ready(&scenario, SILENT, 10);
    assert_eq!(says(&scenario, 10), IN, "the verdict from before holds");
    scenario.check("kubelet", Outcome::Pass, 11);
    assert_eq!(says(&scenario, 20), IN);
    assert_eq!(
        scenario.text("", 20),
        r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"unconfirmed":true,"duration_ms":0}],"total_duration_ms":0}"#
    );
    assert!(scenario.verdicts().is_empty(), "no flip");
    // A check that hangs gives no answer, and the result expires without a timer.
    assert_eq!(says(&scenario, 21), OUT);
    scenario.check("kubelet", Outcome::Pass, 22);
    assert_eq!(says(&scenario, 22), IN);
    scenario.check("kubelet", Outcome::fail("ConnectionRefused"), 23);
    assert_eq!(says(&scenario, 23), OUT);
    assert_eq!(scenario.ask("", 23).body, scenario.ask("check=node_ready", 23).body);
    assert!(scenario.text("", 23).contains(r#""reason":"NodeStatusUnknown""#));
    // Drain signals count as always.
    set(&scenario, NodeFacts { unschedulable: true, ..silent() }, 24);
    scenario.check("kubelet", Outcome::Pass, 24);
    assert_eq!((says(&scenario, 24), scenario.ask("drain=404", 24).status), ((503, true), 404));
    set_ready(&scenario, READY, 30);
    assert_eq!(says(&scenario, 30), (200, false));
    let json = serde_json::to_value(scenario.status(30)).unwrap();
    assert!(json["unconfirmed"] == false && json["leaves_in_ms"].is_null(), "{json}");
}

#[test]
fn without_a_first_result_the_verdict_holds_for_two_seconds() {
    let scenario = scenario(Policy::default());
    set_ready(&scenario, READY, 0);
    set_ready(&scenario, SILENT, 10);
    // Other changes of the Node do not delay this.
    set(&scenario, NodeFacts { labels: [("a".to_owned(), String::new())].into(), ..silent() }, 11);
    assert_eq!((says(&scenario, 11), says(&scenario, 12)), (IN, OUT));
    scenario.board.tick(at(12), wall(12));
    let flip = (Verdict::Ready, Verdict::NotReady, "NodeStatusUnknown".to_owned());
    assert_eq!(scenario.verdicts(), [flip]);
    scenario.check("kubelet", Outcome::Pass, 13);
    assert_eq!(says(&scenario, 13), IN);
}

/// Otherwise the hint would go and come back, with a line that says that the kubelet answers again.
#[test]
fn an_unreachable_kubelet_stays_so_while_the_cache_is_stale() {
    let scenario = scenario(Policy::default());
    set_ready(&scenario, READY, 0);
    let (hour, board) = (3600, &scenario.board);
    let known = |second, outcome| {
        board.set_kubelet(outcome, at(second), wall(second));
        board.kubelet_unreachable().is_some()
    };
    assert!(!known(1, Outcome::Pass));
    assert!(!known(hour + 1, Outcome::fail("ConnectionRefused")), "the Node is not known to be Ready");
    board.prove(at(hour));
    assert!(known(hour + 2, Outcome::fail("ConnectionRefused")));
    assert!(known(2 * hour + 1, Outcome::Pass), "stale");
    board.prove(at(2 * hour));
    assert!(!known(2 * hour + 2, Outcome::Pass));
}

#[test]
fn when_the_kubelet_has_no_say() {
    let not_ready = Policy { on_unknown: OnUnknown::NotReady, ..Policy::default() };
    for (policy, before, now) in [
        (not_ready, READY, SILENT),
        (Policy::default(), BROKEN, SILENT),
        (Policy::default(), READY, NEVER),
        (Policy::default(), READY, (ConditionStatus::Unknown, "")),
        (Policy::default(), READY, BROKEN),
    ] {
        let scenario = scenario(policy);
        set_ready(&scenario, before, 0);
        set_ready(&scenario, now, 1);
        assert_eq!(scenario.board.needed(), None);
        scenario.check("kubelet", Outcome::Pass, 1);
        assert_eq!(says(&scenario, 1), OUT, "{before:?} {now:?}");
    }
    // Without earlier facts, the kubelet decides.
    let fresh = scenario(Policy::default());
    set_ready(&fresh, SILENT, 1);
    fresh.check("kubelet", Outcome::Pass, 1);
    assert_eq!(says(&fresh, 1), IN);
    // The past of another Node with this name does not count.
    set_ready(&fresh, BROKEN, 2);
    fresh.board.set_node(Node::Absent, at(3), wall(3));
    set_ready(&fresh, SILENT, 4);
    assert_eq!(says(&fresh, 4), IN);
}

/// The taint's own date decides, without a timer.
#[test]
fn a_lone_node_leaves_when_its_pods_are_replaced() {
    let leaves = |added: Option<u64>, unknown_after: u64| {
        let scenario =
            scenario(Policy { unknown_after: Duration::from_secs(unknown_after), ..Policy::default() });
        set_ready(&scenario, READY, 0);
        set_ready(&scenario, SILENT, 99);
        set(&scenario, tainted(added), 100);
        let leaves_at = (100..2000).find(|second| {
            scenario.check("kubelet", Outcome::Pass, *second);
            says(&scenario, *second) == OUT
        });
        (leaves_at, scenario)
    };
    assert_eq!(leaves(Some(100), 300).0, Some(400));
    assert_eq!(leaves(Some(40), 300).0, Some(340), "an agent that started late");
    assert_eq!(leaves(Some(0), 60).0, Some(100), "long ago");
    assert_eq!(leaves(Some(5000), 300).0, Some(400), "in the future: just now");
    assert_eq!(leaves(None, 300).0, Some(400), "without a date: just now");
    let (_, scenario) = leaves(Some(100), 300);
    assert_eq!(scenario.board.leaves_at(at(2000)), None);
    // The controller removes the taint when all kubelets are silent.
    scenario.check("kubelet", Outcome::Pass, 2000);
    set_ready(&scenario, SILENT, 2000);
    assert_eq!(says(&scenario, 2001), IN);
    // A new taint starts the time over.
    set(&scenario, tainted(Some(2000)), 2002);
    assert_eq!(scenario.board.leaves_at(at(2002)), Some(at(2300)));
    let status = scenario.status(2002);
    assert_eq!((status.leaves_in_ms, status.verdict), (Some(298_000), Some(Verdict::Ready)));
    let caveat = sentence::caveat(&status).unwrap();
    let [kubelet, leaves] = ["not hear the kubelet", "leaves the pool in 4 min"];
    assert!(caveat.contains(kubelet) && caveat.ends_with(leaves), "{caveat}");
    // The date counts as it was first seen, even if the wall clock changes later.
    let cordoned = Node::Present(NodeFacts { unschedulable: true, ..tainted(Some(2000)) });
    scenario.board.set_node(cordoned, at(2003), wall(9000));
    assert_eq!(scenario.board.leaves_at(at(2003)), Some(at(2300)));
}

/// The answer was rendered ahead and kept; only the request path notices the time.
#[test]
fn the_instant_at_which_it_leaves_is_in_the_answer() {
    let scenario = scenario(Policy { unknown_after: Duration::from_secs(5), ..Policy::default() });
    set_ready(&scenario, READY, 0);
    set(&scenario, tainted(Some(1)), 1);
    scenario.check("kubelet", Outcome::Pass, 1);
    for raw in ["", "check=node_ready", "drain=404"] {
        assert_eq!((scenario.ask(raw, 5).status, scenario.ask(raw, 6).status), (200, 503), "{raw}");
        assert_eq!(scenario.ask(raw, 7).status, 503);
    }
    assert_eq!(scenario.board.expires(at(5)), Some(at(6)));
}

#[test]
fn a_stale_cache_is_stale_whatever_the_kubelet_says() {
    for (on_stale, status) in [(OnStale::Ready, 200), (OnStale::NotReady, 503)] {
        let scenario = scenario(Policy { on_stale, ..Policy::default() });
        set_ready(&scenario, READY, 0);
        set_ready(&scenario, SILENT, 3590);
        scenario.check("kubelet", Outcome::Pass, 3600);
        assert_eq!(says(&scenario, 3600), IN);
        assert_eq!(says(&scenario, 3601), (status, false));
        assert!(scenario.text("", 3601).contains(r#""stale":true"#));
    }
}

#[test]
fn the_check_is_started_when_it_is_needed() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let asked = || ASKED.load(Ordering::Relaxed);
    let scenario = scenario(Policy::default());
    let kubelet = scenario.board.catalog().find("kubelet").unwrap();
    let _ = scenario.board.on_need.set(Box::new(move |id| {
        assert_eq!(id, kubelet);
        ASKED.fetch_add(1, Ordering::Relaxed);
    }));
    set_ready(&scenario, READY, 0);
    assert_eq!((scenario.board.needed(), asked()), (None, 0));
    set_ready(&scenario, SILENT, 1);
    set(&scenario, tainted(Some(2)), 2);
    assert_eq!((scenario.board.needed(), asked()), (Some(kubelet), 1));
    set_ready(&scenario, READY, 3);
    assert_eq!(scenario.board.needed(), None);
    set_ready(&scenario, SILENT, 4);
    assert_eq!(asked(), 2);
}

/// A request may neither start the check nor read its result; the verdict may.
#[test]
fn a_check_that_no_request_may_start_decides_all_the_same() {
    let scenario = Scenario::with_checks(StartMode::Never, Policy::default(), &["node_ready"]);
    scenario.board.prove(at(0));
    set_ready(&scenario, SILENT, 1);
    scenario.check("kubelet", Outcome::Pass, 1);
    assert_eq!(says(&scenario, 2), IN);
    assert!(scenario.text("check=kubelet", 2).contains("Not enabled: kubelet"));
    let status = scenario.status(2);
    assert!(status.unconfirmed && status.checks.iter().any(|check| check.name == "kubelet" && !check.active));
}
