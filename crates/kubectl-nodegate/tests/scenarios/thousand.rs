//! Tests the plugin with a thousand agents.

use crate::crowd::Manner;
use crate::lab::{Lab, out, ready, says};
use std::time::{Duration, Instant};

fn thousand() -> Lab {
    let agent = |number: usize| {
        let node = format!("worker-{number}");
        let manner = match number {
            17 | 170 | 700 => Manner::Hangs,
            3 | 333 => says(&out(&node, "draining", "Unschedulable", 60)),
            _ => says(&ready(&node)),
        };
        (node, manner)
    };
    Lab::new((0..1000).map(agent))
}

/// Queries all agents, and returns the time that it took.
fn asked(lab: &Lab, args: &[&str]) -> Duration {
    let began = Instant::now();
    let said = lab.run(args);
    let took = began.elapsed();
    assert_eq!(said.code, Some(3), "{}", said.err);
    let summary = "1000 nodes: 995 Ready, 2 Draining, 3 unknown";
    assert_eq!(said.out.lines().last(), Some(summary), "{:#?}", said.order());
    assert_eq!(
        said.order()[..6],
        ["worker-17", "worker-170", "worker-700", "worker-3", "worker-333", "worker-0"]
    );
    eprintln!("1,000 agents, three of which hang, {args:?}: {:.1} s", took.as_secs_f64());
    took
}

#[test]
fn three_that_hang_are_rows_and_no_delay() {
    let lab = thousand();
    // The hanging agents take 8 s together; one after the other they would take at least twice as long.
    assert!(asked(&lab, &["--via=node", "--agent-timeout=8s"]) < Duration::from_secs(16));
}

#[test]
#[ignore = "a minute of TLS without optimisation: make plugin-test"]
fn the_same_through_the_api_server() {
    let lab = thousand();
    for via in ["--via=node", "--via=auto", "--via=proxy"] {
        assert!(asked(&lab, &[via, "--agent-timeout=8s"]) < Duration::from_secs(16), "{via}");
    }
}
