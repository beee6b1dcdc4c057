//! HAProxy's output about its servers, and users' annotations.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_haproxy::apply::states::States;
use nodegate_haproxy::plan::annotation::{Balance, Mode, SendProxy, WantedPort, for_port};
use nodegate_haproxy::plan::facts::{Facts, NodeState, ObservedNode, PortFacts};
use nodegate_haproxy::plan::planner::plan;
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

/// Checks that for any dump, a state file has at most one line for each server, with the planned address and port.
fn states(dump: &str) {
    let mut states = States::default();
    states.add(dump);
    let node = ObservedNode {
        name: "n".to_owned(),
        state: NodeState::Ready,
        addresses: vec![("InternalIP".to_owned(), [127, 0, 0, 1].into())],
        ..ObservedNode::default()
    };
    let facts = Facts { nodes: [("n".to_owned(), Arc::new(node))].into(), ..Facts::default() };
    let text = states.compose(&plan(&facts, &PlanPolicy::default()));
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert!(lines.len() <= 1, "a line for each server:\n{text}");
    for line in lines {
        let columns: Vec<&str> = line.split(' ').collect();
        assert_eq!((columns.len(), columns[4], columns[18]), (20, "127.0.0.1", "25001"), "{line}");
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
