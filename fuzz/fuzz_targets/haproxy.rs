//! HAProxy's output about its servers, and users' annotations.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_haproxy::apply::states::States;
use nodegate_haproxy::plan::annotation::{Balance, Mode, SendProxy, for_port, port, word};
use nodegate_haproxy::plan::facts::{Facts, NodeState, ObservedNode, PortFacts};
use nodegate_haproxy::plan::planner::plan;
use nodegate_haproxy::plan::policy::PlanPolicy;
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, text)) = selector(data) else { return };
    let text = String::from_utf8_lossy(text);
    match which % 5 {
        0 => states(&text),
        1 => annotation(&text, word::<Mode>),
        2 => annotation(&text, word::<Balance>),
        3 => annotation(&text, word::<SendProxy>),
        _ => annotation(&text, port),
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

fn annotation<T>(text: &str, parse: fn(&str) -> Result<T, String>) {
    let facts =
        PortFacts { name: Some("web".to_owned()), port: 80, node_port: 30080, protocol: "TCP".to_owned() };
    if let Err(why) = for_port(text, &facts, parse) {
        assert!(why.len() < 400 && !why.contains(char::is_control), "{why:?}");
    }
}
