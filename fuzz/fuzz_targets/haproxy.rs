//! HAProxy's output about its servers, and users' annotations.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_haproxy::haproxy::state_file::{Known, compose, parse};
use nodegate_haproxy::plan::annotation::{Balance, Mode, SendProxy, WantedPort, for_port};
use nodegate_haproxy::plan::desired::{Desired, PlannedNode, PlannedState};
use nodegate_haproxy::plan::facts::PortFacts;
use nodegate_haproxy::plan::policy::PlanPolicy;
use std::str::FromStr;
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, text)) = selector(data) else { return };
    let text = String::from_utf8_lossy(text);
    match which % 5 {
        0 => states(&text),
        1 => annotation::<Mode>(&text),
        2 => annotation::<Balance>(&text),
        3 => annotation::<SendProxy>(&text),
        _ => annotation::<WantedPort>(&text),
    }
});

/// Checks that for any dump, the state file gives every server its planned state.
fn states(dump: &str) {
    let live = parse(dump);
    assert!(live.len() <= dump.lines().count());
    let states = [PlannedState::Ready, PlannedState::Drain, PlannedState::Maint];
    let nodes = states.iter().enumerate().map(|(n, state)| PlannedNode {
        name: format!("n{n}"),
        address: [127, 0, 0, 1].into(),
        state: *state,
        weight: 100,
        labels: Arc::default(),
    });
    let desired = Desired { nodes: nodes.collect(), ..Desired::default() };
    let known = Known { live: &live, ours: true, asked: true };
    let text = compose(&desired, &known, &PlanPolicy::default().check);
    let again = parse(&text);
    assert!(text.lines().count() <= 2 + desired.nodes.len(), "a line for each server:\n{text}");
    for node in &desired.nodes {
        let key = (desired.names.nodes().to_owned(), node.name.clone());
        let drained_by_agent =
            live.get(&key).is_some_and(|line| line.agent_check && line.state == PlannedState::Drain);
        match again.get(&key) {
            None => assert_eq!(node.state, PlannedState::Ready),
            Some(line) if node.state == PlannedState::Ready && drained_by_agent => {
                assert_eq!(line.state, PlannedState::Drain);
            }
            Some(line) => assert_eq!(line.state, node.state),
        }
    }
}

fn annotation<T: FromStr<Err = &'static str>>(text: &str) {
    let port =
        PortFacts { name: Some("web".to_owned()), port: 80, node_port: 30080, protocol: "TCP".to_owned() };
    if let Err(why) = for_port::<T>(text, &port) {
        let why = why.to_string();
        assert!(why.len() < 400 && !why.contains(char::is_control), "{why:?}");
    }
}
