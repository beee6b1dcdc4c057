//! The fleet of a thousand agents.

use crate::crowd::Behaviour;
use crate::lab::{Lab, out, ready, says};
use std::time::{Duration, Instant};

fn thousand() -> Lab {
    let agent = |number: usize| {
        let node = format!("worker-{number}");
        let behaviour = match number {
            17 | 170 | 700 => Behaviour::Hangs,
            3 | 333 => says(&out(&node, "draining", "Unschedulable", 60)),
            _ => says(&ready(&node)),
        };
        (node, behaviour)
    };
    Lab::new((0..1000).map(agent))
}

#[test]
fn three_hanging_agents_are_rows_and_delay_no_others() {
    let lab = thousand();
    let began = Instant::now();
    let said = lab.run(&["--via=node", "--agent-timeout=20s"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    let summary = "1000 nodes: 995 Ready, 2 Draining, 3 unknown";
    assert_eq!(said.out.lines().last(), Some(summary), "{:#?}", said.order());
    assert_eq!(
        said.order()[..6],
        ["worker-17", "worker-170", "worker-700", "worker-3", "worker-333", "worker-0"]
    );
    // The hanging agents take 20 s together; one after the other they would take three times as long.
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}
