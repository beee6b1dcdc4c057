//! Tests of answers that don't fit what the watch has delivered: others came meanwhile, or history went back.

use super::scenario::{SERVICE, STALE_AFTER, Scenario, here, node};
use crate::freshness::{Input, NodeVersion, Transition};
use crate::stream::{LEASE, NODE};
use nodegate_kube_follow::FailureReason;
use std::time::Duration;

const SOON: Duration = Duration::from_millis(1600);

/// Lets the scenario ask, and then the watch deliver these versions; returns the check's number.
fn overtaken(scenario: &mut Scenario, versions: impl IntoIterator<Item = u32>) -> u64 {
    let (number, _) = scenario.asks();
    for version in versions {
        scenario.event(version);
    }
    number
}

/// etcd was restored from a copy that the agent has seen. The watch goes on with the old history for a while,
/// and the answer is of the new one.
#[test]
fn an_answer_between_two_states_that_the_watch_has_not_delivered_proves_nothing() {
    let mut scenario = Scenario::watching();
    let number = overtaken(&mut scenario, [9]);
    let proved = scenario.proved;
    scenario.answers(number, node(5), here()).passes(Duration::from_millis(400));
    assert_eq!((scenario.proved, scenario.taken(Transition::FoundRewound)), (proved, 1));
    assert_eq!(scenario.replaced(FailureReason::Unresponsive).len(), 3);
}

#[test]
fn an_answer_that_the_watch_has_overtaken_is_proof_and_the_check_is_repeated() {
    let mut scenario = Scenario::watching();
    let number = overtaken(&mut scenario, [5, 9]);
    let asked_at = scenario.now;
    scenario.answers(number, node(5), here());
    assert_eq!((scenario.proved, scenario.taken(Transition::FoundOvertaken)), (Some(asked_at), 1));
    assert!(scenario.replaced(FailureReason::Unresponsive).is_empty());
    let (number, _) = scenario.asks();
    assert!(scenario.now.since(asked_at) <= SOON, "{:?}", scenario.now.since(asked_at));
    scenario.answers(number, node(9), here()).seconds(5);
    assert_eq!((scenario.asked(), scenario.taken(Transition::FoundCurrent)), (None, 1));
}

/// The Node was created and deleted before the check that confirmed the absence, and its events arrive late.
#[test]
fn a_node_that_appears_after_a_confirmed_absence_is_checked_at_once() {
    let mut scenario = Scenario::watching();
    scenario.step(Input::Changed(NodeVersion::Absent));
    scenario.checks(NodeVersion::Absent, here()).seconds(1).event(5);
    let (number, is_new) = scenario.asked().expect("the Node may be gone");
    assert!(!is_new);
    scenario.answers(number, NodeVersion::Absent, here()).passes(Duration::from_millis(400));
    assert_eq!(scenario.taken(Transition::FoundBehind), 1);
    assert_eq!(scenario.replaced(FailureReason::Unresponsive).len(), 3);
}

/// The agent stood still, and reads what its watch has received from a history that is over.
#[test]
fn an_answer_that_the_watch_has_overtaken_revives_no_stale_cache() {
    for is_over in [true, false] {
        let mut scenario = Scenario::watching();
        scenario.step(Input::Closed(NODE)).seconds(16).step(Input::Accepted(NODE, here()));
        let number = overtaken(&mut scenario, [9]);
        let asked_at = scenario.now;
        scenario.answers(number, node(1), here());
        assert!(scenario.age() > STALE_AFTER, "{is_over}");
        let (number, _) = scenario.asks();
        assert!(scenario.now.since(asked_at) <= SOON);
        let answer = if is_over { node(1) } else { node(9) };
        scenario.answers(number, answer, here()).passes(Duration::from_millis(400));
        assert_eq!(scenario.taken(Transition::FoundRewound) == 1, is_over);
        assert_eq!(scenario.age() > STALE_AFTER, is_over);
    }
}

/// A list is requested later than any check.
#[test]
fn a_list_settles_whether_a_change_was_missed() {
    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    scenario.answers(number, node(2), here()).said.clear();
    scenario.lists(NODE, 3);
    scenario.passes(Duration::from_millis(400));
    let found = [Transition::FoundBehind, Transition::FoundRewound].map(|found| scenario.taken(found));
    assert_eq!((found, scenario.replaced(FailureReason::Unresponsive)), ([0; 2], Vec::new()));
}

/// A watch that delivers very much costs a list, and no memory.
#[test]
fn the_states_that_are_remembered_are_bounded() {
    for (versions, overtakes) in [(63, 1), (64, 0)] {
        let mut scenario = Scenario::watching();
        let number = overtaken(&mut scenario, (1..=versions).map(|version| 1 + version));
        scenario.answers(number, node(1), here());
        assert_eq!(scenario.taken(Transition::FoundOvertaken), overtakes, "{versions}");
    }
}

#[test]
fn history_that_went_back_leaves_no_mark() {
    for answer in [node(0), NodeVersion::Present { uid: "b".to_owned(), version: "9".to_owned() }] {
        let mut scenario = Scenario::watching();
        scenario.event(1);
        scenario.checks(answer.clone(), here()).passes(Duration::from_millis(400));
        assert_eq!(scenario.taken(Transition::FoundRewound), 1, "{answer:?}");
        assert_eq!(scenario.replaced(FailureReason::Unresponsive), [NODE, LEASE, SERVICE]);
        // Only the new list counts.
        let proved = scenario.proved;
        scenario.event(1).renewal(Duration::ZERO);
        assert_eq!(scenario.proved, proved);
        scenario.lists(NODE, 0);
        assert!(scenario.age().is_zero());
    }
}

/// A watch that ends at that moment is not open, so it is not replaced. When it is resumed, it is a watch of
/// the old history.
#[test]
fn history_that_went_back_leaves_no_mark_to_a_watch_that_is_resumed() {
    let mut scenario = Scenario::watching();
    scenario.checks(node(0), here()).step(Input::Closed(NODE));
    scenario.passes(Duration::from_millis(400));
    assert_eq!(scenario.taken(Transition::FoundRewound), 1);
    assert_eq!(scenario.replaced(FailureReason::Unresponsive), [LEASE, SERVICE]);
    let proved = scenario.proved;
    scenario.step(Input::Accepted(NODE, here())).lists(LEASE, 1);
    scenario.step(Input::Accepted(LEASE, here())).renewal(Duration::ZERO);
    assert_eq!(scenario.proved, proved, "the Lease speaks for no Node of another history");
    // Other changes have led to the same version since.
    scenario.checks(node(1), here()).passes(Duration::from_millis(400));
    assert_eq!(scenario.proved, proved, "what was held is no mark");
    assert_eq!(scenario.replaced(FailureReason::Unresponsive), [NODE, LEASE]);
}
