//! Tests of the probers that an agent takes over from the previous one.

use super::world::{World, balancer};
use nodegate_agent_api::{DrainStatus, Predecessor, ProberRecord, Status};
use nodegate_readiness::Moment;
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{ProbeHistory, Standing};
use std::time::{Duration, SystemTime};

/// Returns the status of an agent that has listened for `seconds`.
fn said(seconds: u64) -> Status {
    let mut world = World::new([balancer(1, 2000), balancer(2, 60_000)]);
    world.pass_seconds(seconds);
    let now = Moment::from_start(Duration::from_millis(world.now_ms));
    let listening_ms = millis(now.since(world.listening_since()));
    let drain = DrainStatus { listening_ms, ..DrainStatus::default() };
    Status { probers: world.records(), drain, ..Status::default() }
}

fn parse(said: &Status) -> Predecessor {
    Predecessor::parse(&serde_json::to_vec(said).unwrap(), "n1", SystemTime::UNIX_EPOCH).unwrap()
}

#[test]
fn those_that_go_on_asking_are_taken_over_with_their_dates() {
    let handover = parse(&said(600));
    assert_eq!(handover.probers.len(), 2);
    assert!(handover.listened.unwrap() >= Duration::from_secs(599));
    let now = Moment::from_start(Duration::from_hours(24));
    let slow = ProbeHistory::taken_over(&handover.probers[1], now).unwrap();
    assert_eq!(slow.standing(now), Standing::Regular);
    assert_eq!(slow.longest_interval(now), Some(Duration::from_mins(1)));
    assert!(now.since(slow.first) > Duration::from_secs(590));
    // Its times lie before the origin.
    let early = ProbeHistory::taken_over(&handover.probers[1], Moment::default()).unwrap();
    assert_eq!(early.first, Moment::default());
}

#[test]
fn an_agent_that_has_not_listened_for_long_does_not_know_all() {
    let handover = parse(&said(170));
    assert_eq!((handover.probers.len(), handover.listened), (2, None));
    let handover = parse(&said(60));
    assert_eq!(handover.probers.len(), 1, "the other may be anybody");
}

#[test]
fn a_prober_whose_numbers_contradict_each_other_is_left() {
    let good = said(600);
    let odd: [fn(&mut ProberRecord); 7] = [
        |prober| prober.last_ms = u64::MAX,
        |prober| prober.regular_ms = Some(u64::MAX),
        // It has paused for 320 s.
        |prober| prober.longest_interval_ms = Some(100_000),
        |prober| prober.interval_ms = Some(u64::MAX),
        |prober| prober.in_a_row = 1000,
        |prober| prober.regular_ms = None,
        |prober| prober.longest_interval_ms = None,
    ];
    for change in odd {
        let mut status = good.clone();
        change(&mut status.probers[0]);
        let found = parse(&status);
        assert_eq!(found.probers, good.probers[1..]);
        assert_eq!(found.listened, None, "it does not know the one that was left");
    }
}
