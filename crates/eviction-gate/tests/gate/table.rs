//! Each row of the rules, through the API server and the real gate.

use crate::lab::{Evicted, Lab, NAME, NAMESPACE, evict};
use nodegate_testbed::stub::{Act, answer};
use nodegate_testbed::{NODE, until};
use serde_json::{Value, json};
use std::time::Duration;

type Change = fn(&mut Value);

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
fn pods_that_serve_nobody_are_not_held() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    let rows: [(&str, Change); 5] = [
        ("pod_terminating", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-11-23T00:00:00Z")),
        ("pod_not_running", |pod| pod["status"]["phase"] = json!("Succeeded")),
        ("pod_not_running", |pod| pod["status"]["phase"] = json!("Pending")),
        ("daemonset", |pod| {
            let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true});
            pod["metadata"]["ownerReferences"] = json!([owner]);
        }),
        ("mirror_pod", |pod| pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"})),
    ];
    for (number, (why, change)) in rows.into_iter().enumerate() {
        let (name, before) = (format!("p{number}"), gate.reviews_of("allowed", why));
        lab.pod_on(NODE, &name, change);
        allowed(&lab.evict(&name));
        gate.wait_for_reviews("allowed", why, before + 1);
    }
    assert_eq!(lab.evict("none").code, 404);
    gate.wait_for_reviews("allowed", "pod_gone", 1);
    lab.pod_on(NODE, "own", |pod| {
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        pod["metadata"]["labels"] = json!({"app.kubernetes.io/name": NAME});
    });
    allowed(&evict(lab.sim().address(), NAMESPACE, "own", ""));
    gate.wait_for_reviews("allowed", "gate_pod", 1);
    lab.pod_on("no-such-node", "lost", |_| {});
    allowed(&lab.evict("lost"));
    gate.wait_for_reviews("allowed", "node_gone", 1);
    assert_eq!(lab.agent.asked(), 0, "the agent matters to none of them");
}

#[test]
fn a_node_that_does_not_drain_holds_nothing() {
    let lab = Lab::new();
    let gate = lab.gate(&["--drain-on=unschedulable,label:example.com/out"]);
    lab.pod("p");
    allowed(&lab.evict("p"));
    gate.wait_for_reviews("allowed", "not_draining", 1);
    // A signal of the gate's own list, and none of the defaults'.
    lab.sim().taint(NODE, "karpenter.sh/disrupted", "", "NoSchedule");
    lab.pod("q");
    allowed(&lab.evict("q"));
    lab.sim().label(NODE, "example.com/out", Some("x"));
    lab.pod("r");
    denied(&lab.evict("r"), "1 of 2 load balancers");
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
    // Back in the pool: another drain has to be told anew.
    lab.sim().uncordon(NODE);
    lab.pod("q");
    allowed(&lab.evict("q"));
    gate.wait_for_reviews("allowed", "not_draining", 1);
    assert_eq!(lab.events(), [""; 0]);
}

#[test]
fn after_ten_seconds_the_client_chooses_when_to_retry() {
    let lab = Lab::new();
    let _gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    lab.pod("p");
    let late = until("a refusal without Retry-After", || {
        let evicted = lab.evict("p");
        denied(&evicted, "1 of 2");
        std::thread::sleep(Duration::from_millis(200));
        evicted.retry_after.is_none().then_some(evicted)
    });
    denied(&late, "1 of 2");
}

#[test]
fn an_agent_that_stays_ready_has_other_signals() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.agent_says(|said| said["verdict"] = json!("ready"));
    lab.sim().cordon(NODE);
    lab.pod("p");
    denied(&lab.evict("p"), "the agent does not say yet that the node is going out");
    let (_, evicted) = lab.evict_until_allowed("p");
    assert!(evicted.warning.unwrap().contains("--drain-on differs"));
    gate.wait_for_reviews("allowed", "mismatch", 1);
    let events = until("the Event", || Some(lab.events()).filter(|events| !events.is_empty()));
    assert!(
        events[0].starts_with("\"EvictedUnacknowledged\": \"node n1: the agent says that the node is ready"),
        "{events:?}"
    );
}

/// Nobody evicts while the node is back in the pool, so the gate does not see that.
#[test]
fn a_second_drain_is_not_taken_for_the_first() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    lab.sim().cordon(NODE);
    for name in ["p", "q"] {
        lab.pod(name);
    }
    denied(&lab.evict("p"), "1 of 2");
    lab.agent_says(|said| said["told"] = json!(true));
    allowed(&lab.evict("p"));
    lab.sim().uncordon(NODE);
    std::thread::sleep(Duration::from_secs(6));
    lab.sim().cordon(NODE);
    // The agent has not heard of the second cordon yet.
    lab.agent_says(|said| (said["verdict"], said["since_ms"]) = (json!("ready"), json!(3000)));
    denied(&lab.evict("q"), "the agent does not say yet that the node is going out");
    lab.agent_says(|_| {});
    denied(&lab.evict("q"), "1 of 2");
    assert_eq!(gate.metric("nodegate_gate_unacknowledged_total"), 0);
}

#[test]
fn nobody_asks_is_no_reason_to_wait_unless_the_agent_demands_it() {
    let lab = Lab::new();
    let gate = lab.gate(&["--told-unknown-hold=4s"]);
    lab.sim().cordon(NODE);
    let nobody = |said: &mut Value| {
        (said["told"], said["not_known_code"], said["probers"]) = (Value::Null, json!("nobody"), json!(0));
        said["not_known"] = json!("no balancer goes on asking this agent");
    };
    lab.agent_says(nobody);
    lab.pod("p");
    allowed(&lab.evict("p"));
    gate.wait_for_reviews("allowed", "nobody", 1);
    lab.agent_says(|said| {
        nobody(said);
        said["settings"]["probers"] = json!(2);
    });
    lab.sim().uncordon(NODE);
    lab.pod("q");
    allowed(&lab.evict("q"));
    lab.sim().cordon(NODE);
    lab.pod("r");
    denied(&lab.evict("r"), "no balancer goes on asking this agent");
    let (_, evicted) = lab.evict_until_allowed("r");
    assert!(evicted.warning.unwrap().contains("held for 4 s"));
}

#[test]
fn annotations_choose() {
    let lab = Lab::new();
    let gate = lab.gate(&["--hold=annotated", "--max-hold=1h"]);
    lab.sim().cordon(NODE);
    let annotated = |pod: &mut Value, when: &str| {
        pod["metadata"]["annotations"] = json!({"nodegate.io/evict-when": when});
    };
    lab.pod("plain");
    allowed(&lab.evict("plain"));
    gate.wait_for_reviews("allowed", "not_annotated", 1);
    lab.pod_on(NODE, "told", |pod| annotated(pod, "told"));
    denied(&lab.evict("told"), "1 of 2");
    lab.pod_on(NODE, "now", |pod| annotated(pod, "now"));
    allowed(&lab.evict("now"));
    // The namespace speaks for pods that do not.
    let namespace = |when: &str| {
        json!({"kind": "Namespace", "apiVersion": "v1",
            "metadata": {"name": "default", "annotations": {"nodegate.io/evict-when": when}}})
    };
    lab.sim().apply(namespace("released")).unwrap();
    lab.agent_says(|said| said["told"] = json!(true));
    lab.pod("released");
    denied(&lab.evict("released"), "all load balancers have acknowledged the drain; sessions are left");
    allowed(&lab.evict("told"));
    lab.agent_says(|said| (said["told"], said["released"]) = (json!(true), json!(true)));
    allowed(&lab.evict("released"));
    gate.wait_for_reviews("allowed", "released", 1);
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
