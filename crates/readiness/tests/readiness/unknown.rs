//! Tests of `Ready=Unknown`: the conditions under which the node's own kubelet decides, and for how long.

use crate::board::{Story, at};
use nodegate_agent_client::sentence;
use nodegate_readiness::status::Status;
use nodegate_readiness::{
    Begins, Condition, ConditionStatus, LocalResult, Memory, Node, NodeFacts, OnStale, OnUnknown, Outcome,
    Policy, Reason, UnreachableTaint, Verdict,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const READY: (ConditionStatus, &str) = (ConditionStatus::True, "KubeletReady");
const BROKEN: (ConditionStatus, &str) = (ConditionStatus::False, "KubeletNotReady");
const SILENT: (ConditionStatus, &str) = (ConditionStatus::Unknown, "NodeStatusUnknown");
const NEVER: (ConditionStatus, &str) = (ConditionStatus::Unknown, "NodeStatusNeverUpdated");

/// Returns the wall clock at a second.
fn wall(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second)
}

fn facts((status, reason): (ConditionStatus, &str)) -> NodeFacts {
    let ready = Condition { kind: "Ready".to_owned(), status, reason: reason.to_owned() };
    NodeFacts { conditions: vec![ready], ..NodeFacts::default() }
}

/// Returns a Node with a silent kubelet, tainted at this second.
fn tainted(second: Option<u64>) -> NodeFacts {
    let added_unix_ms = second.map(|second| (1_800_000_000 + second) * 1000);
    NodeFacts { unreachable: Some(UnreachableTaint { added_unix_ms }), ..facts(SILENT) }
}

/// Returns a fresh board with a check `kubelet`.
fn story(policy: Policy) -> Story {
    let policy = Policy { stale_after: Duration::from_hours(1), ..policy };
    let story = Story::with_checks(policy, &["kubelet"], Begins::OnDemand, &["node_ready"]);
    story.board.prove(at(0));
    story.board.open(at(0), wall(0));
    story
}

fn set(story: &Story, facts: NodeFacts, second: u64) {
    story.board.set_node(Node::Present(facts), at(second), wall(second));
}

/// Records the kubelet's answer at this second, which is valid for ten seconds.
fn kubelet(story: &Story, outcome: Outcome, second: u64) {
    let result =
        LocalResult { outcome, duration: Duration::ZERO, at: at(second), good_until: at(second + 10) };
    let id = story.board.catalog().find("kubelet").unwrap();
    story.board.set_local(id, Some(result), at(second), wall(second));
}

/// Returns the status of the answer at a second, and true if it is unconfirmed.
fn says(story: &Story, second: u64) -> (u16, bool) {
    let reply = story.ask("", second);
    let unconfirmed = String::from_utf8(reply.body.to_vec()).unwrap().contains("\"unconfirmed\":true");
    assert_eq!(unconfirmed, story.board.unconfirmed(at(second)), "at {second} s");
    (reply.status, unconfirmed)
}

const IN: (u16, bool) = (200, true);
const OUT: (u16, bool) = (503, false);

#[test]
fn a_kubelet_that_answers_keeps_the_node_in_the_pool() {
    let story = story(Policy::default());
    set(&story, facts(READY), 0);
    assert_eq!(says(&story, 1), (200, false));
    set(&story, facts(SILENT), 10);
    assert_eq!(says(&story, 10), IN, "the verdict from before holds");
    kubelet(&story, Outcome::Pass, 11);
    assert_eq!(says(&story, 20), IN);
    assert_eq!(
        story.text("", 20),
        r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"unconfirmed":true,"duration_ms":0}],"total_duration_ms":0}"#
    );
    assert!(story.verdicts().is_empty(), "no flip");
    // A check that hangs gives no answer, and the result expires without a timer.
    assert_eq!(says(&story, 21), OUT);
    kubelet(&story, Outcome::Pass, 22);
    assert_eq!(says(&story, 22), IN);
    kubelet(&story, Outcome::fail("ConnectionRefused"), 23);
    assert_eq!(says(&story, 23), OUT);
    assert_eq!(story.ask("", 23).body, story.ask("check=node_ready", 23).body);
    assert!(story.text("", 23).contains(r#""reason":"NodeStatusUnknown""#));
    set(&story, facts(READY), 30);
    assert_eq!(says(&story, 30), (200, false));
}

#[test]
fn without_a_first_result_the_verdict_holds_for_two_seconds() {
    let story = story(Policy::default());
    set(&story, facts(READY), 0);
    set(&story, facts(SILENT), 10);
    // Other changes of the Node do not delay this.
    set(&story, NodeFacts { labels: [("a".to_owned(), String::new())].into(), ..facts(SILENT) }, 11);
    assert_eq!((says(&story, 11), says(&story, 12)), (IN, OUT));
    story.board.tick(at(12), wall(12));
    let flip = (Verdict::Ready, Verdict::NotReady, "NodeStatusUnknown".to_owned());
    assert_eq!(story.verdicts(), [flip]);
    kubelet(&story, Outcome::Pass, 13);
    assert_eq!(says(&story, 13), IN);
}

#[test]
fn drain_signals_count_as_always() {
    let story = story(Policy::default());
    set(&story, facts(READY), 0);
    set(&story, NodeFacts { unschedulable: true, ..facts(SILENT) }, 1);
    kubelet(&story, Outcome::Pass, 1);
    assert_eq!(says(&story, 2), (503, true));
    let reply = story.ask("drain=404", 2);
    assert_eq!((reply.status, reply.verdict), (404, Some(Verdict::Draining)));
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
        let story = story(policy);
        set(&story, facts(before), 0);
        set(&story, facts(now), 1);
        assert_eq!(story.board.needed(), None);
        kubelet(&story, Outcome::Pass, 1);
        assert_eq!(says(&story, 1), OUT, "{before:?} {now:?}");
    }
    // Without earlier facts, the kubelet decides.
    let fresh = story(Policy::default());
    set(&fresh, facts(SILENT), 1);
    kubelet(&fresh, Outcome::Pass, 1);
    assert_eq!(says(&fresh, 1), IN);
    // The past of another Node with this name does not count.
    set(&fresh, facts(BROKEN), 2);
    fresh.board.set_node(Node::Absent, at(3), wall(3));
    set(&fresh, facts(SILENT), 4);
    assert_eq!(says(&fresh, 4), IN);
}

/// The taint's own date decides, without a timer.
#[test]
fn a_lone_node_leaves_when_its_pods_are_replaced() {
    let leaves = |added: Option<u64>, unknown_after: u64| {
        let story = story(Policy { unknown_after: Duration::from_secs(unknown_after), ..Policy::default() });
        set(&story, facts(READY), 0);
        set(&story, facts(SILENT), 99);
        set(&story, tainted(added), 100);
        let leaves_at = (100..2000).find(|second| {
            kubelet(&story, Outcome::Pass, *second);
            says(&story, *second) == OUT
        });
        (leaves_at, story)
    };
    assert_eq!(leaves(Some(100), 300).0, Some(400));
    assert_eq!(leaves(Some(40), 300).0, Some(340), "an agent that started late");
    assert_eq!(leaves(Some(0), 60).0, Some(100), "long ago");
    assert_eq!(leaves(Some(5000), 300).0, Some(400), "in the future: just now");
    assert_eq!(leaves(None, 300).0, Some(400), "without a date: just now");
    let (_, story) = leaves(Some(100), 300);
    assert_eq!(story.board.leaves_at(at(2000)), None);
    // The controller removes the taint when all kubelets are silent.
    kubelet(&story, Outcome::Pass, 2000);
    set(&story, facts(SILENT), 2000);
    assert_eq!(says(&story, 2001), IN);
    // A new taint starts the time over.
    set(&story, tainted(Some(2000)), 2002);
    assert_eq!(story.board.leaves_at(at(2002)), Some(at(2300)));
    assert_eq!(Status::read(&story.board, "1", at(2002), wall(2002)).leaves_in_ms, Some(298_000));
    // The date counts as it was first seen, even if the wall clock changes later.
    story.board.set_node(
        Node::Present(NodeFacts { unschedulable: true, ..tainted(Some(2000)) }),
        at(2003),
        wall(9000),
    );
    assert_eq!(story.board.leaves_at(at(2003)), Some(at(2300)));
}

/// The answer was rendered ahead and kept; only the request path notices the time.
#[test]
fn the_instant_at_which_it_leaves_is_in_the_answer() {
    let story = story(Policy { unknown_after: Duration::from_secs(5), ..Policy::default() });
    set(&story, facts(READY), 0);
    set(&story, tainted(Some(1)), 1);
    kubelet(&story, Outcome::Pass, 1);
    for raw in ["", "check=node_ready", "drain=404"] {
        assert_eq!((story.ask(raw, 5).status, story.ask(raw, 6).status), (200, 503), "{raw}");
        assert_eq!(story.ask(raw, 7).status, 503);
    }
    assert_eq!(story.board.expires(at(5)), Some(at(6)));
}

#[test]
fn a_stale_cache_is_stale_whatever_the_kubelet_says() {
    for (on_stale, status) in [(OnStale::Ready, 200), (OnStale::NotReady, 503)] {
        let story = story(Policy { on_stale, ..Policy::default() });
        set(&story, facts(READY), 0);
        set(&story, facts(SILENT), 3590);
        kubelet(&story, Outcome::Pass, 3600);
        assert_eq!(says(&story, 3600), IN);
        assert_eq!(says(&story, 3601), (status, false));
        assert!(story.text("", 3601).contains(r#""stale":true"#));
    }
}

#[test]
fn the_check_is_started_when_it_is_needed() {
    let story = story(Policy::default());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let kubelet = story.board.catalog().find("kubelet").unwrap();
    story.board.when_needed(move |id| {
        assert_eq!(id, kubelet);
        count.fetch_add(1, Ordering::Relaxed);
    });
    set(&story, facts(READY), 0);
    assert_eq!((story.board.needed(), asked.load(Ordering::Relaxed)), (None, 0));
    set(&story, facts(SILENT), 1);
    set(&story, tainted(Some(2)), 2);
    assert_eq!((story.board.needed(), asked.load(Ordering::Relaxed)), (Some(kubelet), 1));
    set(&story, facts(READY), 3);
    assert_eq!(story.board.needed(), None);
    set(&story, facts(SILENT), 4);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

/// A request may neither start the check nor read its result; the verdict may.
#[test]
fn a_check_that_no_request_may_start_decides_all_the_same() {
    let policy = Policy { stale_after: Duration::from_hours(1), ..Policy::default() };
    let story = Story::with_checks(policy, &["kubelet"], Begins::Never, &["node_ready"]);
    story.board.prove(at(0));
    set(&story, facts(SILENT), 1);
    kubelet(&story, Outcome::Pass, 1);
    assert_eq!(says(&story, 2), IN);
    assert!(story.text("check=kubelet", 2).contains("Not enabled: kubelet"));
    let status = Status::read(&story.board, "1", at(2), wall(2));
    assert!(status.unconfirmed && status.checks.iter().any(|check| check.name == "kubelet" && !check.active));
}

#[test]
fn people_are_told() {
    let story = story(Policy::default());
    set(&story, tainted(Some(1)), 1);
    kubelet(&story, Outcome::Pass, 1);
    let status = Status::read(&story.board, "1", at(1), wall(1));
    let doubt = sentence::doubt(&status).unwrap();
    assert!(
        doubt.contains("does not hear the kubelet") && doubt.ends_with("leaves the pool in 5 min"),
        "{doubt}"
    );
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!((&json["unconfirmed"], &json["verdict"]), (&true.into(), &"ready".into()));
    set(&story, facts(READY), 2);
    let json = serde_json::to_value(Status::read(&story.board, "1", at(2), wall(2))).unwrap();
    assert!(json.get("unconfirmed").is_none() && json.get("leaves_in_ms").is_none(), "{json}");
}

/// An agent takes over stale facts, including the taint's date.
#[test]
fn the_taint_is_handed_on() {
    let story = story(Policy::default());
    set(&story, tainted(Some(7)), 8);
    let json = serde_json::to_vec(&Status::read(&story.board, "1", at(8), wall(8))).unwrap();
    let last = Memory::parse(&json).unwrap().last_facts("n1", wall(8)).unwrap().unwrap();
    assert_eq!(last.node.facts().unwrap().unreachable, tainted(Some(7)).unreachable);
    let reason = Reason::new("NodeStatusUnknown");
    let next = self::story(Policy::default());
    next.board.set_node(last.node, at(9), wall(9));
    kubelet(&next, Outcome::Fail(reason), 9);
    assert_eq!(says(&next, 9), OUT);
}
