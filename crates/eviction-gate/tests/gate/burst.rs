//! Many evictions at the same time.

use crate::scenario::{Scenario, evict};
use nodegate_testbed::stub::Act;
use nodegate_testbed::{NODE, ProbeReply, pods, until};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

const NODES: usize = 80;
/// As many as two full nodes have: more reviews than the gate decides at the same time.
const PODS: usize = 220;

/// Evicts all of these pods at the same time.
fn all(scenario: &Scenario, names: &[String]) -> Vec<ProbeReply> {
    let api = scenario.sim.address();
    thread::scope(|scope| {
        let each: Vec<_> = names.iter().map(|name| scope.spawn(move || evict(api, name, ""))).collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// With more drains than lookups of agents at a time, the others are held, too.
#[test]
fn beyond_sixty_four_agents_at_a_time_evictions_are_held() {
    let scenario = Scenario::new();
    let gate = scenario.gate("agent=1000", &[]);
    scenario.agent.now(Act::Hang);
    let mut names = Vec::new();
    for number in 0..NODES {
        let node = format!("busy{number}");
        scenario.sim.add_node(&node);
        scenario.sim.set_addresses(&node, &["127.0.0.1"]);
        scenario.sim.cordon(&node);
        pods::create(&scenario.sim, &node, &format!("p{number}"), "app");
        names.push(format!("p{number}"));
    }
    until("more than sixty-four at a time", || {
        let held = all(&scenario, &names);
        assert!(held.iter().all(|one| one.status == 429), "{:?}", held.iter().find(|one| one.status != 429));
        let overloaded = held.iter().filter(|one| one.body.contains("too many drains at once")).count();
        (overloaded > 0).then_some(())
    });
    assert!(gate.reviews_of("denied", "overloaded") >= 1);
    assert!(gate.metric("nodegate_gate_agent_lookups_total{result=\"overloaded\"}") >= 1);
}

#[test]
fn all_pods_of_a_node_wait_at_the_same_time() {
    let scenario = Scenario::new();
    let gate = scenario.gate("", &["--max-hold=1h"]);
    scenario.sim.cordon(NODE);
    let names: Vec<_> = (0..PODS).map(|number| format!("p{number}")).collect();
    for name in &names {
        scenario.pod(name);
    }
    let codes = || all(&scenario, &names).iter().map(|one| one.status).collect::<Vec<_>>();
    assert_eq!(codes(), [429; PODS]);
    scenario.agent_says(|said| said["acknowledged"] = json!(true));
    assert_eq!(codes(), [201; PODS], "{}", gate.log());
    assert_eq!(gate.metric("nodegate_gate_unacknowledged_total"), 0);
}

/// What the gate costs an eviction that it does not hold.
#[test]
#[ignore = "measures: make drains"]
fn an_eviction_without_a_drain_takes_at_most_fifty_milliseconds_more() {
    const EVICTIONS: usize = 500;
    let scenario = Scenario::new();
    let measure = |prefix: &str| {
        let mut times: Vec<Duration> = Vec::new();
        for number in 0..EVICTIONS {
            let name = format!("{prefix}{number}");
            scenario.pod(&name);
            let began = Instant::now();
            assert_eq!(scenario.evict(&name).status, 201);
            times.push(began.elapsed());
        }
        times.sort();
        (times[EVICTIONS / 2], times[EVICTIONS * 99 / 100])
    };
    let without = measure("without");
    let _gate = scenario.gate("agent=1000,review=2500", &[]);
    let with = measure("with");
    println!("| evictions on a node that does not drain | p50 | p99 |\n|---|---|---|");
    for (name, (half, most)) in [("without the gate", without), ("with the gate", with)] {
        println!("| {name} | {:.1} ms | {:.1} ms |", half.as_secs_f64() * 1e3, most.as_secs_f64() * 1e3);
    }
    let delay = with.1.saturating_sub(without.1);
    assert!(delay <= Duration::from_millis(50), "p99 is {delay:?} later");
}
