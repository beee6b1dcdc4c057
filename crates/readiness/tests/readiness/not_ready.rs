//! Tests of `--not-ready-after`: how long `Ready=False` must last before it takes a Ready node out.

use crate::scenario::{Scenario, WALL, at, facts};
use nodegate_agent_client::sentence::caveat;
use nodegate_readiness::{ConditionStatus, Node, NodeFacts, OnUnknown, PendingNotReady, Policy, Verdict};
use std::time::Duration;

fn node(status: ConditionStatus, unschedulable: bool) -> Node {
    Node::Present(NodeFacts { unschedulable, ..facts(status, "Kubelet") })
}

/// Returns a fresh board that takes a node out after so many seconds of `Ready=False`.
fn scenario(seconds: u64) -> Scenario {
    let policy = Policy {
        not_ready_after: Duration::from_secs(seconds),
        on_unknown: OnUnknown::NotReady,
        stale_after: Duration::from_hours(1),
        ..Policy::default()
    };
    Scenario::with(policy, Node::Unknown)
}

fn set(scenario: &Scenario, node: Node, second: u64) {
    scenario.board.set_node(node, at(second), WALL);
}

fn code(scenario: &Scenario, second: u64) -> u16 {
    scenario.ask("drain=404", second).status
}

#[test]
fn a_kubelet_that_restarts_takes_no_node_out_and_one_that_stays_not_ready_does() {
    let scenario = scenario(10);
    set(&scenario, node(ConditionStatus::True, false), 0);
    set(&scenario, node(ConditionStatus::False, false), 1);
    assert_eq!((code(&scenario, 1), code(&scenario, 10)), (200, 200));
    let status = scenario.status(4);
    assert_eq!(status.not_ready_pending, Some(PendingNotReady { for_ms: 3000, counts_in_ms: 7000 }));
    assert_eq!(caveat(&status).as_deref(), Some("Ready=False for 3 s, counts after 10 s"));
    let between = at(4).plus(Duration::from_micros(500));
    let pending = PendingNotReady { for_ms: 3000, counts_in_ms: 7000 };
    assert_eq!(
        scenario.board.not_ready_pending(between),
        Some(pending),
        "the parts of a millisecond are not lost"
    );
    assert_eq!((status.verdict, scenario.board.expires(at(4))), (Some(Verdict::Ready), Some(at(11))));
    set(&scenario, node(ConditionStatus::True, false), 5);
    assert!(scenario.verdicts().is_empty(), "no flip");
    // Another change of the Node does not start the time over; a drain does not wait.
    set(&scenario, node(ConditionStatus::False, false), 20);
    set(&scenario, node(ConditionStatus::False, true), 25);
    assert_eq!((code(&scenario, 29), code(&scenario, 30)), (404, 503));
    assert_eq!(scenario.board.not_ready_pending(at(30)), None);
    scenario.board.tick(at(30), WALL);
    let flips: Vec<_> = scenario.verdicts().into_iter().map(|(_, to, _)| to).collect();
    assert_eq!(flips, [Verdict::Draining, Verdict::NotReady]);
}

#[test]
fn a_node_that_was_out_does_not_come_back_by_it() {
    let scenario = scenario(10);
    let mut another = node(ConditionStatus::False, false);
    if let Node::Present(facts) = &mut another {
        facts.uid = Some("another".to_owned());
    }
    for (before, second) in [
        (Node::Unknown, 0),
        (Node::Absent, 100),
        (node(ConditionStatus::Unknown, false), 200),
        (node(ConditionStatus::False, false), 300),
    ] {
        set(&scenario, before.clone(), second);
        set(&scenario, node(ConditionStatus::False, false), second + 20);
        assert_eq!(code(&scenario, second + 20), 503, "{before:?}");
    }
    set(&scenario, node(ConditionStatus::True, false), 400);
    set(&scenario, another, 401);
    assert_eq!(code(&scenario, 401), 503, "another Node of the same name");
}

#[test]
fn a_successor_counts_on_from_its_predecessor() {
    let pending = PendingNotReady { for_ms: 4000, counts_in_ms: 6000 };
    for (own, counts_at) in [(10, 106), (2, 102), (0, 100)] {
        let scenario = scenario(own);
        set(&scenario, node(ConditionStatus::False, false), 100);
        assert_eq!(code(&scenario, 100), 503);
        scenario.board.take_over_pending(pending, at(100), WALL);
        let counts = (100..120).find(|second| code(&scenario, *second) == 503);
        assert_eq!(counts, Some(counts_at), "with {own} s");
    }
    // It is Ready again before the successor has its list.
    let scenario = scenario(10);
    set(&scenario, node(ConditionStatus::True, false), 100);
    scenario.board.take_over_pending(pending, at(100), WALL);
    set(&scenario, node(ConditionStatus::False, false), 101);
    assert_eq!((code(&scenario, 110), code(&scenario, 111)), (200, 503));
}
