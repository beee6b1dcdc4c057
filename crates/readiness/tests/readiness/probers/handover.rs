//! Tests of the probers that an agent takes over from the previous one.

use super::world::{World, balancer};
use nodegate_readiness::Moment;
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{Handover, ProbeHistory, Standing};
use nodegate_readiness::saved_facts::Unusable;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns the status of an agent that has listened for `seconds`.
fn said(seconds: u64) -> Value {
    let mut world = World::new([balancer(1, 2000), balancer(2, 60_000)]);
    world.pass_seconds(seconds);
    let now = Moment::from_start(Duration::from_millis(world.now_ms));
    let listening_ms = millis(now.since(world.listening_since()));
    json!({"node": "n1", "probers": world.records(), "drain": {"listening_ms": listening_ms}})
}

fn parse(said: &Value) -> Result<Handover, Unusable> {
    Handover::parse(said.to_string().as_bytes(), "n1")
}

#[test]
fn those_that_go_on_asking_are_taken_over_with_their_dates() {
    let handover = parse(&said(600)).unwrap();
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
    let handover = parse(&said(170)).unwrap();
    assert_eq!((handover.probers.len(), handover.listened), (2, None));
    let handover = parse(&said(60)).unwrap();
    assert_eq!(handover.probers.len(), 1, "the other may be anybody");
}

#[test]
fn impossible_probers_are_refused() {
    let good = said(600);
    let with = |change: &dyn Fn(&mut Value)| {
        let mut said = good.clone();
        change(&mut said);
        parse(&said).map_err(|error| error.to_string())
    };
    assert!(with(&|_| {}).is_ok());
    for (change, why) in [
        ((|said| said["node"] = json!("n2")) as fn(&mut Value), "it is about the node \"n2\""),
        (|said| said["probers"] = json!(17), "it is not what an agent writes"),
        (|said| said["probers"][0]["last_ms"] = json!(-5), "it is not what an agent writes"),
        (|said| said["probers"][0]["last_ms"] = json!(u64::MAX), "what it says of prober 10.0.0.1 can't be"),
        (
            |said| said["probers"][0]["regular_ms"] = json!(u64::MAX),
            "what it says of prober 10.0.0.1 can't be",
        ),
        (|said| said["probers"][1]["longest_interval_ms"] = json!(100_000), "of prober 10.0.0.2 can't be"),
        (|said| said["probers"][1]["interval_ms"] = json!(u64::MAX), "of prober 10.0.0.2 can't be"),
        (|said| said["probers"][1]["in_a_row"] = json!(1000), "of prober 10.0.0.2 can't be"),
        (|said| said["probers"] = vec![said["probers"][0].clone(); 600].into(), "it has 600 probers"),
    ] {
        let error = with(&change).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    let foreign = Handover::parse(b"<html>", "n1").unwrap_err().to_string();
    assert_eq!(foreign, "it is not what an agent writes (line 1, column 1)");
}
