//! Tests of answers that arrive after the watch has delivered other states.

use super::story::{STALE_AFTER, Story, here, node};
use crate::freshness::{Action, Input, NodeVersion, Transition, Why};
use crate::stream::Stream;
use std::time::Duration;

/// Longer than the first backoff.
const SOON: Duration = Duration::from_millis(1600);

/// Lets the story ask, and then the watch deliver these versions; returns the check's number.
fn overtaken(story: &mut Story, versions: impl IntoIterator<Item = u32>) -> u64 {
    let (question, _) = story.asks();
    for version in versions {
        story.event(version);
    }
    question
}

/// etcd was restored from a copy that the agent has seen. The watch goes on with the old history for a while,
/// and the answer is of the new one.
#[test]
fn an_answer_between_two_states_that_the_watch_has_not_delivered_proves_nothing() {
    let mut story = Story::watching();
    let question = overtaken(&mut story, [9]);
    let proved = story.proved;
    story.answers(question, node(5), here()).passes(Duration::from_millis(400));
    assert_eq!((story.proved, story.taken(Transition::FoundRewound)), (proved, 1));
    assert_eq!(story.replaced(Why::Deaf).len(), 3);
}

#[test]
fn an_answer_that_the_watch_has_overtaken_is_proof_and_the_check_is_repeated() {
    let mut story = Story::watching();
    let question = overtaken(&mut story, [5, 9]);
    let asked_at = story.now;
    story.answers(question, node(5), here());
    assert_eq!((story.proved, story.taken(Transition::FoundOvertaken)), (Some(asked_at), 1));
    assert!(story.replaced(Why::Deaf).is_empty());
    let (question, _) = story.asks();
    assert!(story.now.since(asked_at) <= SOON, "{:?}", story.now.since(asked_at));
    story.answers(question, node(9), here()).seconds(5);
    assert_eq!((story.asked(), story.taken(Transition::FoundCurrent)), (None, 1));
}

#[test]
fn a_node_that_is_deleted_or_created_meanwhile_is_no_missed_change() {
    let again = NodeVersion::Present { uid: "b".to_owned(), version: "9".to_owned() };
    for answer in [node(1), NodeVersion::Absent] {
        let mut story = Story::watching();
        let (question, _) = story.asks();
        story.step(Input::Changed(NodeVersion::Absent)).step(Input::Changed(again.clone()));
        story.answers(question, answer, here()).passes(Duration::from_millis(400));
        assert_eq!((story.taken(Transition::FoundOvertaken), story.replaced(Why::Deaf)), (1, Vec::new()));
    }
}

/// The agent stood still, and reads what its watch has received from a history that is over.
#[test]
fn an_answer_that_the_watch_has_overtaken_revives_no_stale_cache() {
    for is_over in [true, false] {
        let mut story = Story::watching();
        story.step(Input::Closed(Stream::Node)).seconds(16).step(Input::Accepted(Stream::Node, here()));
        let question = overtaken(&mut story, [9]);
        let asked_at = story.now;
        story.answers(question, node(1), here());
        assert!(story.age() > STALE_AFTER, "{is_over}");
        let (question, _) = story.asks();
        assert!(story.now.since(asked_at) <= SOON);
        let answer = if is_over { node(1) } else { node(9) };
        story.answers(question, answer, here()).passes(Duration::from_millis(400));
        assert_eq!(story.taken(Transition::FoundRewound) == 1, is_over);
        assert_eq!(story.age() > STALE_AFTER, is_over);
    }
}

/// A list is requested later than any check.
#[test]
fn a_list_ends_the_doubt_about_a_change() {
    for anew in [false, true] {
        let mut story = Story::watching();
        let (mut question, mut new) = story.asks();
        while new != anew {
            (question, new) = story.asks();
        }
        story.answers(question, node(2), here()).said.clear();
        story.lists(Stream::Node, 3);
        assert_eq!(story.said.contains(&Action::DropTheAnswer), anew);
        story.passes(Duration::from_millis(400));
        let found = [Transition::FoundBehind, Transition::FoundRewound].map(|found| story.taken(found));
        assert_eq!((found, story.replaced(Why::Deaf)), ([0; 2], Vec::new()));
    }
}

/// A watch that delivers very much costs a list, and no memory.
#[test]
fn the_states_that_are_remembered_are_bounded() {
    for (versions, overtakes) in [(63, 1), (64, 0)] {
        let mut story = Story::watching();
        let question = overtaken(&mut story, (1..=versions).map(|version| 1 + version));
        story.answers(question, node(1), here());
        assert_eq!(story.taken(Transition::FoundOvertaken), overtakes, "{versions}");
    }
}
