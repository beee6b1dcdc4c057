//! Tests of the judgement whether all probers have acknowledged.

use super::world::{World, balancer};
use crate::scenario::node;
use nodegate_readiness::probers::{
    AckSettings, Goal, PoolChange, ProberKind, Sessions, Standing, Unknown, WaitState,
};
use nodegate_readiness::{HostSignals, Node, NodeFacts, Verdict};
use proptest::prelude::*;
use std::time::Duration;

fn two() -> World {
    let mut world = World::new([balancer(1, 2000), balancer(2, 1000)]);
    world.pass_seconds(100);
    world
}

#[test]
fn all_have_acknowledged_when_each_has_asked_once_more_than_it_takes() {
    for every_ms in [200, 2000, 10_000] {
        let mut world = World::new([balancer(1, every_ms), balancer(2, every_ms / 2)]);
        world.pass_seconds(100);
        assert_eq!((world.acknowledged(), world.acknowledged_ready()), (Some(false), Some(true)));
        world.cordon(true);
        let took = world.until_acknowledged();
        // Four probes: within three intervals and the rest of the first.
        assert!(took > 3 * every_ms - 50 && took <= 4 * every_ms + 1000, "{every_ms}: {took}");
        assert!(world.missing().is_empty());
        world.cordon(false);
        assert_eq!((world.acknowledged(), world.acknowledged_ready()), (Some(false), Some(false)));
        world.pass(3 * every_ms + 50);
        assert_eq!(world.acknowledged_ready(), Some(true));
    }
}

/// Envoy asks once a minute while it is idle, so after ninety seconds it may have asked once.
#[test]
fn a_slow_balancer_is_waited_for_from_its_first_probe() {
    let mut world = World::new([balancer(1, 2000), balancer(2, 60_000)]);
    world.cordon(true);
    world.pass_seconds(91);
    assert_eq!(world.judge().acknowledgement, Err(Unknown::Undecided(vec![1])));
    world.cordon(false);
    world.pass_seconds(60);
    assert_eq!(world.standing(1), Standing::Regular);
    world.cordon(true);
    let took = world.until_acknowledged();
    assert!((180_000..=241_000).contains(&took), "{took}");
}

#[test]
fn one_that_falls_silent_is_waited_for_until_it_is_gone() {
    let mut world = two();
    world.cordon(true);
    world.pass(3000);
    world.stop(0);
    world.pass_seconds(10);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(false), Standing::Silent));
    assert_eq!(world.missing(), [0]);
    // Ten intervals and half a minute after its last probe.
    let took = world.until_acknowledged();
    assert!((36_000..=42_000).contains(&took), "{took}");
    assert_eq!(world.standing(0), Standing::Gone);
    world.stop(1);
    world.pass_seconds(100);
    assert_eq!(world.not_known(), "no_probers");
}

#[test]
fn a_prober_that_comes_back_must_acknowledge_again() {
    let mut world = two();
    world.cordon(true);
    assert!(world.until_acknowledged() < 60_000);
    world.stop(0);
    world.pass_seconds(120);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(true), Standing::Gone));
    world.begin(0);
    world.pass(1);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(false), Standing::Regular));
    let took = world.until_acknowledged();
    assert!((5900..=6100).contains(&took), "{took}");
}

#[test]
fn a_short_restart_breaks_no_row() {
    let mut world = two();
    world.cordon(true);
    world.pass(5000);
    world.stop(0);
    world.pass(6000);
    world.begin(0);
    world.pass(4000);
    assert_eq!(world.acknowledged(), Some(true));
}

#[test]
fn behind_one_address_the_interval_must_be_set() {
    // Two HAProxies, each with a probe every two seconds, look like one with a probe every second.
    let mut both = balancer(1, 1000);
    both.request = "/health?drain=503";
    let mut world = World::new([both]);
    world.pass_seconds(100);
    world.cordon(true);
    let began = world.now_ms;
    let settings = AckSettings { interval_ms: Some(2000), ..AckSettings::default() };
    assert!(world.until_acknowledged() <= 4000, "it can't be seen that they are two");
    let acknowledged = |world: &World| world.judge_by(&settings).is_acknowledged(PoolChange::Out);
    assert_eq!(acknowledged(&world), Some(false));
    world.pass(8000 - (world.now_ms - began) - 1);
    assert_eq!(acknowledged(&world), Some(false));
    world.pass(1);
    assert_eq!(acknowledged(&world), Some(true));
    // The time alone is not enough: a probe must have come late in it.
    world.cordon(false);
    world.pass_seconds(100);
    world.cordon(true);
    world.pass(5500);
    world.stop(0);
    world.pass(2500);
    assert_eq!(acknowledged(&world), Some(false));
}

/// An agent must have listened for 90 s: since its start, as the next one on a cordoned node has, and since an overflow.
#[test]
fn the_acknowledgement_is_unknown_until_the_agent_knows_its_probers() {
    let mut world = World::new([balancer(1, 2000), balancer(2, 2000)]);
    world.cordon(true);
    world.pass_seconds(60);
    assert_eq!((world.not_known(), world.verdict()), ("listening", Verdict::Draining));
    assert_eq!(world.until_acknowledged(), 30_000);
    world.overflown_ms = Some(world.now_ms);
    world.pass_seconds(89);
    assert_eq!(world.not_known(), "overflown");
    world.pass_seconds(1);
    assert_eq!(world.acknowledged(), Some(true));
}

/// The host says so itself, so balancers acknowledge it without an API server.
#[test]
fn a_shutdown_is_acknowledged_although_the_cache_is_stale() {
    let mut world = World::new([balancer(1, 2000)]);
    world.pass_seconds(200);
    world.proof = false;
    world.pass_seconds(20);
    assert_eq!(world.not_known(), "stale");
    world.host(HostSignals { shutdown: true, ..HostSignals::default() });
    assert!(world.until_acknowledged() <= 8000);
    world.host(HostSignals::default());
    assert_eq!(world.not_known(), "stale");
}

#[test]
fn a_cache_that_goes_stale_tells_nothing() {
    let mut world = two();
    world.cordon(true);
    world.pass_seconds(3);
    world.proof = false;
    world.pass_seconds(20);
    assert_eq!((world.verdict(), world.not_known()), (Verdict::Ready, "stale"), "it fails open");
    world.proof = true;
    world.pass_seconds(1);
    assert_eq!(world.verdict(), Verdict::Draining);
    assert_eq!(world.acknowledged(), Some(false), "the answers of the stale cache came between");
    let took = world.until_acknowledged();
    assert!((6000..=8000).contains(&took), "{took}");
}

#[test]
fn a_prober_that_no_drain_reaches_is_not_waited_for() {
    let mut undrainable = balancer(3, 1000);
    (undrainable.request, undrainable.kind) = ("/health?check=custom_conditions", ProberKind::Other);
    let mut world = World::new([balancer(1, 2000), undrainable]);
    world.pass_seconds(100);
    world.cordon(true);
    assert!(world.until_acknowledged() < 10_000);
    assert_eq!(world.judge().awaited.len(), 1);
    world.stop(0);
    world.pass_seconds(60);
    assert_eq!(world.not_known(), "no_probers");
    world.needs_probers = true;
    assert_eq!(world.not_known(), "too_few", "--balancers says that there is one");
}

#[test]
fn as_many_probers_and_answers_are_needed_as_are_demanded() {
    let mut world = two();
    world.cordon(true);
    world.pass_seconds(10);
    let judge = |world: &World, settings| world.judge_by(&settings).acknowledgement;
    let wanted = |wanted| AckSettings { probers: Some(wanted), ..AckSettings::default() };
    assert_eq!(judge(&world, wanted(2)), Ok(true));
    let too_few = Unknown::TooFew { probers: 2, wanted: 3 };
    assert_eq!(judge(&world, wanted(3)), Err(too_few));
    let ten = AckSettings { fall: 10, rise: 4, ..AckSettings::default() };
    world.pass_seconds(9);
    assert_eq!(judge(&world, ten), Ok(false));
    world.pass_seconds(3);
    assert_eq!(judge(&world, ten), Ok(true));
    world.cordon(false);
    world.pass_seconds(7);
    assert_eq!(judge(&world, ten), Ok(false));
    world.pass_seconds(3);
    assert_eq!(judge(&world, ten), Ok(true));
}

#[test]
fn each_prober_is_told_apart_unless_the_verdict_is_a_guess() {
    let mut world = two();
    world.cordon(true);
    world.pass(5000);
    let each = |world: &World| [0, 1, 2].map(|n| world.judge().of_prober(n));
    assert_eq!(each(&world), [Some(false), Some(true), None]);
    world.proof = false;
    world.pass_seconds(20);
    assert_eq!((each(&world), world.not_known()), ([None; 3], "stale"));
    assert_eq!((world.acknowledged(), world.acknowledged_ready()), (None, None));
}

/// The balancer of a Service without a ready endpoint here gets no other answer when the node comes back.
#[test]
fn on_the_way_back_a_prober_of_a_service_that_is_out_is_not_waited_for() {
    let mut of_service = balancer(2, 20_000);
    of_service.kind = ProberKind::Service { index: 7, sees_drains: true, ignores_label: false };
    let mut world = World::new([balancer(1, 2000), of_service]);
    world.pass_seconds(200);
    world.cordon(true);
    assert!(world.until_acknowledged() < 100_000);
    world.cordon(false);
    world.pass_seconds(10);
    assert_eq!((world.acknowledged_ready(), world.missing()), (Some(false), vec![1]));
    world.services_out = vec![6];
    assert_eq!(world.acknowledged_ready(), Some(false));
    world.services_out = vec![7];
    assert_eq!(world.acknowledged_ready(), Some(true));
    // It is a prober even if nothing asks for its acknowledgement.
    world.stop(0);
    world.pass_seconds(60);
    assert_eq!((world.standing(0), world.judge().awaited.len()), (Standing::Gone, 0));
    assert_eq!(world.acknowledged_ready(), Some(true));
}

/// A streak keeps the interval at which it began. Its delay is told by it for as long as the node is out.
#[test]
fn the_interval_of_an_old_row_counts_until_the_node_comes_back() {
    let mut world = World::new([balancer(1, 10_000)]);
    world.pass_seconds(200);
    world.cordon(true);
    world.pass_seconds(60);
    world.probers[0].every_ms = 1000;
    // Paces are remembered for an hour.
    world.pass_seconds(3700);
    let slowest = |world: &World| world.judge().slowest.unwrap().as_secs();
    assert_eq!(slowest(&world), 10);
    world.cordon(false);
    assert_eq!(slowest(&world), 1);
}

fn labelled(unschedulable: bool) -> Node {
    let Node::Present(facts) = node(unschedulable) else { unreachable!() };
    let label = "node.kubernetes.io/exclude-from-external-load-balancers".to_owned();
    Node::Present(NodeFacts { labels: [(label, String::new())].into(), ..facts })
}

#[test]
fn a_cordon_of_a_node_that_is_out_by_label_is_acknowledged_by_those_whose_answer_it_changes() {
    let mut last_resort = balancer(2, 2000);
    last_resort.request = "/health?excluded=200";
    last_resort.kind = ProberKind::Node { ignores_label: true };
    let mut world = World::new([balancer(1, 1000), last_resort]);
    world.set(labelled(false));
    world.pass_seconds(200);
    // The label alone takes the node out for the first one only.
    assert_eq!((world.acknowledged(), world.judge().awaited.len()), (Some(true), 1));
    assert_eq!([0, 1].map(|n| world.probers[n].heard > 0), [true, false]);
    world.set(labelled(true));
    assert_eq!((world.acknowledged(), world.missing()), (Some(false), vec![1]));
    assert_eq!(world.since_ms(), 0, "the latest signal counts");
    let took = world.until_acknowledged();
    assert!((6000..=8000).contains(&took), "{took}");
    // Without such a prober the second signal asks for nothing.
    world.stop(1);
    world.pass_seconds(100);
    world.set(labelled(false));
    world.pass_seconds(10);
    world.set(labelled(true));
    assert_eq!(world.acknowledged(), Some(true));
}

/// What everybody does who waits, from a node in service to one that is acknowledged and free.
#[test]
fn a_wait_ends_when_its_goal_is_reached_or_can_not_be() {
    use WaitState::{InService, NoProbers, NotKnown, NotReadyForLong, Reached, SessionsNotCounted, Waiting};
    let state = |world: &World, goal| WaitState::of(goal, &world.judge(), Sessions::NotCounted, None);
    let mut world = two();
    assert_eq!(Goal::ALL.map(|goal| state(&world, goal)), [InService, InService, Reached]);
    world.cordon(true);
    world.pass(1000);
    assert_eq!(Goal::ALL.map(|goal| state(&world, goal)), [Waiting; 3]);
    let out_for = |seconds, goal| {
        WaitState::of(goal, &world.judge(), Sessions::Left, Some(Duration::from_secs(seconds)))
    };
    assert_eq!(out_for(60, Goal::Acknowledged), Waiting);
    assert_eq!(out_for(61, Goal::Acknowledged), NotReadyForLong);
    assert_eq!(out_for(61, Goal::Ready), Waiting);
    assert!(world.until_acknowledged() < 60_000);
    assert_eq!(state(&world, Goal::Acknowledged), Reached);
    let released = |sessions| WaitState::of(Goal::Released, &world.judge(), sessions, None);
    assert_eq!(
        [Sessions::NotCounted, Sessions::Unknown, Sessions::Left, Sessions::Ended].map(released),
        [SessionsNotCounted, Waiting, Waiting, Reached]
    );
    world.proof = false;
    world.pass_seconds(20);
    assert_eq!(Goal::ALL.map(|goal| state(&world, goal)), [NotKnown; 3]);
    let mut unprobed = World::new([]);
    unprobed.cordon(true);
    unprobed.pass_seconds(100);
    assert_eq!(state(&unprobed, Goal::Acknowledged), NoProbers);
    assert!(NoProbers.ends_wait() && !NotKnown.ends_wait());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A delay that is as long as the hint says is long enough, whatever the pace was within the last hour.
    #[test]
    fn hints_are_never_shorter_than_the_rule(
        paces in prop::collection::vec((500_u64..40_000, 60_u64..900), 1..5),
        interval_ms in prop::option::of(500_u64..40_000),
    ) {
        let mut world = World::new([balancer(1, 1000)]);
        let settings = AckSettings { interval_ms, ..AckSettings::default() };
        for (every_ms, seconds) in paces {
            world.probers[0].every_ms = every_ms;
            world.pass_seconds(seconds);
        }
        world.pass_seconds(180);
        let hint = world.judge_by(&settings).slowest.map(|slowest| settings.time(PoolChange::Out, slowest));
        world.cordon(true);
        let began = world.now_ms;
        while world.judge_by(&settings).is_acknowledged(PoolChange::Out) != Some(true) {
            let judgement = world.judge_by(&settings);
            for (_, progress) in &judgement.awaited {
                prop_assert_eq!(progress.required, settings.fall + 1);
                prop_assert!(progress.needs <= hint.unwrap(), "{progress:?} {hint:?}");
                prop_assert!(settings.time(PoolChange::Out, judgement.slowest.unwrap()) >= progress.needs);
            }
            prop_assert!(world.now_ms - began < 1_000_000);
            world.pass(50);
        }
        // Its next probe comes within the interval that it has now, which no minute's mean has shown yet; and that the
        // time has passed is seen at a probe.
        let every = u128::from(world.probers[0].every_ms);
        let expected = hint.unwrap().as_millis().max(every * 4) + every;
        prop_assert!(u128::from(world.now_ms - began) <= expected + 100);
    }
}
