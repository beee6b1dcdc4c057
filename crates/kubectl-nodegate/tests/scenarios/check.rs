//! A look at a whole setup.

use crate::scenario::{Said, Scenario, add_pod_of, out, prober, ready, says, unseeing};
use nodegate_testbed::network::ports::Loopback;
use nodegate_testbed::stub::{Act, Stub, answer};
use serde_json::{Value, json};

/// Runs `check`, and asserts its exit code and the beginning of its first finding.
#[track_caller]
fn finds(scenario: &Scenario, code: i32, what: &str) -> Said {
    let said = scenario.run(&["check"]);
    let line = format!("{}  {what}", if code == 1 { "to do    " } else { "not known" });
    assert!(said.code == Some(code) && said.out.starts_with(&line), "no {line:?} first in {said:#?}");
    said
}

fn add_gate(scenario: &Scenario, bundle: Option<&str>) {
    scenario.sim
        .apply(json!({
            "kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
            "metadata": {"name": "nodegate-eviction-gate"},
            "webhooks": [{
                "name": "eviction-gate.nodegate.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {"namespace": "nodegate", "name": "nodegate-eviction-gate"}, "caBundle": bundle,
                },
            }],
        }))
        .unwrap();
}

fn metrics(asked: u8, held: u8) -> Act {
    answer("200 OK", &format!("nodegate_gate_self_check_passed {asked}\nnodegate_gate_held_pods {held}\n"))
}

#[test]
fn a_sound_setup_has_nothing_to_do() {
    let scenario = Scenario::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    let said = scenario.run(&["check"]);
    assert_eq!((said.code, said.out.lines().last()), (Some(0), Some("2 nodes: nothing to do")), "{said:#?}");
    assert!(said.out.lines().rev().skip(1).all(|line| line.starts_with("note       ")), "{said:#?}");
    assert!(said.out.contains("note       10.0.0.5: asks /health at least every 500 ms\n"), "{said:#?}");
    let json: Value = serde_json::from_str(&scenario.run(&["check", "-o", "json"]).out).unwrap();
    assert_eq!((&json["nodes"], &json["to_do"], &json["unknown"]), (&json!(2), &json!(0), &json!(0)));
    assert!(
        json["findings"].as_array().unwrap().iter().any(|finding| finding["code"] == "no_gate"),
        "{json}"
    );
}

#[test]
fn what_is_wrong_comes_first_with_what_to_do() {
    let scenario = Scenario::new([("a", says(&ready("a"))), ("b", says(&ready("b")))]);
    let mut slow = ready("b");
    slow["host"] = json!({"shutdown": false, "lock": true, "delay_ms": 5000});
    slow["drain"]["needs_ms"] = json!(8000);
    let mut lost = ready("b");
    (lost["cache"]["stale"], lost["cache"]["error"]) = (json!(true), json!("HTTP 403 (nodes is forbidden)"));
    let mut noticed = ready("b");
    noticed["port_taken"] = json!("10.0.0.12:25001: HTTP 200");
    for (status, what) in [
        (unseeing("b"), "10.0.0.7 GET / can't see drains; let this load balancer ask GET /health"),
        (slow, "a shutdown is delayed by at most 5 s, but the slowest load balancer needs 8 s: raise "),
        (lost, "its agent has no proof from the API server: HTTP 403 (nodes is forbidden); give the "),
        (noticed, "another program answers at the node's own address and port (10.0.0.12:25001: HTTP 200)"),
    ] {
        scenario.crowd.now("b", says(&status));
        finds(&scenario, 1, &format!("b: {what}")).has(1, &["\n2 nodes: 1 to do\n"]);
    }

    // A network policy or a firewall: the agent's port answers only the API server.
    scenario.crowd.now("b", says(&ready("b")));
    scenario.sim.set_addresses("b", &["::1"]);
    finds(&scenario, 1, "b: its agent is not reached at the node's address, only through the API server; ");
    // Nothing answers at all.
    scenario.sim.delete("pods", "nodegate", "nodegate-b");
    finds(&scenario, 3, "b: no answer of its agent: ");

    let scenario = Scenario::new(
        ["a", "b"].map(|node| (node, says(&out(node, "draining", "ExcludedFromLoadBalancers", 7300)))),
    );
    for node in ["a", "b"] {
        scenario.sim.label(node, "node-role.kubernetes.io/control-plane", Some(""));
    }
    finds(&scenario, 1, "cluster: all 2 nodes are out by the label node.kubernetes.io/exclude-from-extern");
    scenario.run(&[]).has(1, &["the exclusion label keeps all of them out"]);
}

#[test]
fn a_gate_that_is_not_asked_comes_first() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    let address = Loopback::new().address(1);
    add_gate(&scenario, None);
    finds(&scenario, 1, "eviction gate: its webhook configuration has no caBundle");
    add_gate(&scenario, Some("Y2E="));
    add_pod_of(&scenario.sim, "nodegate-eviction-gate", "a", address);
    finds(&scenario, 3, "eviction gate: not known whether it is asked: the pod nodegate-eviction-gate-a");
    let gate = Stub::start_at((address, 25_006).into(), metrics(0, 0));
    finds(&scenario, 1, "eviction gate: the API server does not ask it: evictions are not held");
    gate.now(metrics(1, 2));
    assert_eq!(scenario.run(&["check"]).code, Some(0));
    let fleet = scenario.run(&[]);
    assert_eq!(fleet.out.lines().last(), Some("1 node: 1 Ready; eviction gate: asked, holds 2 evictions"));
    let json: Value = serde_json::from_str(&scenario.run(&["-o", "json"]).out).unwrap();
    assert_eq!((&json["eviction_gate"]["asked"], &json["eviction_gate"]["held"]), (&json!(true), &json!(2)));
}

#[test]
fn a_service_without_a_check_of_its_own_is_named() {
    let scenario = Scenario::new([("a", says(&ready("a")))]);
    let service = |kind: &str, port: u16| {
        json!({
            "kind": "Service", "apiVersion": "v1", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"type": kind, "externalTrafficPolicy": "Local", "healthCheckNodePort": port, "ports": [{"port": 80}]},
        })
    };
    scenario.sim.apply(service("NodePort", 0)).unwrap();
    let what =
        "Service shop/web: has the policy Local, and no load balancer asks agents for /services/shop/web";
    finds(&scenario, 1, what);
    scenario.sim.apply(service("LoadBalancer", 30_100)).unwrap();
    scenario.run(&["check"]).has(0, &["unless it asks kube-proxy's port 30100"]);
    let mut asked = ready("a");
    let mut own = prober("10.0.0.5", "ready", 9, None);
    (own["question"], own["sees_drains"]) = (json!("/services/shop/web"), json!(false));
    asked["probers"].as_array_mut().unwrap().push(own);
    scenario.crowd.now("a", says(&asked));
    let said = scenario.run(&["check"]);
    assert!(!said.out.contains("shop/web"), "{said:#?}");
}
