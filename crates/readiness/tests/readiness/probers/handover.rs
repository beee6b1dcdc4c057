//! Tests of the probers that an agent takes over from the previous one.

use super::scenario::{Scenario, balancer};
use nodegate_agent_api::Predecessor;
use nodegate_readiness::Moment;
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::{ProbeHistory, Standing};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// Returns the status of an agent that has listened for `seconds`.
fn status_after(seconds: u64) -> Value {
    let mut scenario = Scenario::new([balancer(1, 2000), balancer(2, 60_000)]);
    scenario.pass_seconds(seconds);
    let now = Moment::from_start(Duration::from_millis(scenario.now_ms));
    let listening_ms = millis(now.since(scenario.listening_since()));
    json!({"node": "n1", "probers": scenario.records(), "drain": {"listening_ms": listening_ms}})
}

fn parse(status: &Value) -> Result<Predecessor, String> {
    Predecessor::parse(status.to_string().as_bytes(), "n1", SystemTime::UNIX_EPOCH)
}

#[test]
fn those_that_go_on_asking_are_taken_over_with_their_dates() {
    let handover = parse(&status_after(600)).unwrap();
    assert_eq!(handover.probers.len(), 2);
    assert!(handover.listened.unwrap() >= Duration::from_secs(599));
    let now = Moment::from_start(Duration::from_hours(24));
    let slow = ProbeHistory::taken_over(&handover.probers[1], now).unwrap();
    assert_eq!(slow.standing(now), Standing::Regular);
    assert_eq!(slow.longest_interval(now), Some(Duration::from_mins(1)));
    assert!(now.since(slow.first) > Duration::from_secs(590));
    // Its times lie before the origin.
    let early = ProbeHistory::taken_over(&handover.probers[1], Moment::default()).unwrap();
    assert!(Moment::default().since(early.first) > Duration::from_secs(590));
}

#[test]
fn an_agent_that_has_not_listened_for_long_does_not_know_all() {
    let handover = parse(&status_after(170)).unwrap();
    assert_eq!((handover.probers.len(), handover.listened), (2, None));
    let handover = parse(&status_after(60)).unwrap();
    assert_eq!(handover.probers.len(), 1, "the other may be anybody");
}

/// Ten of twenty probers have a record that no agent writes.
#[test]
fn each_record_is_taken_or_left_by_itself() {
    let good = status_after(600);
    let odd: [fn(&mut Value); 10] = [
        |prober| *prober = json!(17),
        |prober| prober["address"] = json!(10),
        |prober| prober["last_ms"] = json!(-5),
        |prober| prober["last_ms"] = json!(u64::MAX),
        |prober| prober["regular_ms"] = json!(u64::MAX),
        // It has paused for 320 s.
        |prober| prober["longest_interval_ms"] = json!(100_000),
        |prober| prober["interval_ms"] = json!(u64::MAX),
        |prober| prober["in_a_row"] = json!(1000),
        |prober| drop(prober.as_object_mut().unwrap().remove("regular_ms")),
        |prober| drop(prober.as_object_mut().unwrap().remove("longest_interval_ms")),
    ];
    let mut all = Vec::new();
    for change in odd {
        let mut prober = good["probers"][0].clone();
        all.push(prober.clone());
        change(&mut prober);
        all.push(prober);
    }
    let mut status = good.clone();
    status["probers"] = all.into();
    let found = parse(&status).unwrap();
    assert_eq!((found.probers.len(), found.not_taken.as_deref()), (10, Some("10 of 20 probers")));
    assert_eq!(found.listened, None, "it does not know those that were left");
    // More than an agent remembers.
    status["probers"] = vec![good["probers"][0].clone(); 600].into();
    assert_eq!(parse(&status).unwrap().probers.len(), 512);
    let mut older = good.clone();
    older.as_object_mut().unwrap().remove("drain");
    assert!(parse(&older).unwrap().probers.is_empty());
    let foreign = Predecessor::parse(b"<html>", "n1", SystemTime::UNIX_EPOCH).unwrap_err();
    assert_eq!(foreign, "it is not what an agent writes (line 1, column 1)");
}
