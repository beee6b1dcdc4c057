//! Tests of the rules, one by one.

use super::scenario::{SERVICE, STALE_AFTER, Scenario, elsewhere, here, node};
use crate::freshness::{Action, Input, Refusal, Transition};
use crate::stream::{LEASE, NODE};
use nodegate_kube_follow::FailureReason;
use nodegate_readiness::Moment;
use std::time::Duration;

#[test]
fn no_stream_says_anything_that_revives_a_stale_cache() {
    let mut scenario = Scenario::watching();
    scenario.seconds(16).said.clear();
    let proved = scenario.proved;
    for stream in [NODE, LEASE, SERVICE] {
        scenario.step(Input::Bytes(stream));
    }
    scenario.event(2).renewal(Duration::ZERO);
    assert_eq!(scenario.proved, proved);
    for taken in [Transition::NodeEventWhileStale, Transition::LeaseWhileStale, Transition::WentStale] {
        assert_eq!(scenario.taken(taken), 1, "{taken:?}");
    }
    let (number, _) = scenario.asks();
    let asked_at = scenario.now;
    scenario.passes(Duration::from_millis(500)).answers(number, node(2), here());
    assert_eq!(scenario.proved, Some(asked_at));
}

/// A server that is in touch with etcd again sends all delayed events at once, and the watch may break in the
/// middle of them.
#[test]
fn an_event_of_the_node_is_news_and_no_proof() {
    let mut scenario = Scenario::watching();
    scenario.seconds(5).event(2);
    assert_eq!(scenario.age(), Duration::from_secs(5));
    assert_eq!(scenario.taken(Transition::NodeEvent), 1);
    scenario.checks(node(2), here());
    assert_eq!(scenario.age(), Duration::ZERO, "it is what etcd holds");
}

/// Proof of the Node is no proof of a watch on another server, which may be cut off.
#[test]
fn a_service_on_another_connection_is_moved_at_once_to_the_nodes() {
    let mut scenario = Scenario::watching();
    scenario.seconds(5).step(Input::Accepted(SERVICE, elsewhere())).said.clear();
    scenario.renewal(Duration::ZERO);
    assert_eq!(scenario.service_proved(), None);
    let (number, _) = scenario.asked().expect("at once");
    scenario.answers(number, node(1), here());
    assert_eq!(scenario.replaced(FailureReason::Moved), [SERVICE]);
    assert_eq!(scenario.service_proved(), None);
}

#[test]
fn a_service_is_as_fresh_as_the_node_while_both_are_watched_on_one_connection() {
    let mut scenario = Scenario::watching();
    scenario.seconds(5).renewal(Duration::ZERO);
    assert_eq!(scenario.service_proved(), Some(scenario.now));
    // A list of the Node has no connection. That of its watch counts.
    scenario.seconds(3).said.clear();
    scenario.lists(NODE, 1);
    assert_eq!(scenario.service_proved(), None);
    let listed_at = scenario.now;
    scenario.seconds(1).step(Input::Accepted(NODE, here()));
    assert_eq!(scenario.service_proved(), Some(listed_at));
    let (number, _) = scenario.asks();
    let asked_at = scenario.now;
    scenario.passes(Duration::from_millis(500)).answers(number, node(1), here());
    assert_eq!(scenario.service_proved(), Some(asked_at));
    // A watch that was closed in the meantime gets a proof as soon as it is resumed, and one that is listed has its own.
    for (restarts, is_asked) in [(false, true), (true, false)] {
        scenario.seconds(2).step(Input::Closed(SERVICE)).renewal(Duration::ZERO).said.clear();
        if restarts {
            scenario.lists(SERVICE, 1);
        }
        let asked = scenario.step(Input::Accepted(SERVICE, here())).asked();
        assert_eq!(asked.is_some(), is_asked);
        asked.map(|(number, _)| scenario.answers(number, node(1), here()));
    }
}

#[test]
fn a_lease_is_dated_by_its_renewal() {
    let mut scenario = Scenario::watching();
    scenario.seconds(10).renewal(Duration::from_secs(3));
    assert_eq!(scenario.age(), Duration::from_secs(3));
    // A delayed renewal shows its age.
    scenario.seconds(10).renewal(Duration::from_secs(16)).renewal(Duration::from_secs(9));
    assert_eq!(scenario.age(), Duration::from_secs(9));
    let wall = scenario.wall();
    for at in [None, Some(wall + Duration::from_secs(1))] {
        scenario.step(Input::Renewed { at, wall });
    }
    assert_eq!(scenario.age(), Duration::from_secs(9));
    for taken in [Transition::LeaseTooOld, Transition::LeaseWithoutDate, Transition::LeaseFromTheFuture] {
        assert_eq!(scenario.taken(taken), 1, "{taken:?}");
    }
}

#[test]
fn a_lease_speaks_for_a_node_that_is_watched_beside_it_for_a_limited_time() {
    let silenced = |by: Option<Input>| {
        let mut scenario = Scenario::watching();
        by.map(|by| scenario.step(by));
        scenario.seconds(5).renewal(Duration::ZERO);
        !scenario.age().is_zero()
    };
    assert!(!silenced(None));
    assert!(silenced(Some(Input::Closed(NODE))));
    assert!(silenced(Some(Input::Accepted(LEASE, elsewhere()))));
    // Renewals alone keep the cache fresh until the Node itself is due.
    let mut scenario = Scenario::watching();
    let mut kept = 0;
    while scenario.taken(Transition::LeaseSpokeTooLong) == 0 {
        scenario.seconds(5).step(Input::Bytes(NODE)).renewal(Duration::ZERO);
        kept += 5;
        assert!(kept <= 90);
    }
    assert!(kept >= 65, "{kept}");
    scenario.seconds(15);
    assert_eq!(scenario.taken(Transition::WentStale), 1, "100 s at the latest");
}

#[test]
fn the_limits_of_a_lease_are_exact() {
    let after_70_seconds = |bookmarks: bool| {
        let mut scenario = Scenario::watching();
        for _ in 0..14 {
            scenario.seconds(5);
            if bookmarks {
                scenario.step(Input::Bytes(NODE));
            }
            scenario.renewal(Duration::ZERO);
        }
        scenario
    };
    let refused = |scenario: &mut Scenario, later: Duration, taken: Transition| {
        scenario.passes(later).renewal(Duration::ZERO);
        scenario.taken(taken)
    };
    let mut silent = after_70_seconds(false);
    for (later, refusals) in [(0, 0), (1, 1)] {
        let later = Duration::from_nanos(later);
        assert_eq!(refused(&mut silent, later, Transition::LeaseWithoutBookmarks), refusals);
    }
    assert!(silent.asked().is_some(), "it is asked when they are missing");
    // A renewal after 74.2 s is followed by one within 85 s, which still counts.
    let mut old = after_70_seconds(true);
    for (later, last, too_long) in [
        (Duration::from_millis(4200), 0, 0),
        (Duration::from_nanos(1), 1, 0),
        (Duration::from_millis(10_800) - Duration::from_nanos(1), 2, 0),
        (Duration::from_nanos(1), 2, 1),
    ] {
        assert_eq!(refused(&mut old, later, Transition::LeaseSpokeTooLong), too_long, "{later:?}");
        assert_eq!(old.taken(Transition::LeaseSpokeLast), last, "{later:?}");
    }
}

/// The connection of another watch is no evidence for the Node's.
#[test]
fn only_the_nodes_watch_says_on_which_connection_its_list_counts() {
    let mut scenario = Scenario::watching();
    scenario.lists(NODE, 1);
    scenario.step(Input::Accepted(NODE, here()));
    for connection in [elsewhere(), here()] {
        scenario.step(Input::Accepted(LEASE, connection));
    }
    scenario.seconds(5).renewal(Duration::ZERO);
    assert_eq!(scenario.age(), Duration::ZERO);
}

#[test]
fn an_old_event_makes_a_check_due_once_in_ten_seconds() {
    let mut scenario = Scenario::watching();
    scenario.checks(node(1), here()).seconds(10).event(0);
    let at = scenario.now;
    assert!(scenario.asked().is_none() && scenario.machine.wake_at() > Some(at.plus(Duration::from_secs(1))));
    scenario.passes(Duration::from_nanos(1)).event(0).asks();
    assert!(scenario.now.since(at) < Duration::from_secs(1));
}

#[test]
fn a_clock_that_is_set_makes_no_lease_count_for_more() {
    let mut scenario = Scenario::watching();
    scenario.seconds(5).renewal(Duration::ZERO).seconds(5).clock_is_set(-60).renewal(Duration::ZERO);
    assert_eq!(scenario.age(), Duration::from_secs(5));
    for taken in [Transition::ClockSetBack, Transition::LeaseFromBeforeTheClockWasSetBack] {
        assert_eq!(scenario.taken(taken), 1, "{taken:?}");
    }
}

/// Lets the next check go without an answer. Returns its time; the next one follows at once on a new connection.
fn first_failure(scenario: &mut Scenario) -> Moment {
    let (_, is_new) = scenario.asks();
    let first = scenario.now;
    assert!(!is_new && scenario.age() < STALE_AFTER);
    let (_, is_new) = scenario.asks();
    assert!(is_new);
    assert!(scenario.now.since(first) <= Duration::from_millis(1600), "as soon as the first is given up");
    first
}

#[test]
fn a_first_failure_is_followed_at_once_by_a_new_connection_and_later_ones_are_not() {
    let mut scenario = Scenario::watching();
    let first = first_failure(&mut scenario);
    let second = scenario.now;
    let (_, is_new) = scenario.asks();
    assert!(!is_new);
    assert!(scenario.now.since(second) >= Duration::from_millis(1600), "after a wait");
    // A late answer counts, with the date of its request, and all others no longer do.
    scenario.answers(1, node(1), here());
    assert_eq!(scenario.proved, Some(first));
    scenario.answers(2, node(1), elsewhere());
    assert_eq!((scenario.proved, &scenario.said[..]), (Some(first), &[][..]));
}

/// Each new connection is a handshake, and a thousand agents may be trying.
#[test]
fn new_connections_are_tried_ever_more_rarely() {
    let mut scenario = Scenario::watching();
    let mut tried = Vec::new();
    while tried.len() < 8 {
        if scenario.asks().1 {
            tried.push(scenario.now);
        }
    }
    let gaps: Vec<u64> = tried.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).collect();
    assert!(gaps.iter().zip([3, 4, 8, 18, 20, 20, 20]).all(|(gap, least)| *gap >= least), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 60), "{gaps:?}");
}

/// A list and a renewal end an outage as well as an answer.
#[test]
fn after_a_list_or_a_renewal_the_next_failure_is_a_first_one() {
    let listed = |scenario: &mut Scenario| {
        for _ in 0..4 {
            scenario.asks();
        }
        scenario.step(Input::Closed(SERVICE));
        scenario.lists(NODE, 1);
        scenario.step(Input::Accepted(NODE, here()));
    };
    let renewed = |scenario: &mut Scenario| {
        let (number, _) = scenario.asks();
        scenario.refuses(number, Refusal::Refused, 0);
        scenario.renewal(Duration::ZERO);
    };
    for end in [listed as fn(&mut Scenario), renewed] {
        let mut scenario = Scenario::watching();
        end(&mut scenario);
        first_failure(&mut scenario);
    }
}

#[test]
fn a_server_that_refuses_is_left_alone_as_it_asks_and_no_other_is_tried() {
    let refused = |seconds| {
        let mut scenario = Scenario::watching();
        let (number, _) = scenario.asks();
        let asked_at = scenario.now;
        scenario.refuses(number, Refusal::Refused, seconds);
        assert_eq!(scenario.taken(Transition::Refused), 1);
        let (_, is_new) = scenario.asks();
        assert!(!is_new);
        scenario.now.since(asked_at).as_secs()
    };
    assert!((8..=10).contains(&refused(8)));
    // The limit, and up to a quarter by chance.
    assert!((30..=37).contains(&refused(3600)));
}

/// Otherwise the cache would be stale again before the next check, although a server answers.
#[test]
fn a_list_that_was_answered_ends_what_retry_after_asked_for() {
    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    scenario.refuses(number, Refusal::Refused, 30).seconds(1).lists(NODE, 1);
    scenario.step(Input::Accepted(NODE, here()));
    scenario.asks();
    assert!(scenario.age() < STALE_AFTER);
}

#[test]
fn an_answer_that_the_watch_has_not_given_replaces_it_unless_it_does_in_time() {
    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    let asked_at = scenario.now;
    scenario.answers(number, node(2), here()).passes(Duration::from_millis(200)).event(2);
    assert_eq!(scenario.taken(Transition::CaughtUp), 1);
    assert!(scenario.replaced(FailureReason::Unresponsive).is_empty() && scenario.proved >= Some(asked_at));

    let mut scenario = Scenario::watching();
    let (number, _) = scenario.asks();
    let proved = scenario.proved;
    scenario.answers(number, node(2), here()).passes(Duration::from_millis(400));
    assert_eq!(scenario.replaced(FailureReason::Unresponsive), [NODE, LEASE, SERVICE]);
    assert_eq!((scenario.proved, scenario.taken(Transition::FoundBehind)), (proved, 1));
    // Events of a watch that will be replaced do not count.
    scenario.event(2).renewal(Duration::ZERO);
    assert_eq!(scenario.proved, proved);
}

#[test]
fn the_watches_move_to_the_connection_that_answers() {
    // The answer came on a new client. The Node's follower opens its watch there, and the others follow.
    // It lists there whatever the answer says, so that does not wait for the old watch.
    for said in [1, 2] {
        let mut scenario = Scenario::watching();
        scenario.asks();
        let (number, is_new) = scenario.asks();
        assert!(is_new);
        scenario.answers(number, node(said), elsewhere());
        assert!(scenario.said.contains(&Action::MoveToTheAnswer));
        assert_eq!(scenario.replaced(FailureReason::Moved), [NODE]);
        assert_eq!(scenario.age().is_zero(), said == 1, "what was answered is the truth");
    }
    // The answer came on the same client, whose old connection is being closed.
    let mut scenario = Scenario::watching();
    scenario.checks(node(1), elsewhere());
    assert!(!scenario.said.contains(&Action::MoveToTheAnswer));
    assert_eq!(scenario.replaced(FailureReason::Moved), [NODE, LEASE, SERVICE]);
}

/// That of the Node when a check is answered: the API server leaves out a bookmark now and then.
#[test]
fn a_watch_without_bookmarks_is_replaced_alone() {
    for (silent, after) in [(SERVICE, 70), (LEASE, 70), (NODE, 140)] {
        let mut scenario = Scenario::watching();
        let (began, mut replaced) = (scenario.now, Vec::new());
        while replaced.is_empty() {
            scenario.seconds(1);
            assert!(scenario.now.since(began).as_secs() < after + 15, "{silent:?}");
            for stream in [NODE, LEASE, SERVICE].into_iter().filter(|stream| *stream != silent) {
                scenario.step(Input::Bytes(stream));
            }
            replaced.extend(scenario.replaced(FailureReason::Unresponsive));
            if let Some((number, _)) = scenario.asked() {
                scenario.answers(number, node(1), here());
                replaced.extend(scenario.replaced(FailureReason::Unresponsive));
            }
        }
        assert_eq!(replaced, [silent]);
        assert!(scenario.now.since(began).as_secs() >= after);
        assert_eq!(scenario.taken(Transition::StreamUnresponsive), 1);
    }
}

/// A watch that is resumed just at the deadline gets its check in time.
#[test]
fn a_resumed_watch_is_asked_about_in_time() {
    let mut scenario = Scenario::watching();
    scenario.seconds(12).step(Input::Closed(NODE));
    let due = scenario.now.plus(Duration::from_secs(3) + Duration::from_nanos(1));
    assert_eq!(scenario.machine.wake_at(), Some(due));
    scenario.passes(Duration::from_millis(1)).step(Input::Accepted(NODE, here()));
    let wakes = scenario.machine.wake_at().unwrap().since(scenario.now);
    assert!(wakes < Duration::from_secs(1), "{wakes:?}");
}

#[test]
fn a_proof_counts_to_the_end_of_stale_after_and_no_longer() {
    let mut scenario = Scenario::watching();
    let events = |scenario: &Scenario| {
        [Transition::NodeEvent, Transition::NodeEventWhileStale].map(|taken| scenario.taken(taken))
    };
    scenario.passes(STALE_AFTER).event(2);
    assert_eq!(events(&scenario), [1, 0]);
    scenario.passes(Duration::from_nanos(1)).event(3);
    assert_eq!(events(&scenario), [1, 1]);
}
