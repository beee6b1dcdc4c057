//! Tests of `--not-ready-after`: how long `Ready=False` must last before it takes a Ready node out.

use crate::board::{Scenario, at};
use nodegate_agent_api::Status;
use nodegate_agent_client::sentence::caveat;
use nodegate_readiness::{
    Condition, ConditionStatus, Node, NodeFacts, OnUnknown, PendingNotReady, Policy, Verdict,
};
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

const WALL: SystemTime = SystemTime::UNIX_EPOCH;

fn node(status: ConditionStatus, unschedulable: bool) -> Node {
    let reason = format!("Kubelet{status}");
    let ready = Condition { kind: "Ready".to_owned(), status, reason };
    Node::Present(NodeFacts { conditions: vec![ready], unschedulable, ..NodeFacts::default() })
}

/// Returns a fresh board that takes a node out after so many seconds of `Ready=False`.
fn scenario(seconds: u64) -> Scenario {
    let policy = Policy {
        not_ready_after: Duration::from_secs(seconds),
        on_unknown: OnUnknown::NotReady,
        stale_after: Duration::from_hours(1),
        ..Policy::default()
    };
    let scenario = Scenario::begin(policy, &["node_ready"]);
    scenario.board.prove(at(0));
    scenario.board.open(at(0), WALL);
    scenario
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
    let status = Status::read(&scenario.board, "1", at(4), WALL);
    assert_eq!(status.not_ready_pending, Some(PendingNotReady { for_ms: 3000, counts_in_ms: 7000 }));
    assert_eq!(caveat(&status).as_deref(), Some("Ready=False for 3 s, counts after 10 s"));
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

proptest! {
    /// Whatever the Node does, the answer of each second is that of a plain model.
    #[test]
    fn only_a_false_that_follows_true_waits(
        after in 0_u64..8,
        changes in prop::collection::vec((0_u8..3, any::<bool>(), 1_u64..8), 1..20),
    ) {
        let scenario = scenario(after);
        let (mut second, mut last, mut since) = (0, 0, None);
        for (status, cordoned, lasts) in changes {
            let condition = [ConditionStatus::Unknown, ConditionStatus::False, ConditionStatus::True][usize::from(status)];
            since = match (last, status) {
                (2, 1) => Some(second),
                (1, 1) => since,
                _ => None,
            };
            last = status;
            set(&scenario, node(condition, cordoned), second);
            for now in second..second + lasts {
                let waits = since.is_some_and(|since| now - since < after);
                let alive = if cordoned { 404 } else { 200 };
                let expected = if status == 2 || waits { alive } else { 503 };
                prop_assert_eq!(code(&scenario, now), expected, "at {} s", now);
            }
            second += lasts;
        }
    }
}
