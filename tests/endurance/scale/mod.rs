//! One agent in a cluster of one node, and in a cluster of thousands: it must cost the same, and be told the same.
//!
//! `cargo test` compares 1 with 200 nodes; `make scale` compares 1 with 5,000, and reckons what whole clusters cost.

mod bill;
mod cost;

use crate::setting;
use cost::{Cost, measure};
use nodegate_testbed::programs;
use std::time::Duration;

/// More of anything than a cluster of one costs, by more than the machine's own unrest, is growth.
fn flat(small: &Cost, large: &Cost, cpu: bool) -> Vec<String> {
    let mut grown = Vec::new();
    let mut compare = |what: &str, small: f64, large: f64, most: f64| {
        if large > most {
            grown.push(format!("{what}: {small:.1} with {} node, {large:.1} with {}", 1, "many"));
        }
    };
    let kib = |value: u64| value as f64;
    compare(
        "anonymous KiB",
        kib(small.anonymous_kib),
        kib(large.anonymous_kib),
        kib(small.anonymous_kib) + 256.0,
    );
    compare(
        "bytes of the first answers",
        kib(small.first_bytes),
        kib(large.first_bytes),
        kib(small.first_bytes) * 1.2,
    );
    // The heartbeat of the Lease is jittered, and one more may fall into the time.
    compare(
        "bytes a minute",
        small.bytes_a_minute(),
        large.bytes_a_minute(),
        small.bytes_a_minute() * 1.5 + 3000.0,
    );
    compare("requests", kib(small.requests), kib(large.requests), kib(small.requests) + 1.0);
    if cpu {
        let (one, many) = (small.cpu_ms_a_minute(), large.cpu_ms_a_minute());
        compare("processor ms a minute", one, many, one * 2.0 + 10.0);
    }
    grown
}

#[test]
fn two_hundred_nodes_cost_an_agent_what_one_does() {
    let agent = programs::agent();
    let [small, large] = [1, 200].map(|nodes| measure(&agent, nodes, Duration::from_secs(8)));
    println!("{}", Cost::table(&[&small, &large]));
    let grown = flat(&small, &large, false);
    assert!(grown.is_empty(), "{grown:#?}\n{}", Cost::table(&[&small, &large]));
}

/// `make scale`: `SCALE` is how many nodes, `SCALE_SECONDS` for how long each cluster is looked at, `SCALE_AGENT` the program.
#[test]
#[ignore = "takes minutes: make scale"]
fn scale() {
    let agent = setting("SCALE_AGENT", programs::agent());
    let nodes = setting("SCALE", 5000);
    let time = Duration::from_secs(setting("SCALE_SECONDS", 120));
    let costs = [1, nodes].map(|nodes| measure(&agent, nodes, time));
    let [small, large] = &costs;
    println!("{}", Cost::table(&[small, large]));
    println!("{}", bill::table(large));
    let grown = flat(small, large, true);
    println!(
        "{} an agent costs the same with 1 node and with {nodes}",
        if grown.is_empty() { "PASS" } else { "FAIL" }
    );
    assert!(grown.is_empty(), "{grown:#?}");
}
