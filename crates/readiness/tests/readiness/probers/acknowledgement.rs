//! Tests of the judgement whether all probers have acknowledged.

use super::scenario::{Scenario, balancer};
use crate::scenario::node;
use nodegate_readiness::probers::{
    AckSettings, Goal, PoolChange, ProberKind, Sessions, Standing, Unknown, WaitState,
};
use nodegate_readiness::{HostSignals, Node, NodeFacts, Verdict};
use proptest::prelude::*;
use std::time::Duration;

fn two() -> Scenario {
    let mut scenario = Scenario::new([balancer(1, 2000), balancer(2, 1000)]);
    scenario.pass_seconds(100);
    scenario
}

#[test]
fn all_have_acknowledged_when_each_has_asked_once_more_than_it_takes() {
    for every_ms in [200, 2000, 10_000] {
        let mut scenario = Scenario::new([balancer(1, every_ms), balancer(2, every_ms / 2)]);
        scenario.pass_seconds(100);
        assert_eq!((scenario.acknowledged(), scenario.acknowledged_ready()), (Some(false), Some(true)));
        scenario.cordon(true);
        let took = scenario.until_acknowledged();
        // Four probes: within three intervals and the rest of the first.
        assert!(took > 3 * every_ms - 50 && took <= 4 * every_ms + 1000, "{every_ms}: {took}");
        assert!(scenario.missing().is_empty());
        scenario.cordon(false);
        assert_eq!((scenario.acknowledged(), scenario.acknowledged_ready()), (Some(false), Some(false)));
        scenario.pass(3 * every_ms + 50);
        assert_eq!(scenario.acknowledged_ready(), Some(true));
    }
}

/// Envoy asks once a minute while it is idle, so after ninety seconds it may have asked once.
#[test]
fn a_slow_balancer_is_waited_for_from_its_first_probe() {
    let mut scenario = Scenario::new([balancer(1, 2000), balancer(2, 60_000)]);
    scenario.cordon(true);
    scenario.pass_seconds(91);
    assert_eq!(scenario.judge().acknowledgement, Err(Unknown::Undecided(vec![1])));
    scenario.cordon(false);
    scenario.pass_seconds(60);
    assert_eq!(scenario.standing(1), Standing::Regular);
    scenario.cordon(true);
    let took = scenario.until_acknowledged();
    assert!((180_000..=241_000).contains(&took), "{took}");
}

#[test]
fn one_that_falls_silent_is_waited_for_until_it_is_gone() {
    let mut scenario = two();
    scenario.cordon(true);
    scenario.pass(3000);
    scenario.stop(0);
    scenario.pass_seconds(10);
    assert_eq!((scenario.acknowledged(), scenario.standing(0)), (Some(false), Standing::Silent));
    assert_eq!(scenario.missing(), [0]);
    // Ten intervals and half a minute after its last probe.
    let took = scenario.until_acknowledged();
    assert!((36_000..=42_000).contains(&took), "{took}");
    assert_eq!(scenario.standing(0), Standing::Gone);
    scenario.stop(1);
    scenario.pass_seconds(100);
    assert_eq!(scenario.not_known(), "no_probers");
}

#[test]
fn a_prober_that_comes_back_must_acknowledge_again() {
    let mut scenario = two();
    scenario.cordon(true);
    assert!(scenario.until_acknowledged() < 60_000);
    scenario.stop(0);
    scenario.pass_seconds(120);
    assert_eq!((scenario.acknowledged(), scenario.standing(0)), (Some(true), Standing::Gone));
    scenario.begin(0);
    scenario.pass(1);
    assert_eq!((scenario.acknowledged(), scenario.standing(0)), (Some(false), Standing::Regular));
    let took = scenario.until_acknowledged();
    assert!((5900..=6100).contains(&took), "{took}");
}

#[test]
fn a_short_restart_breaks_no_row() {
    let mut scenario = two();
    scenario.cordon(true);
    scenario.pass(5000);
    scenario.stop(0);
    scenario.pass(6000);
    scenario.begin(0);
    scenario.pass(4000);
    assert_eq!(scenario.acknowledged(), Some(true));
}

#[test]
fn behind_one_address_the_interval_must_be_set() {
    // Two HAProxies, each with a probe every two seconds, look like one with a probe every second.
    let mut both = balancer(1, 1000);
    both.request = "/health?drain=503";
    let mut scenario = Scenario::new([both]);
    scenario.pass_seconds(100);
    scenario.cordon(true);
    let began = scenario.now_ms;
    let settings = AckSettings { interval_ms: Some(2000), ..AckSettings::default() };
    assert!(scenario.until_acknowledged() <= 4000, "it can't be seen that they are two");
    let acknowledged = |scenario: &Scenario| scenario.judge_by(&settings).is_acknowledged(PoolChange::Out);
    assert_eq!(acknowledged(&scenario), Some(false));
    scenario.pass(8000 - (scenario.now_ms - began) - 1);
    assert_eq!(acknowledged(&scenario), Some(false));
    scenario.pass(1);
    assert_eq!(acknowledged(&scenario), Some(true));
    // The time alone is not enough: a probe must have come late in it.
    scenario.cordon(false);
    scenario.pass_seconds(100);
    scenario.cordon(true);
    scenario.pass(5500);
    scenario.stop(0);
    scenario.pass(2500);
    assert_eq!(acknowledged(&scenario), Some(false));
}

/// An agent must have listened for 90 s: since its start, as the next one on a cordoned node has, and since an overflow.
#[test]
fn the_acknowledgement_is_unknown_until_the_agent_knows_its_probers() {
    let mut scenario = Scenario::new([balancer(1, 2000), balancer(2, 2000)]);
    scenario.cordon(true);
    scenario.pass_seconds(60);
    assert_eq!((scenario.not_known(), scenario.verdict()), ("listening", Verdict::Draining));
    assert_eq!(scenario.until_acknowledged(), 30_000);
    scenario.overflown_ms = Some(scenario.now_ms);
    scenario.pass_seconds(89);
    assert_eq!(scenario.not_known(), "overflown");
    scenario.pass_seconds(1);
    assert_eq!(scenario.acknowledged(), Some(true));
}

/// The host says so itself, so balancers acknowledge it without an API server.
#[test]
fn a_shutdown_is_acknowledged_although_the_cache_is_stale() {
    let mut scenario = Scenario::new([balancer(1, 2000)]);
    scenario.pass_seconds(200);
    scenario.proof = false;
    scenario.pass_seconds(20);
    assert_eq!(scenario.not_known(), "stale");
    scenario.host(HostSignals { shutdown: true, ..HostSignals::default() });
    assert!(scenario.until_acknowledged() <= 8000);
    scenario.host(HostSignals::default());
    assert_eq!(scenario.not_known(), "stale");
}

#[test]
fn a_cache_that_goes_stale_tells_nothing() {
    let mut scenario = two();
    scenario.cordon(true);
    scenario.pass_seconds(3);
    scenario.proof = false;
    scenario.pass_seconds(20);
    assert_eq!((scenario.verdict(), scenario.not_known()), (Verdict::Ready, "stale"), "it fails open");
    scenario.proof = true;
    scenario.pass_seconds(1);
    assert_eq!(scenario.verdict(), Verdict::Draining);
    assert_eq!(scenario.acknowledged(), Some(false), "the answers of the stale cache came between");
    let took = scenario.until_acknowledged();
    assert!((6000..=8000).contains(&took), "{took}");
}

#[test]
fn a_prober_that_no_drain_reaches_is_not_waited_for() {
    let mut undrainable = balancer(3, 1000);
    (undrainable.request, undrainable.kind) = ("/health?check=custom_conditions", ProberKind::Other);
    let mut scenario = Scenario::new([balancer(1, 2000), undrainable]);
    scenario.pass_seconds(100);
    scenario.cordon(true);
    assert!(scenario.until_acknowledged() < 10_000);
    assert_eq!(scenario.judge().awaited.len(), 1);
    scenario.stop(0);
    scenario.pass_seconds(60);
    assert_eq!(scenario.not_known(), "no_probers");
    scenario.needs_probers = true;
    assert_eq!(scenario.not_known(), "too_few", "--balancers says that there is one");
}

#[test]
fn as_many_probers_and_answers_are_needed_as_are_demanded() {
    let mut scenario = two();
    scenario.cordon(true);
    scenario.pass_seconds(10);
    let judge = |scenario: &Scenario, settings| scenario.judge_by(&settings).acknowledgement;
    let wanted = |wanted| AckSettings { probers: Some(wanted), ..AckSettings::default() };
    assert_eq!(judge(&scenario, wanted(2)), Ok(true));
    let too_few = Unknown::TooFew { probers: 2, wanted: 3 };
    assert_eq!(judge(&scenario, wanted(3)), Err(too_few));
    let ten = AckSettings { fall: 10, rise: 4, ..AckSettings::default() };
    scenario.pass_seconds(9);
    assert_eq!(judge(&scenario, ten), Ok(false));
    scenario.pass_seconds(3);
    assert_eq!(judge(&scenario, ten), Ok(true));
    scenario.cordon(false);
    scenario.pass_seconds(7);
    assert_eq!(judge(&scenario, ten), Ok(false));
    scenario.pass_seconds(3);
    assert_eq!(judge(&scenario, ten), Ok(true));
}

#[test]
fn each_prober_is_told_apart_unless_the_verdict_is_a_guess() {
    let mut scenario = two();
    scenario.cordon(true);
    scenario.pass(5000);
    let each = |scenario: &Scenario| [0, 1, 2].map(|n| scenario.judge().of_prober(n));
    assert_eq!(each(&scenario), [Some(false), Some(true), None]);
    scenario.proof = false;
    scenario.pass_seconds(20);
    assert_eq!((each(&scenario), scenario.not_known()), ([None; 3], "stale"));
    assert_eq!((scenario.acknowledged(), scenario.acknowledged_ready()), (None, None));
}

/// The balancer of a Service without a ready endpoint here gets no other answer when the node comes back.
#[test]
fn on_the_way_back_a_prober_of_a_service_that_is_out_is_not_waited_for() {
    let mut of_service = balancer(2, 20_000);
    of_service.kind = ProberKind::Service { index: 7, sees_drains: true, ignores_label: false };
    let mut scenario = Scenario::new([balancer(1, 2000), of_service]);
    scenario.pass_seconds(200);
    scenario.cordon(true);
    assert!(scenario.until_acknowledged() < 100_000);
    scenario.cordon(false);
    scenario.pass_seconds(10);
    assert_eq!((scenario.acknowledged_ready(), scenario.missing()), (Some(false), vec![1]));
    scenario.services_out = vec![6];
    assert_eq!(scenario.acknowledged_ready(), Some(false));
    scenario.services_out = vec![7];
    assert_eq!(scenario.acknowledged_ready(), Some(true));
    // It is a prober even if nothing asks for its acknowledgement.
    scenario.stop(0);
    scenario.pass_seconds(60);
    assert_eq!((scenario.standing(0), scenario.judge().awaited.len()), (Standing::Gone, 0));
    assert_eq!(scenario.acknowledged_ready(), Some(true));
}

/// A streak keeps the interval at which it began. Its delay is told by it for as long as the node is out.
#[test]
fn the_interval_of_an_old_row_counts_until_the_node_comes_back() {
    let mut scenario = Scenario::new([balancer(1, 10_000)]);
    scenario.pass_seconds(200);
    scenario.cordon(true);
    scenario.pass_seconds(60);
    scenario.probers[0].every_ms = 1000;
    // Paces are remembered for an hour.
    scenario.pass_seconds(3700);
    let slowest = |scenario: &Scenario| scenario.judge().slowest.unwrap().as_secs();
    assert_eq!(slowest(&scenario), 10);
    scenario.cordon(false);
    assert_eq!(slowest(&scenario), 1);
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
    let mut scenario = Scenario::new([balancer(1, 1000), last_resort]);
    scenario.set(labelled(false));
    scenario.pass_seconds(200);
    // The label alone takes the node out for the first one only.
    assert_eq!((scenario.acknowledged(), scenario.judge().awaited.len()), (Some(true), 1));
    assert_eq!([0, 1].map(|n| scenario.probers[n].heard > 0), [true, false]);
    scenario.set(labelled(true));
    assert_eq!((scenario.acknowledged(), scenario.missing()), (Some(false), vec![1]));
    assert_eq!(scenario.since_ms(), 0, "the latest signal counts");
    let took = scenario.until_acknowledged();
    assert!((6000..=8000).contains(&took), "{took}");
    // Without such a prober the second signal asks for nothing.
    scenario.stop(1);
    scenario.pass_seconds(100);
    scenario.set(labelled(false));
    scenario.pass_seconds(10);
    scenario.set(labelled(true));
    assert_eq!(scenario.acknowledged(), Some(true));
}

/// What everybody does who waits, from a node in service to one that is acknowledged and free.
#[test]
fn a_wait_ends_when_its_goal_is_reached_or_can_not_be() {
    use WaitState::{InService, NoProbers, NotKnown, NotReadyForLong, Reached, SessionsNotCounted, Waiting};
    let state =
        |scenario: &Scenario, goal| WaitState::of(goal, &scenario.judge(), Sessions::NotCounted, None);
    let mut scenario = two();
    assert_eq!(Goal::ALL.map(|goal| state(&scenario, goal)), [InService, InService, Reached]);
    scenario.cordon(true);
    scenario.pass(1000);
    assert_eq!(Goal::ALL.map(|goal| state(&scenario, goal)), [Waiting; 3]);
    let out_for = |seconds, goal| {
        WaitState::of(goal, &scenario.judge(), Sessions::Left, Some(Duration::from_secs(seconds)))
    };
    assert_eq!(out_for(60, Goal::Acknowledged), Waiting);
    assert_eq!(out_for(61, Goal::Acknowledged), NotReadyForLong);
    assert_eq!(out_for(61, Goal::Ready), Waiting);
    assert!(scenario.until_acknowledged() < 60_000);
    assert_eq!(state(&scenario, Goal::Acknowledged), Reached);
    let released = |sessions| WaitState::of(Goal::Released, &scenario.judge(), sessions, None);
    assert_eq!(
        [Sessions::NotCounted, Sessions::Unknown, Sessions::Left, Sessions::Ended].map(released),
        [SessionsNotCounted, Waiting, Waiting, Reached]
    );
    scenario.proof = false;
    scenario.pass_seconds(20);
    assert_eq!(Goal::ALL.map(|goal| state(&scenario, goal)), [NotKnown; 3]);
    let mut unprobed = Scenario::new([]);
    unprobed.cordon(true);
    assert_eq!(state(&unprobed, Goal::Acknowledged), NotKnown, "it still listens");
    unprobed.pass_seconds(100);
    assert_eq!(Goal::ALL.map(|goal| state(&unprobed, goal)), [NoProbers, NoProbers, Waiting]);
    assert!(NoProbers.ends_wait() && !NotKnown.ends_wait());
    assert!(InService.is_in_service() && !NoProbers.is_in_service());
    assert_eq!(Goal::ALL.map(Goal::as_str), ["acknowledged", "released", "ready"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// A delay that is as long as the hint says is long enough, whatever the pace was within the last hour.
    #[test]
    fn hints_are_never_shorter_than_the_rule(
        paces in prop::collection::vec((500_u64..40_000, 60_u64..900), 1..5),
        interval_ms in prop::option::of(500_u64..40_000),
    ) {
        let mut scenario = Scenario::new([balancer(1, 1000)]);
        let settings = AckSettings { interval_ms, ..AckSettings::default() };
        for (every_ms, seconds) in paces {
            scenario.probers[0].every_ms = every_ms;
            scenario.pass_seconds(seconds);
        }
        scenario.pass_seconds(180);
        let hint = scenario.judge_by(&settings).slowest.map(|slowest| settings.time(PoolChange::Out, slowest));
        scenario.cordon(true);
        let began = scenario.now_ms;
        while scenario.judge_by(&settings).is_acknowledged(PoolChange::Out) != Some(true) {
            let judgement = scenario.judge_by(&settings);
            for (_, progress) in &judgement.awaited {
                prop_assert_eq!(progress.required, settings.fall + 1);
                prop_assert!(progress.needs <= hint.unwrap(), "{progress:?} {hint:?}");
                prop_assert!(settings.time(PoolChange::Out, judgement.slowest.unwrap()) >= progress.needs);
            }
            prop_assert!(scenario.now_ms - began < 1_000_000);
            scenario.pass(50);
        }
        // Its next probe comes within the interval that it has now, which no minute's mean has shown yet; and that the
        // time has passed is seen at a probe.
        let every = u128::from(scenario.probers[0].every_ms);
        let expected = hint.unwrap().as_millis().max(every * 4) + every;
        prop_assert!(u128::from(scenario.now_ms - began) <= expected + 100);
    }
}
