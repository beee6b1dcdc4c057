//! Feeds random text to the parsers of HAProxy's words about its servers, and of annotations, for property tests.

use crate::haproxy::states::States;
use crate::plan::{
    Balance, Facts, Mode, ObservedNode, PlanPolicy, PortFacts, SendProxy, for_port, parse_port, parse_word,
    plan,
};

/// Returns true if a state file made of this dump has at most one line for each server, with the planned address and port.
pub(crate) fn states(dump: &str) -> bool {
    let mut states = States::default();
    states.add(dump);
    let addresses = vec![("InternalIP".to_owned(), [127, 0, 0, 1].into())];
    let node = ObservedNode { name: "n".to_owned(), addresses, ..ObservedNode::default() };
    let text = states.compose(&plan(&Facts::of([node], []), &PlanPolicy::default()));
    let lines: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split(' ').collect()).collect();
    let is_planned = |line: &Vec<&str>| {
        (line.len(), line.get(4), line.get(18)) == (20, Some(&"127.0.0.1"), Some(&"25001"))
    };
    lines.len() <= 1 && lines.iter().all(is_planned)
}

/// Returns true if this annotation is read, or refused in one short line.
pub(crate) fn annotation(text: &str) -> bool {
    let facts =
        PortFacts { name: Some("web".to_owned()), port: 80, node_port: 30080, protocol: "TCP".to_owned() };
    let refused = [
        for_port(text, &facts, parse_word::<Mode>).err(),
        for_port(text, &facts, parse_word::<Balance>).err(),
        for_port(text, &facts, parse_word::<SendProxy>).err(),
        for_port(text, &facts, parse_port).err(),
    ];
    refused.into_iter().flatten().all(|why| why.len() < 400 && !why.contains(char::is_control))
}
