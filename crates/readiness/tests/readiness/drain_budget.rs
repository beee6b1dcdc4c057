//! Tests of a cordon that the drain budget judges: `--max-drained`.

use crate::scenario::{Scenario, WALL, at, node, taint};
use nodegate_agent_api::{DrainSummary, Predecessor};
use nodegate_agent_client::sentence;
use nodegate_readiness::{CheckId, Cordon, Kept, LastFacts, Node, Policy};

const IN: (u16, bool) = (200, false);
const KEPT: (u16, bool) = (200, true);
const OUT: (u16, bool) = (503, false);

fn policy(drain_on: &str) -> Policy {
    let max_drained = "50%".parse().unwrap();
    Policy { max_drained, drain_on: drain_on.parse().unwrap(), ..Policy::default() }
}

fn kept() -> Kept {
    let max_drained = "50%".parse().unwrap();
    Kept { drained: 5, nodes: 10, max_drained, first: "n7".to_owned(), before: vec!["n7".to_owned()] }
}

fn set(scenario: &Scenario, cordoned: bool) -> (u16, bool) {
    scenario.board.set_node(node(cordoned), at(1), WALL);
    says(scenario)
}

fn judge(scenario: &Scenario, kept: Option<Kept>) -> (u16, bool) {
    scenario.board.judge_cordon(kept, at(1), WALL);
    says(scenario)
}

/// Returns the status of the answer, and true if the node is kept.
fn says(scenario: &Scenario) -> (u16, bool) {
    let reply = scenario.ask("", 1);
    let is_kept = scenario.text("", 1).contains(r#""passed":true,"kept":true,"#);
    assert_eq!(is_kept, scenario.board.report(CheckId::NodeReady, at(1)).kept);
    (reply.status, is_kept)
}

fn handed_on(scenario: &Scenario) -> LastFacts {
    let json = serde_json::to_vec(&scenario.status(1)).unwrap();
    Predecessor::parse(&json, "n1", WALL).unwrap().facts.unwrap()
}

#[test]
fn a_cordon_takes_the_node_out_when_it_is_granted_and_until_its_end() {
    let scenario = Scenario::with(policy("unschedulable,taint:a"), Node::Unknown);
    assert_eq!(set(&scenario, false), IN);
    assert_eq!(set(&scenario, true), IN, "not judged yet");
    assert_eq!(judge(&scenario, Some(kept())), KEPT);
    assert_eq!(set(&scenario, true), KEPT, "another event");
    let shown = scenario.status(1);
    assert_eq!((&shown.kept, shown.was_kept), (&Some(kept()), false));
    let text = "kept in the pool: 5 of 10 nodes are drained (--max-drained 50%), n7 for longest";
    assert_eq!(sentence::why(&shown), format!("may get new traffic: cordoned, but {text}"));
    let summary = DrainSummary::of(&shown, None).kept;
    assert_eq!(summary, Some(Kept { before: Vec::new(), ..kept() }));
    assert_eq!(judge(&scenario, None), OUT);
    assert!(scenario.status(1).was_kept && DrainSummary::of(&scenario.status(1), None).was_kept);
    assert_eq!(judge(&scenario, Some(kept())), OUT, "it does not come back because another one leaves");
    assert_eq!((set(&scenario, true), set(&scenario, false)), (OUT, IN));
    assert_eq!(judge(&scenario, None), IN, "an answer that comes too late");
    assert_eq!((set(&scenario, true), judge(&scenario, None)), (IN, OUT));
    assert!(!scenario.status(1).was_kept);
    assert_eq!(scenario.verdicts().len(), 3, "{:?}", scenario.verdicts());
}

#[test]
fn only_a_cordon_can_be_kept() {
    let scenario = Scenario::with(policy("unschedulable,taint:a"), Node::Unknown);
    set(&scenario, false);
    let Node::Present(mut facts) = node(true) else { unreachable!() };
    facts.taints = [taint("a:NoSchedule")].into();
    scenario.board.set_node(Node::Present(facts), at(1), WALL);
    assert_eq!(says(&scenario), OUT, "the other changes of the event count");
    assert_eq!(judge(&scenario, Some(kept())), OUT);
    assert_eq!(set(&scenario, true), KEPT);
}

#[test]
fn without_a_budget_or_the_signal_a_cordon_is_what_it_was() {
    for (policy, out) in [(Policy::default(), OUT), (policy("deleting"), IN)] {
        let scenario = Scenario::with(policy, Node::Unknown);
        set(&scenario, false);
        assert_eq!(set(&scenario, true), out);
        assert_eq!(judge(&scenario, Some(kept())), out);
        let with_budget = Scenario::with(self::policy("unschedulable"), Node::Unknown);
        set(&with_budget, true);
        judge(&with_budget, Some(kept()));
        scenario.board.take_over(handed_on(&with_budget), at(1), WALL);
        assert_eq!(says(&scenario), out);
    }
}

#[test]
fn a_cordon_from_before_the_start_counts_until_it_is_judged() {
    let scenario = Scenario::with(policy("unschedulable"), Node::Unknown);
    assert_eq!(set(&scenario, true), OUT);
    assert_eq!(judge(&scenario, Some(kept())), KEPT);
}

#[test]
fn the_next_agent_knows_whether_the_cordon_was_granted() {
    let before = Scenario::with(policy("unschedulable"), Node::Unknown);
    set(&before, false);
    set(&before, true);
    for (judged, says_before) in [(Some(kept()), KEPT), (None, OUT)] {
        assert_eq!(judge(&before, judged), says_before);
        // It has heard nothing from the API server yet.
        let scenario = Scenario::begin(policy("unschedulable"), &["node_ready"]);
        assert!(scenario.board.take_over(handed_on(&before), at(0), WALL));
        scenario.board.prove(at(0));
        scenario.board.open(at(0), WALL);
        assert_eq!(set(&scenario, true), says_before);
        // It has, and has judged by itself already, or not yet.
        for own in [None, Some(Some(kept())), Some(None)] {
            let scenario = Scenario::with(policy("unschedulable"), Node::Unknown);
            set(&scenario, true);
            if let Some(own) = own {
                judge(&scenario, own);
            }
            assert!(!scenario.board.take_over(handed_on(&before), at(1), WALL), "no facts");
            assert_eq!(says(&scenario), says_before);
        }
    }
    assert_eq!(before.board.state().cordon, Cordon::Granted { was_kept: true });
}
