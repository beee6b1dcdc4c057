//! Tests of the conclusion whether all probers have acknowledged.

use super::world::{World, balancer};
use nodegate_readiness::probers::{
    AckOverrides, Acknowledgement, DRAIN_SUMMARY_BYTES, DrainSummary, Goal, PoolChange, Standing, Traffic,
    Unknown, WaitJudgement, acknowledged,
};
use nodegate_readiness::status::Status;
use nodegate_readiness::{HostSignals, Verdict};
use std::time::Duration;

/// Returns a world of two balancers that have been regular for a while.
fn two() -> World {
    let mut world = World::new([balancer(1, 2000), balancer(2, 1000)]);
    world.pass_seconds(100);
    world
}

fn not_known(world: &World) -> String {
    let drain = world.status().drain.unwrap();
    assert_eq!(drain.acknowledged, None);
    drain.not_known.unwrap()
}

#[test]
fn all_have_acknowledged_when_each_has_asked_once_more_than_it_takes() {
    for every_ms in [200, 2000, 10_000] {
        let mut world = World::new([balancer(1, every_ms), balancer(2, every_ms / 2)]);
        world.pass_seconds(100);
        assert_eq!(world.acknowledged(), Some(false), "nothing takes it out yet");
        assert_eq!(world.status().drain.unwrap().acknowledged_ready, Some(true));
        world.cordon(true);
        let took = world.until_acknowledged(600_000).unwrap();
        // Four probes: within three intervals and the rest of the first.
        assert!(took > 3 * every_ms - 50 && took <= 4 * every_ms + 1000, "{every_ms}: {took}");
        let drain = world.status().drain.unwrap();
        assert_eq!((drain.released, drain.waiting_for.len()), (None, 0));
        assert!(drain.released_not_known.unwrap().contains("--traffic-port"));
        world.cordon(false);
        assert_eq!(world.acknowledged(), Some(false));
        assert_eq!(world.status().drain.unwrap().acknowledged_ready, Some(false));
        world.pass(3 * every_ms + 50);
        assert_eq!(world.status().drain.unwrap().acknowledged_ready, Some(true));
    }
}

/// Envoy asks once a minute while it is idle, so after ninety seconds it may have asked once.
#[test]
fn a_slow_balancer_is_waited_for_from_its_first_probe() {
    let mut world = World::new([balancer(1, 2000), balancer(2, 60_000)]);
    world.cordon(true);
    world.pass_seconds(91);
    assert!(not_known(&world).contains("not known yet whether these probe regularly: 10.0.0.2"));
    world.cordon(false);
    world.pass_seconds(60);
    assert_eq!(world.standing(1), Standing::Regular);
    world.cordon(true);
    let took = world.until_acknowledged(600_000).unwrap();
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
    let waiting_for = world.status().drain.unwrap().waiting_for;
    assert_eq!(waiting_for.len(), 1);
    assert_eq!(waiting_for[0].prober, "10.0.0.1");
    assert!(waiting_for[0].why.starts_with("got it 2 of 4 times, silent for"), "{}", waiting_for[0].why);
    // Ten intervals and half a minute after its last probe.
    let took = world.until_acknowledged(100_000).unwrap();
    assert!((36_000..=42_000).contains(&took), "{took}");
    assert_eq!(world.standing(0), Standing::Gone);
    world.stop(1);
    world.pass_seconds(100);
    assert_eq!(not_known(&world), "no balancer probes this agent regularly");
}

/// nodegate-haproxy switches off the agent-check of a node that it drains.
#[test]
fn an_agent_check_that_is_switched_off_is_gone_at_once() {
    let mut agent_check = balancer(1, 1000);
    agent_check.request = "agent-check lb1";
    let mut other = balancer(2, 1000);
    other.request = "agent-check";
    let mut world = World::new([balancer(1, 2000), agent_check, other]);
    world.pass_seconds(100);
    world.cordon(true);
    world.stop(1);
    let took = world.until_acknowledged(60_000).unwrap();
    assert!((6000..=8000).contains(&took), "{took}");
    assert_eq!(world.status().probers[1].standing, Standing::Gone);
    // The agent-check counts like any other if that address sends no other probes, or these stop, too.
    world.stop(0);
    world.stop(2);
    world.pass_seconds(10);
    let status = world.status();
    let standings: Vec<_> = status.probers.iter().map(|prober| prober.standing).collect();
    assert_eq!(standings, [Standing::Silent; 3]);
}

#[test]
fn a_prober_that_comes_back_must_acknowledge_again() {
    let mut world = two();
    world.cordon(true);
    world.until_acknowledged(60_000).unwrap();
    world.stop(0);
    world.pass_seconds(120);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(true), Standing::Gone));
    world.begin(0);
    world.pass(1);
    assert_eq!((world.acknowledged(), world.standing(0)), (Some(false), Standing::Regular));
    let took = world.until_acknowledged(60_000).unwrap();
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
fn backends_that_name_themselves_acknowledge_one_by_one() {
    const NAMES: [&str; 10] = ["a/n", "b/n", "c/n", "d/n", "e/n", "f/n", "g/n", "h/n", "i/n", "j/n"];
    let backends = NAMES.map(|name| {
        let mut prober = balancer(1, 2000);
        prober.name = Some(name);
        prober.next_ms = u64::from(name.as_bytes()[0] - b'a') * 200;
        prober
    });
    let mut world = World::new(backends);
    world.pass_seconds(100);
    world.cordon(true);
    let took = world.until_acknowledged(60_000).unwrap();
    assert!((7000..=8000).contains(&took), "{took}");
    let status = world.status();
    assert_eq!((status.acknowledged_of(), status.sessions()), ((10, 10), Some(70)));
    world.probers[3].next_ms += 1_000_000;
    world.cordon(false);
    world.cordon(true);
    world.pass_seconds(20);
    let waiting_for = world.status().drain.unwrap().waiting_for;
    assert_eq!(waiting_for.iter().map(|one| one.prober.as_str()).collect::<Vec<_>>(), ["10.0.0.1 lb d/n"]);
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
    let overrides = AckOverrides { interval: Some(Duration::from_secs(2)), ..AckOverrides::default() };
    assert!(world.until_acknowledged(60_000).unwrap() <= 4000, "it can't be seen that they are two");
    assert!(matches!(world.judge(PoolChange::Out, &overrides), Acknowledgement::NotYet { why: Some(_), .. }));
    world.pass(8000 - (world.now_ms - began) - 1);
    assert!(matches!(world.judge(PoolChange::Out, &overrides), Acknowledgement::NotYet { why: Some(_), .. }));
    world.pass(1);
    assert_eq!(world.judge(PoolChange::Out, &overrides), Acknowledgement::Yes { probers: 1 });
}

#[test]
fn the_acknowledgement_is_unknown_after_an_overflow() {
    let mut world = two();
    world.cordon(true);
    world.pass_seconds(10);
    assert_eq!(world.acknowledged(), Some(true));
    world.overflown_ms = Some(world.now_ms);
    world.pass_seconds(89);
    assert!(not_known(&world).contains("the table of probers overflowed"));
    world.pass_seconds(1);
    assert_eq!(world.acknowledged(), Some(true));
}

/// The next agent has seen no probes, and its node is cordoned.
#[test]
fn an_agent_that_is_replaced_must_listen_first() {
    let mut world = World::new([balancer(1, 2000), balancer(2, 2000)]);
    world.cordon(true);
    world.pass_seconds(60);
    assert_eq!(
        not_known(&world),
        "the agent has listened for 60 s of 90 s: it does not know its probers yet"
    );
    assert_eq!(world.status().drain_summary().not_known_code.as_deref(), Some("listening"));
    assert_eq!(world.verdict(), Some(Verdict::Draining));
    assert_eq!(world.until_acknowledged(60_000), Some(30_000));
}

/// The host says so itself, so balancers acknowledge it without an API server.
#[test]
fn a_shutdown_is_acknowledged_although_the_cache_is_stale() {
    let mut world = World::new([balancer(1, 2000)]);
    world.pass_seconds(200);
    world.proof = false;
    world.pass_seconds(20);
    assert!(not_known(&world).contains("stale"));
    world.host(HostSignals { shutdown: true, ..HostSignals::default() });
    assert!(world.until_acknowledged(60_000).is_some_and(|took| took <= 8000));
    let summary = world.status().drain_summary();
    assert!(
        !summary.stale && summary.acknowledged == Some(true) && summary.needs_ms == Some(8000),
        "{summary:?}"
    );
    world.host(HostSignals::default());
    assert!(not_known(&world).contains("stale"));
}

#[test]
fn a_lock_that_does_not_delay_for_long_enough_is_hinted_at() {
    let mut world = World::new([balancer(1, 2000), balancer(2, 10_000)]);
    world.pass_seconds(200);
    let hint = |lock, delay_ms| {
        world.host(HostSignals { shutdown: false, lock, delay_ms });
        world.status().hint.unwrap_or_default().into_owned()
    };
    assert_eq!(hint(true, Some(40_000)), "");
    assert_eq!(hint(true, None), "");
    let short = hint(true, Some(5000));
    assert!(short.contains("at most 5 s, but the slowest load balancer needs 40 s"), "{short}");
    assert!(hint(false, None).contains("holds no lock"));
}

#[test]
fn a_cache_that_goes_stale_tells_nothing() {
    let mut world = two();
    world.cordon(true);
    world.pass_seconds(3);
    world.proof = false;
    world.pass_seconds(20);
    assert_eq!(world.verdict(), Some(Verdict::Ready), "it fails open");
    assert!(not_known(&world).contains("stale"));
    world.proof = true;
    world.pass_seconds(1);
    assert_eq!(world.verdict(), Some(Verdict::Draining));
    assert_eq!(
        world.acknowledged(),
        Some(false),
        "what had acknowledged before the cache was stale is forgotten"
    );
    let took = world.until_acknowledged(60_000).unwrap();
    assert!((6000..=8000).contains(&took), "{took}");
}

#[test]
fn a_prober_that_no_drain_reaches_is_not_waited_for() {
    let mut asks_custom_conditions = balancer(3, 1000);
    asks_custom_conditions.request = "/health?check=custom_conditions";
    asks_custom_conditions.drainable = false;
    let mut world = World::new([balancer(1, 2000), asks_custom_conditions]);
    world.pass_seconds(100);
    world.cordon(true);
    world.until_acknowledged(10_000).unwrap();
    let status = world.status();
    assert_eq!(status.acknowledged_of(), (1, 1));
    assert_eq!(status.probers[1].acknowledged, None);
    let blind = ["10.0.0.3 /health?check=custom_conditions"];
    assert_eq!(status.drain.unwrap().cant_see_drains, blind);
    world.stop(0);
    world.pass_seconds(60);
    assert_eq!(
        not_known(&world),
        "no balancer sends a probe request that a drain changes; 10.0.0.3 /health?check=custom_conditions can't see drains"
    );
}

#[test]
fn as_many_probers_and_answers_are_needed_as_are_demanded() {
    let mut world = two();
    world.cordon(true);
    world.pass_seconds(10);
    let judge = |wanted| {
        world.judge(PoolChange::Out, &AckOverrides { probers: Some(wanted), ..AckOverrides::default() })
    };
    assert_eq!(judge(2), Acknowledgement::Yes { probers: 2 });
    assert_eq!(judge(3), Acknowledgement::Unknown(Unknown::TooFew { probers: 2, wanted: 3 }));
    let ten = AckOverrides { fall: Some(10), ..AckOverrides::default() };
    world.pass_seconds(9);
    assert!(matches!(world.judge(PoolChange::Out, &ten), Acknowledgement::NotYet { .. }));
    world.pass_seconds(3);
    assert_eq!(world.judge(PoolChange::Out, &ten), Acknowledgement::Yes { probers: 2 });
}

/// What `/wait` does for each goal, from a node in service to one that is acknowledged and free.
#[test]
fn a_wait_ends_when_its_goal_is_reached_or_can_not_be() {
    use WaitJudgement::{InService, Over, Waiting};
    let judge = |world: &World, goal| world.status().judge_wait(goal, Duration::ZERO);
    let over = |text: &str| Over(text.to_owned());
    let mut world = two();
    assert_eq!([Goal::Acknowledged, Goal::Released].map(|goal| judge(&world, goal)), [InService, InService]);
    assert_eq!(judge(&world, Goal::Ready), over("ready: 2 balancers"));
    world.cordon(true);
    world.pass(1000);
    let Waiting(why) = judge(&world, Goal::Acknowledged) else { panic!() };
    assert!(
        why.starts_with("10.0.0.1 /health (acknowledged ")
            && why.contains("; 10.0.0.2 /health (acknowledged "),
        "{why}"
    );
    let mut status = world.status();
    status.verdict = Some(Verdict::NotReady);
    assert!(matches!(status.judge_wait(Goal::Acknowledged, Duration::from_mins(1)), Waiting(_)));
    let dead = status.judge_wait(Goal::Acknowledged, Duration::from_secs(61));
    assert_eq!(dead, over("the node has been NotReady for 61 s"));
    assert!(matches!(status.judge_wait(Goal::Ready, Duration::from_secs(61)), Waiting(_)));
    world.until_acknowledged(60_000).unwrap();
    assert_eq!(judge(&world, Goal::Acknowledged), over("acknowledged: 2 balancers"));
    assert!(matches!(judge(&world, Goal::Released), Waiting(why) if why.contains("--traffic-port")));
    let traffic = |established| {
        Some(Traffic { ports: vec![443], established: Some(established), age_ms: Some(500), error: None })
    };
    world.traffic = traffic(14);
    assert_eq!(judge(&world, Goal::Released), Waiting("all acknowledged, but sessions are left".to_owned()));
    world.traffic = traffic(0);
    assert_eq!(judge(&world, Goal::Released), over("released: 2 balancers"));
    world.proof = false;
    world.pass_seconds(20);
    let stale = "the cache is stale: the verdict may be a guess".to_owned();
    assert_eq!(judge(&world, Goal::Acknowledged), Waiting(stale));
    let mut unprobed = World::new([]);
    unprobed.cordon(true);
    unprobed.pass_seconds(100);
    assert_eq!(judge(&unprobed, Goal::Acknowledged), over("no balancer probes this agent regularly"));
    let older = Status { drain: None, ..unprobed.status() };
    assert_eq!(
        acknowledged(&older, PoolChange::Out, &AckOverrides::default()),
        Acknowledgement::Unknown(Unknown::OlderAgent)
    );
}

/// The bound holds for all names, and for long reasons.
#[test]
fn the_summary_of_a_drain_is_bounded() {
    let mut world = World::new((1..=200).map(|number| balancer(number, 10_000)));
    world.pass_seconds(200);
    world.cordon(true);
    world.pass_seconds(1);
    let mut status = world.status();
    let summary = status.drain_summary();
    assert_eq!((summary.waiting_for.len(), summary.acknowledged_probers, summary.probers), (8, 0, 200));
    assert_eq!(summary.waiting_for[0], "10.0.0.1 /health");
    assert_eq!((summary.acknowledged, summary.not_known.as_deref()), (Some(false), None));
    for hostile in ["n".repeat(5000), "\u{1b}\"\\\u{2028}€".repeat(1000)] {
        let drain = status.drain.as_mut().unwrap();
        for one in &mut drain.waiting_for {
            one.prober = hostile.clone();
        }
        drain.not_known = Some(hostile.clone());
        status.uid = Some(hostile.clone());
        status.node = Some("n".repeat(253));
        let json = status.drain_summary().to_json();
        assert!(json.len() < DRAIN_SUMMARY_BYTES, "{}", json.len());
        let read: DrainSummary = serde_json::from_slice(&json).unwrap();
        assert!(read.waiting_for.len() >= 4 && read.not_known.unwrap().ends_with("..."));
    }
}
