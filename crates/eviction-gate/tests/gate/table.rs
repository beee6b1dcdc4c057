//! Holds and their ends, through the API server and the real gate. The rules have their tests beside the code.

use crate::scenario::Scenario;
use nodegate_testbed::stub::{Act, answer};
use nodegate_testbed::{NODE, ProbeReply, until};
use serde_json::json;

#[track_caller]
fn allowed(evicted: &ProbeReply) {
    assert_eq!((evicted.status, evicted.header("warning")), (201, None), "{evicted:?}");
}

#[track_caller]
fn denied(evicted: &ProbeReply, says: &str) {
    assert_eq!(evicted.status, 429, "{evicted:?}");
    let begins =
        format!("admission webhook \"eviction-gate.nodegate.io\" denied the request: node {NODE}: {says}");
    assert!(evicted.json()["message"].as_str().unwrap().starts_with(&begins), "{evicted:?}");
}

#[test]
fn an_eviction_waits_for_the_acknowledgement() {
    let scenario = Scenario::new();
    let gate = scenario.gate("", &[]);
    scenario.sim.cordon(NODE);
    let first = scenario.evict("p");
    denied(&first, "1 of 2 load balancers have acknowledged the drain; waiting for 10.0.0.6 (lb2) /health");
    assert_eq!(first.header("retry-after"), Some("1"));
    gate.wait_for("holding an eviction");
    let held_pods = |count| {
        until("the metric", || (gate.metric("nodegate_gate_held_pods") == count).then_some(()));
    };
    held_pods(1);
    assert!(scenario.sim.get("pods", "default", "p").is_some());
    let held = until("the Event", || scenario.events("Normal").pop());
    assert!(held.starts_with("\"EvictionHeld\": \"node") && held.contains("waiting for 10.0.0.6"), "{held}");
    scenario.agent_says(|said| said["acknowledged"] = json!(true));
    allowed(&scenario.evict("p"));
    gate.wait_for("a held eviction goes on");
    gate.wait_for_reviews("allowed", "acknowledged", 1);
    assert_eq!(gate.metric("nodegate_gate_hold_seconds_count"), 1);
    held_pods(0);
    // Back in the pool: the next drain must be acknowledged again.
    scenario.sim.uncordon(NODE);
    scenario.pod("q");
    allowed(&scenario.evict("q"));
    gate.wait_for_reviews("allowed", "not_draining", 1);
    // Out by its label alone, it is out by design.
    scenario.pod("r");
    assert!(scenario.sim.edit_node(NODE, "test", |node| {
        node["metadata"]["labels"]["node.kubernetes.io/exclude-from-external-load-balancers"] = json!("");
    }));
    allowed(&scenario.evict("r"));
    gate.wait_for_reviews("allowed", "out_by_label", 1);
    assert_eq!(gate.metric("nodegate_gate_unacknowledged_total"), 0);
    assert_eq!(scenario.events("Warning"), [""; 0]);
}

#[test]
fn a_dry_run_gets_the_same_answer_and_changes_nothing() {
    let scenario = Scenario::new();
    let gate = scenario.gate("", &[]);
    scenario.sim.cordon(NODE);
    scenario.pod("q");
    scenario.pod("r");
    denied(&scenario.evict_dry("p"), "1 of 2");
    // Older than --max-hold, by the agent's own date.
    scenario.agent_says(|said| said["since_ms"] = json!(61_000));
    let older = scenario.evict_dry("p");
    assert!(older.header("warning").unwrap().contains("the drain is older than 60s"), "{older:?}");
    scenario.agent_says(|said| said["acknowledged"] = json!(true));
    allowed(&scenario.evict_dry("p"));
    assert!(scenario.sim.get("pods", "default", "p").is_some());
    gate.wait_for_reviews("allowed", "acknowledged", 1);
    assert_eq!(gate.metric("nodegate_gate_hold_seconds_count"), 0);
    assert_eq!(scenario.events("Warning"), [""; 0]);
    assert!(!gate.log().contains("holding an eviction"));
    // Of two evictions that are none, the Node has one Event.
    scenario.agent_says(|said| said["since_ms"] = json!(61_000));
    for name in ["q", "r"] {
        assert!(scenario.evict(name).header("warning").is_some());
    }
    gate.wait_for_reviews("allowed", "max_hold", 3);
    until("the Event", || (scenario.events("Warning").len() == 1).then_some(()));
}

#[test]
fn an_agent_that_cant_be_used_holds() {
    let scenario = Scenario::new();
    let gate = scenario.gate("agent=1000", &[]);
    scenario.sim.cordon(NODE);
    scenario.agent.now(Act::Hang);
    denied(&scenario.evict("p"), "the node's agent does not answer");
    scenario.agent.now(answer("404 Not Found", ""));
    denied(&scenario.evict("p"), "the node's agent does not answer");
    scenario.agent_says(|said| said["uid"] = json!("x"));
    denied(&scenario.evict("p"), "another Node's agent answers at 127.0.0.1");
    for (result, count) in [("unreachable", 2), ("wrong_agent", 1)] {
        let series = format!("nodegate_gate_agent_lookups_total{{result=\"{result}\"}}");
        assert_eq!(gate.metric(&series), count, "{result}");
    }
}
