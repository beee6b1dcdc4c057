//! Tests of the time of the check: it comes with the last renewal that counts, so that refusals and delays
//! don't make the cache stale.

use super::story::{SERVICE, STALE_AFTER, Story, elsewhere, here, node};
use crate::freshness::{Action, Input, Refusal, Transition, Why};
use crate::stream::Stream;
use std::time::Duration;

fn throttled(seconds: u64) -> Refusal {
    Refusal::Throttled { retry_after: (seconds > 0).then(|| Duration::from_secs(seconds)) }
}

/// Sends renewals until a check is sent; returns its number, and true if it is on a new connection.
fn asked_with_a_renewal(story: &mut Story) -> (u64, bool) {
    for _ in 0..10 {
        story.seconds(10).step(Input::Bytes(Stream::Node)).step(Input::Bytes(Stream::Lease));
        story.renewal(Duration::ZERO);
        if let Some(asked) = story.asked() {
            return asked;
        }
    }
    panic!("it never asks");
}

#[test]
fn with_the_last_renewal_that_counts_it_is_asked() {
    let mut story = Story::watching();
    let began = story.now;
    let (question, anew) = asked_with_a_renewal(&mut story);
    let after = story.now.since(began).as_secs();
    assert!((70..=85).contains(&after) && !anew, "{after} s");
    assert_eq!((story.age(), story.taken(Transition::LeaseSpokeLast)), (Duration::ZERO, 1));
    story
        .answers(question, node(1), here())
        .seconds(10)
        .step(Input::Bytes(Stream::Node))
        .renewal(Duration::ZERO);
    assert_eq!(story.asked(), None, "and not with each from then on");
    assert_eq!(story.taken(Transition::LeaseSpokeTooLong), 0);
}

#[test]
fn refusals_and_delays_do_not_make_the_cache_stale() {
    let two_refusals = [throttled(0), throttled(0)];
    let other_refusals = [Refusal::Answered { retry_after: None }; 2];
    for refusals in [&[throttled(3)][..], &two_refusals, &other_refusals, &[throttled(1), throttled(2)]] {
        let mut story = Story::watching();
        let (mut question, _) = asked_with_a_renewal(&mut story);
        for refusal in refusals {
            story.step(Input::Unanswered { question, refusal: *refusal });
            question = story.asks().0;
        }
        story.answers(question, node(1), here());
        assert_eq!(story.taken(Transition::WentStale), 0, "{refusals:?}");
        assert!(story.age().is_zero());
    }
    // etcd does not respond.
    let mut story = Story::watching();
    let (mut question, _) = asked_with_a_renewal(&mut story);
    let since = story.now;
    while story.now.since(since) < Duration::from_secs(5) {
        question = story.asks().0;
    }
    story.answers(question, node(1), here());
    assert_eq!(story.taken(Transition::WentStale), 0);
}

#[test]
fn another_server_is_tried_once_if_waiting_would_end_stale() {
    let mut story = Story::watching();
    let (question, anew) = story.asks();
    let refused_at = story.now;
    assert!(!anew && story.age() > STALE_AFTER / 2);
    story.step(Input::Unanswered { question, refusal: throttled(10) });
    let (question, anew) = story.asked().expect("at once");
    assert!(anew);
    // The other server is as busy. Then both are left alone, for the longer `Retry-After`.
    story.step(Input::Unanswered { question, refusal: throttled(2) });
    let (question, anew) = story.asks();
    assert!(!anew && story.now.since(refused_at) >= Duration::from_secs(10));
    assert_eq!(story.taken(Transition::WentStale), 1);
    story.step(Input::Unanswered { question, refusal: throttled(1) });
    assert!(!story.asks().1, "stale it is already");

    // With time to wait, no other server is tried.
    let mut story = Story::watching();
    let (question, _) = asked_with_a_renewal(&mut story);
    story.step(Input::Unanswered { question, refusal: throttled(3) });
    let (question, anew) = story.asks();
    assert!(!anew);
    // An answer ends the `Retry-After`.
    story.answers(question, node(1), here());
    story.asks();
    assert_eq!(story.taken(Transition::WentStale), 0);
}

#[test]
fn after_a_step_forward_it_is_asked_at_once() {
    let mut story = Story::watching();
    story.seconds(3).clock_is_set(0);
    assert_eq!(story.asked(), None);
    let asked = story.clock_is_set(3600).asked();
    assert_eq!((asked, story.taken(Transition::ClockSetForward)), (Some((1, false)), 1));
}

#[test]
fn an_event_of_an_older_state_is_not_believed() {
    let mut story = Story::watching();
    story.event(9).seconds(1).event(8);
    assert_eq!(story.taken(Transition::NodeEventFromThePast), 1);
    let (question, _) = story.asked().expect("something is wrong");
    story.answers(question, node(9), here());
    assert!(story.age().is_zero(), "what is held is what etcd holds");
    // A server that replays its history does not cause a check each time.
    for version in 1..9 {
        story.event(version);
    }
    assert_eq!((story.asked(), story.taken(Transition::NodeEventFromThePast)), (None, 9));
    // A list counts: etcd may have been restored.
    story.lists(Stream::Node, 3);
    story.event(4);
    assert_eq!(story.taken(Transition::NodeEventFromThePast), 9);
}

#[test]
fn a_lease_says_nothing_on_a_server_on_which_the_node_was_not_proved() {
    let mut story = Story::watching();
    story.seconds(5);
    for stream in [Stream::Node, Stream::Lease] {
        story.step(Input::Closed(stream)).step(Input::Accepted(stream, elsewhere()));
    }
    story.renewal(Duration::ZERO);
    assert_eq!((story.age().as_secs(), story.taken(Transition::LeaseOnAnotherServer)), (5, 1));
    let (question, _) = story.asks();
    story.answers(question, node(1), elsewhere()).seconds(5).renewal(Duration::ZERO);
    assert!(story.age().is_zero());
    // After a list in a new session, the watch is on the list's connection.
    story.lists(Stream::Node, 1);
    story.step(Input::Accepted(Stream::Node, here())).step(Input::Accepted(Stream::Lease, here()));
    story.seconds(5).renewal(Duration::ZERO);
    assert!(story.age().is_zero());
}

/// Otherwise its client would stay connected beside the watches, unused, until the next move.
#[test]
fn a_connection_to_which_no_watch_moves_is_dropped() {
    let mut story = Story::watching();
    story.asks();
    let (question, anew) = story.asks();
    assert!(anew);
    story.step(Input::Closed(Stream::Node)).answers(question, node(1), elsewhere());
    assert!(story.said.contains(&Action::DropTheAnswer) && !story.said.contains(&Action::MoveToTheAnswer));
}

/// This is a kubelet with `nodeLeaseDurationSeconds: 60`.
#[test]
fn a_lease_that_is_renewed_rarely_is_no_silent_one() {
    for (every, replaced) in [(Some(Duration::from_secs(15)), false), (None, true)] {
        let mut story = Story { every, ..Story::watching() };
        for _ in 0..20 {
            story.step(Input::Bytes(Stream::Lease)).step(Input::Bytes(Stream::Node)).renewal(Duration::ZERO);
            let (question, _) = story.asks();
            story.answers(question, node(1), here());
            let deaf = story.replaced(Why::Deaf);
            if !deaf.is_empty() {
                assert_eq!((deaf, replaced), (vec![Stream::Node, Stream::Lease, SERVICE], true));
                return;
            }
            story.seconds(2);
        }
        assert!(!replaced, "{every:?}");
    }
}
