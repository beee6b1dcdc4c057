//! The agent-check responder, seen from HAProxy.

use crate::scenario::{Scenario, cordoned, facts, ready};
use nodegate_readiness::ConditionStatus;

#[test]
fn one_line_names_both_states_each_time() {
    let server = Scenario::default().serve_agent_check();
    let line = || server.connect().read_to_close();
    assert_eq!(line(), "up ready\n");
    server.set_node(cordoned());
    assert_eq!(line(), "up drain\n");
    server.set_node(facts(ConditionStatus::False, "Kubelet\nup ready"));
    assert_eq!(line(), "down #Kubelet up ready\n");
    server.set_node(facts(ConditionStatus::False, &"é".repeat(500)));
    assert_eq!(line(), format!("down #{}\n", "é".repeat(100)));
    server.set_node(ready());
    assert_eq!(line(), "up ready\n");
    let nameless = Scenario { node_name: None, ..Scenario::default() }.serve_agent_check();
    assert_eq!(nameless.connect().read_to_close(), "down #NODE_NAME is not set\n");
}
