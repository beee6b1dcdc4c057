//! Tests of the time of the check: it comes with the last renewal that counts, so that refusals and delays
//! don't make the cache stale.

use super::scenario::{STALE_AFTER, Scenario, elsewhere, here, node};
use crate::freshness::{Action, Check, Input, Refusal, Transition};
use crate::stream::{LEASE, NODE};
use nodegate_kube_follow::FailureReason;
use std::time::Duration;

/// Sends renewals until a check is sent; returns its number, and true if it is on a new connection.
fn asked_with_a_renewal(scenario: &mut Scenario) -> (u64, bool) {
    for _ in 0..10 {
        scenario.seconds(10).step(Input::Bytes(NODE)).step(Input::Bytes(LEASE));
        scenario.renewal(Duration::ZERO);
        if let Some(asked) = scenario.asked() {
            return asked;
        }
    }
    panic!("it never asks");
}

#[test]
fn with_the_last_renewal_that_counts_it_is_asked() {
    let mut scenario = Scenario::watching();
    let began = scenario.now;
    let (number, is_new) = asked_with_a_renewal(&mut scenario);
    let after = scenario.now.since(began).as_secs();
    assert!((70..=85).contains(&after) && !is_new, "{after} s");
    assert_eq!((scenario.age(), scenario.taken(Transition::LeaseSpokeLast)), (Duration::ZERO, 1));
    scenario.answers(number, node(1), here()).seconds(10).step(Input::Bytes(NODE)).renewal(Duration::ZERO);
    assert_eq!(scenario.asked(), None, "and not with each from then on");
    assert_eq!(scenario.taken(Transition::LeaseSpokeTooLong), 0);
}

#[test]
fn refusals_and_delays_do_not_make_the_cache_stale() {
    use Refusal::{Refused, Throttled};
    for (refusal, retries_after) in
        [(Throttled, &[3][..]), (Throttled, &[0, 0]), (Refused, &[0, 0]), (Throttled, &[1, 2])]
    {
        let mut scenario = Scenario::watching();
        let (mut number, _) = asked_with_a_renewal(&mut scenario);
        for seconds in retries_after {
            number = scenario.refuses(number, refusal, *seconds).asks().0;
        }
        scenario.answers(number, node(1), here());
        assert_eq!(scenario.taken(Transition::WentStale), 0, "{refusal:?} {retries_after:?}");
        assert!(scenario.age().is_zero());
    }
    // etcd does not respond.
    let mut scenario = Scenario::watching();
    let (mut number, _) = asked_with_a_renewal(&mut scenario);
    let since = scenario.now;
    while scenario.now.since(since) < Duration::from_secs(5) {
        number = scenario.asks().0;
    }
    scenario.answers(number, node(1), here());
    assert_eq!(scenario.taken(Transition::WentStale), 0);
}

#[test]
fn another_server_is_tried_once_if_waiting_would_end_stale() {
    let mut scenario = Scenario::watching();
    let (number, is_new) = scenario.asks();
    let refused_at = scenario.now;
    assert!(!is_new && scenario.age() > STALE_AFTER / 2);
    scenario.refuses(number, Refusal::Throttled, 10);
    let (number, is_new) = scenario.asked().expect("at once");
    assert!(is_new);
    // The other server is as busy. Then both are left alone, for the longer `Retry-After`.
    scenario.refuses(number, Refusal::Throttled, 2);
    let (number, is_new) = scenario.asks();
    assert!(!is_new && scenario.now.since(refused_at) >= Duration::from_secs(10));
    assert_eq!(scenario.taken(Transition::WentStale), 1);
    scenario.refuses(number, Refusal::Throttled, 1);
    assert!(!scenario.asks().1, "stale it is already");

    // With time to wait, no other server is tried.
    let mut scenario = Scenario::watching();
    let (number, _) = asked_with_a_renewal(&mut scenario);
    scenario.refuses(number, Refusal::Throttled, 3);
    let (number, is_new) = scenario.asks();
    assert!(!is_new);
    // An answer ends the `Retry-After`.
    scenario.answers(number, node(1), here());
    scenario.asks();
    assert_eq!(scenario.taken(Transition::WentStale), 0);
}

#[test]
fn after_a_step_forward_it_is_asked_at_once() {
    let mut scenario = Scenario::watching();
    scenario.seconds(3).clock_is_set(0);
    assert_eq!(scenario.asked(), None);
    let asked = scenario.clock_is_set(3600).asked();
    assert_eq!((asked, scenario.taken(Transition::ClockSetForward)), (Some((1, false)), 1));
}

#[test]
fn an_event_of_an_older_state_is_not_believed() {
    let mut scenario = Scenario::watching();
    scenario.event(9).seconds(1).event(8);
    assert_eq!(scenario.taken(Transition::NodeEventFromThePast), 1);
    let (number, _) = scenario.asked().expect("something is wrong");
    scenario.answers(number, node(9), here());
    assert!(scenario.age().is_zero(), "what is held is what etcd holds");
    // A server that replays its history does not cause a check each time.
    for version in 1..9 {
        scenario.event(version);
    }
    assert_eq!((scenario.asked(), scenario.taken(Transition::NodeEventFromThePast)), (None, 9));
    // A list counts: etcd may have been restored.
    scenario.lists(NODE, 3);
    scenario.event(4);
    assert_eq!(scenario.taken(Transition::NodeEventFromThePast), 9);
}

#[test]
fn a_lease_says_nothing_on_a_server_on_which_the_node_was_not_proved() {
    let mut scenario = Scenario::watching();
    scenario.seconds(5);
    for stream in [NODE, LEASE] {
        scenario.step(Input::Closed(stream)).step(Input::Accepted(stream, elsewhere()));
    }
    scenario.renewal(Duration::ZERO);
    assert_eq!((scenario.age().as_secs(), scenario.taken(Transition::LeaseOnAnotherServer)), (5, 1));
    scenario.checks(node(1), elsewhere()).seconds(5).renewal(Duration::ZERO);
    assert!(scenario.age().is_zero());
}

/// Otherwise its client would stay connected beside the watches, unused, until the next move.
#[test]
fn a_connection_to_which_no_watch_moves_is_dropped() {
    let mut scenario = Scenario::watching();
    scenario.asks();
    let (number, is_new) = scenario.asks();
    assert!(is_new);
    scenario.step(Input::Closed(NODE)).answers(number, node(1), elsewhere());
    assert!(!scenario.said.contains(&Action::MoveToTheAnswer));
}

/// An etcd that is slow, or a control plane far away.
#[test]
fn answers_of_up_to_a_third_of_stale_after_keep_the_cache_fresh() {
    for millis in [1600, 2000, 3500, 5000] {
        let mut scenario = Scenario::watching();
        let mut moved = 0;
        for _ in 0..20 {
            let (number, _) = scenario.step(Input::Bytes(NODE)).asks();
            let (asked_at, answered_at) = (scenario.now, scenario.now.plus(Duration::from_millis(millis)));
            scenario.passes(answered_at.since(asked_at)).answers(number, node(1), here());
            assert_eq!(scenario.proved, Some(asked_at));
            moved += scenario.replaced(FailureReason::Moved).len();
        }
        let (stale, tried) =
            (scenario.taken(Transition::WentStale), scenario.taken(Transition::CheckSentOnNewConnection));
        // Only the first answer is a surprise. It may come too late for a check that was due late.
        assert_eq!((stale, moved), (u64::from(millis > 2100), 0), "{millis} ms");
        assert!(tried <= 1, "{millis} ms: {tried} new connections");
    }
}

/// The agent waits for an answer as long as for the last one, and a quarter more.
#[test]
fn a_late_answer_makes_the_next_ones_less_late() {
    let mut scenario = Scenario::watching();
    let (number, on_a_new_connection) = scenario.asks();
    let check = Check { number, on_a_new_connection };
    assert!(scenario.seconds(4).machine.waits_for(check));
    scenario.answers(number, node(1), here());
    assert!(!scenario.machine.waits_for(check));
    let (late, _) = scenario.asks();
    scenario.seconds(6);
    assert!(scenario.said.contains(&Action::Late(Duration::from_secs(5))));
    // It counts as failed already, and another check is on its way; but the API server wants to be left alone.
    scenario.refuses(late, Refusal::Refused, 30);
    assert_eq!(scenario.taken(Transition::Refused), 0);
    let refused_at = scenario.now;
    scenario.asked();
    scenario.asks();
    assert!(scenario.now.since(refused_at) >= Duration::from_secs(30));
    // Within bounds.
    let mut scenario = Scenario::watching();
    for seconds in [4, 6] {
        let (number, _) = scenario.asks();
        scenario.seconds(seconds).answers(number, node(1), here());
    }
    assert_eq!(scenario.machine.pace(), (STALE_AFTER / 3, STALE_AFTER / 3));
}

/// The good credentials may be on disk by now: a new client has them.
#[test]
fn a_401_is_followed_at_once_by_a_check_on_a_new_client() {
    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    scenario.refuses(number, Refusal::Unauthorized, 0);
    let (number, is_new) = scenario.asked().expect("at once");
    assert!(is_new);
    // They are not: the next attempts wait, each with the credentials of its moment.
    scenario.refuses(number, Refusal::Unauthorized, 0);
    assert_eq!(scenario.asked(), None);
    let (number, is_new) = scenario.asks();
    assert!(is_new);
    scenario.answers(number, node(1), elsewhere());
    assert!(scenario.said.contains(&Action::MoveToTheAnswer) && scenario.age().is_zero());
    // Those that are about to expire are replaced before they do.
    let mut scenario = Scenario::watching();
    scenario.seconds(3).step(Input::NewClientDue);
    assert!(scenario.asked().expect("at once").1);
    // Also while a check is on its way.
    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    scenario.step(Input::NewClientDue).answers(number, node(1), here());
    assert!(scenario.asked().expect("after the answer").1);
}
