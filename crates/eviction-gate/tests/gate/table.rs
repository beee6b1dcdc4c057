//! Each row of the rules, through the API server and the real gate.

use crate::lab::{Evicted, Lab};
use nodegate_testbed::stub::{Act, answer};
use nodegate_testbed::{NODE, until};
use serde_json::{Value, json};

/// Why, what it says, and what makes the agent like that.
type Row<'a> = (&'a str, &'a str, Box<dyn Fn() + 'a>);

#[track_caller]
fn allowed(evicted: &Evicted) {
    assert_eq!((evicted.code, &evicted.warning), (201, &None), "{evicted:?}");
}

#[track_caller]
fn denied(evicted: &Evicted, says: &str) {
    assert_eq!(evicted.code, 429, "{evicted:?}");
    let begins =
        format!("admission webhook \"eviction-gate.nodegate.io\" denied the request: node {NODE}: {says}");
    assert!(evicted.message.starts_with(&begins), "{evicted:?}");
}

#[test]
fn an_eviction_waits_for_told() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    lab.pod("p");
    let first = lab.evict("p");
    denied(&first, "1 of 2 load balancers have acknowledged the drain; waiting for 10.0.0.6 (lb2) /health");
    assert_eq!(first.retry_after.as_deref(), Some("1"));
    gate.wait_for("holding an eviction");
    assert!(lab.sim().get("pods", "default", "p").is_some());
    lab.agent_says(|said| said["told"] = json!(true));
    allowed(&lab.evict("p"));
    gate.wait_for("a held eviction goes on");
    gate.wait_for_reviews("allowed", "told", 1);
    assert_eq!(gate.metric("nodegate_gate_hold_seconds_count"), 1);
    // Back in the pool: the next drain must be acknowledged again.
    lab.sim().uncordon(NODE);
    lab.pod("q");
    allowed(&lab.evict("q"));
    gate.wait_for_reviews("allowed", "not_draining", 1);
    assert_eq!(lab.events(), [""; 0]);
}

#[test]
fn a_drain_is_not_held_beyond_its_limit() {
    let lab = Lab::new();
    let gate = lab.gate(&["--max-hold=5s", "--told-unknown-hold=1s"]);
    lab.sim().cordon(NODE);
    for name in ["p", "q"] {
        lab.pod(name);
    }
    let (refused, evicted) = lab.evict_until_allowed("p");
    assert!(!refused.is_empty());
    assert!(evicted.warning.unwrap().contains("the drain is older than 5 s"));
    gate.wait_for_reviews("allowed", "max_hold", 1);
    assert!(gate.metric("nodegate_gate_unacknowledged_total") >= 1);
    // The second pod of the same drain has no hold of its own, and the Node no second Event.
    assert_eq!(lab.evict("q").code, 201);
    until("the Event", || (lab.events().len() == 1).then_some(()));
    // By the agent's own date, a replica that has just been started agrees.
    drop(gate);
    let gate = lab.start_gate(&["--max-hold=5s", "--told-unknown-hold=1s"]);
    lab.agent_says(|said| said["since_ms"] = json!(5001));
    gate.wait_for("started");
    until("the new replica", || (gate.page("/readyz").status == 200).then_some(()));
    until("a review", || {
        lab.pod("r");
        assert_eq!(lab.evict("r").code, 201);
        (gate.reviews_of("allowed", "max_hold") >= 1).then_some(())
    });
}

#[test]
fn a_dry_run_gets_the_same_answer_and_changes_nothing() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    lab.pod("p");
    denied(&lab.evict_dry("p"), "1 of 2");
    lab.agent_says(|said| said["since_ms"] = json!(61_000));
    assert!(lab.evict_dry("p").warning.is_some());
    lab.agent_says(|said| said["told"] = json!(true));
    allowed(&lab.evict_dry("p"));
    assert!(lab.sim().get("pods", "default", "p").is_some());
    gate.wait_for_reviews("allowed", "told", 1);
    assert_eq!(gate.metric("nodegate_gate_hold_seconds_count"), 0);
    assert_eq!(lab.events(), [""; 0]);
    assert!(!gate.log().contains("holding an eviction"));
}

#[test]
fn an_unreachable_agent_holds_for_a_while() {
    let lab = Lab::new();
    let gate = lab.gate_in("agent=1000", &["--told-unknown-hold=4s"]);
    lab.sim().cordon(NODE);
    let rows: [Row<'_>; 6] = [
        ("unreachable", "the node's agent does not answer", Box::new(|| lab.agent_hangs())),
        (
            "unreachable",
            "the node's agent does not answer",
            Box::new(|| lab.agent.now(answer("404 Not Found", ""))),
        ),
        (
            "unreachable",
            "the node's agent does not answer",
            Box::new(|| lab.agent.now(Act::Say(String::new()))),
        ),
        (
            "wrong_agent",
            "another cluster's agent answers at 127.0.0.1",
            Box::new(|| lab.agent_says(|s| s["uid"] = json!("x"))),
        ),
        ("stale", "the agent's cache is stale", Box::new(|| lab.agent_says(|s| s["stale"] = json!(true)))),
        (
            "not_known",
            "the agent has listened for 3 s",
            Box::new(|| {
                lab.agent_says(|said| {
                    (said["told"], said["not_known_code"]) = (Value::Null, json!("listening"));
                    said["not_known"] = json!("the agent has listened for 3 s of 90 s");
                });
            }),
        ),
    ];
    for (number, (why, says, set)) in rows.into_iter().enumerate() {
        let (free, held) = (format!("free{number}"), format!("held{number}"));
        // Another drain for each: the node controller dates the next cordon once it has taken the last one's taint away.
        lab.sim().uncordon(NODE);
        until("no taint of a cordon", || {
            let node = lab.sim().node(NODE).unwrap();
            (!node["spec"]["taints"].to_string().contains("unschedulable")).then_some(())
        });
        lab.pod(&free);
        allowed(&lab.evict(&free));
        lab.sim().cordon(NODE);
        set();
        let before = gate.reviews_of("allowed", why);
        lab.pod(&held);
        denied(&lab.evict(&held), says);
        let (_, evicted) = lab.evict_until_allowed(&held);
        assert!(evicted.warning.unwrap().contains("held for 4 s"), "{why}");
        gate.wait_for_reviews("allowed", why, before + 1);
    }
    for result in ["summary", "unreachable", "wrong_agent"] {
        assert!(
            gate.metric(&format!("nodegate_gate_agent_lookups_total{{result=\"{result}\"}}")) >= 1,
            "{result}"
        );
    }
}
