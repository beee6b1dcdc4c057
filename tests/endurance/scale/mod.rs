//! One agent in a cluster of one node, and in a cluster of thousands: it must cost the same and answer the
//! same.
//!
//! `cargo test` compares 1 with 200 nodes; `make soak SCALE=5000` compares 1 with 5,000.

mod cost;

use crate::setting;
use cost::{Cost, measure};
use nodegate_testbed::programs;
use std::time::Duration;

/// Returns the figures that exceed those of a cluster of one node by more than the machine's noise.
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
    // The Lease's heartbeat has jitter, so one more may fall into the time.
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
fn an_agent_costs_the_same_with_two_hundred_nodes_as_with_one() {
    let agent = programs::agent();
    let [small, large] = [1, 200].map(|nodes| measure(&agent, nodes, Duration::from_secs(8)));
    println!("{}", Cost::table(&[&small, &large]));
    let grown = flat(&small, &large, false);
    assert!(grown.is_empty(), "{grown:#?}\n{}", Cost::table(&[&small, &large]));
}

/// Runs `make soak SCALE=5000`: `SCALE` is the number of nodes, `SCALE_SECONDS` the time for each cluster,
/// `SCALE_AGENT` the program.
#[test]
#[ignore = "takes minutes: make soak SCALE=5000"]
fn scale() {
    let agent = setting("SCALE_AGENT", programs::agent());
    let nodes = setting("SCALE", 5000);
    let time = Duration::from_secs(setting("SCALE_SECONDS", 120));
    let costs = [1, nodes].map(|nodes| measure(&agent, nodes, time));
    let [small, large] = &costs;
    println!("{}", Cost::table(&[small, large]));
    let grown = flat(small, large, true);
    println!(
        "{} an agent costs the same with 1 node and with {nodes}",
        if grown.is_empty() { "PASS" } else { "FAIL" }
    );
    assert!(grown.is_empty(), "{grown:#?}");
}
