//! Faults of the gate, the API server and the agents. None of them stops an eviction.

use crate::scenario::{NAME, NAMESPACE, Scenario, configuration, evict};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::{NODE, until, until_or};
use serde_json::json;

#[test]
fn either_of_two_replicas_answers() {
    let scenario = Scenario::new();
    let gates = [scenario.gate("self_check=1000", &[]), scenario.gate("self_check=1000", &[])];
    scenario.sim.cordon(NODE);
    until("both to have held", || {
        assert_eq!(scenario.evict("p").status, 429);
        gates.iter().all(|gate| gate.reviews_of("denied", "waiting") >= 1).then_some(())
    });
    // After SIGTERM the gate still answers reviews.
    let slow = scenario.gate("shutdown=30000", &[]);
    nodegate_testbed::process::signal(slow.program.pid(), "TERM");
    slow.wait_for("still answering reviews");
    assert_eq!((slow.page("/readyz").status, slow.page("/livez").status), (503, 200));
    let before = slow.reviews_of("denied", "waiting");
    until("it to answer another one", || {
        assert_eq!(scenario.evict("p").status, 429);
        (slow.reviews_of("denied", "waiting") > before).then_some(())
    });
}

#[test]
fn errors_of_the_api_server_let_evictions_go_on() {
    let scenario = Scenario::new();
    let gate = scenario.gate("review=20000", &["--max-hold=1h"]);
    scenario.sim.cordon(NODE);
    let gets = |plural: &'static str| FaultScope::all().resources(&[plural]).verbs(&["get"]);
    let failing = Effect::Status { code: 500, retry_after: 0 };
    for (name, effect) in [("a", Effect::Forbidden), ("b", Effect::Hang), ("c", failing)] {
        let fault = scenario.sim.faults().add(effect.on(gets("nodes")));
        scenario.pod(name);
        let evicted = scenario.evict(name);
        assert_eq!(evicted.status, 201, "{evicted:?}");
        assert!(evicted.header("warning").unwrap().contains("evicting anyway"));
        scenario.sim.faults().remove(fault);
    }
    gate.wait_for_reviews("allowed", "error", 3);
    gate.wait_for("review failed; evicting without a hold");
    // A namespace that can't be read has no annotation.
    let fault = scenario.sim.faults().add(Effect::Forbidden.on(gets("namespaces")));
    scenario.pod("q");
    assert_eq!(scenario.evict("q").status, 429);
    scenario.sim.faults().remove(fault);
    // Connections that the API server has reset are replaced within a review.
    scenario.sim.reset_connections();
    assert_eq!(scenario.evict("q").status, 429);
    scenario.kill_api();
    scenario.restart_api();
    assert_eq!(scenario.evict("q").status, 429);
    // So are credentials that are no longer accepted: first those of the kubeconfig, then those of a plugin in its place.
    let (api, credential) = ("client.authentication.k8s.io/v1", scenario.file("credential"));
    let plugin =
        json!({"apiVersion": api, "interactiveMode": "Never", "command": "cat", "args": [credential]});
    for (old, new) in [("gate-token", "second"), ("second", "third")] {
        scenario.sim.rotate_token(old, new);
        scenario.pod(new);
        assert_eq!(scenario.evict(new).status, 201);
        gate.wait_for("Unauthorized");
        let issued = json!({"apiVersion": api, "kind": "ExecCredential", "status": {"token": new}});
        std::fs::write(&credential, issued.to_string()).unwrap();
        let kubeconfig = scenario.sim.kubeconfig_as(&json!({"exec": plugin}));
        std::fs::write(scenario.file("gate.kubeconfig"), kubeconfig).unwrap();
        assert_eq!(scenario.evict("q").status, 429);
    }
}

/// Whatever the cause: the gate sees only that its own test eviction does not come back.
#[test]
fn the_gate_reports_that_evictions_bypass_it() {
    let scenario = Scenario::new();
    let gate = scenario.gate("self_check=1000", &[]);
    assert_eq!(gate.metric("nodegate_gate_self_check_passed"), 1);
    let passes = |value| {
        until_or(
            || (gate.metric("nodegate_gate_self_check_passed") == value).then_some(()),
            || format!("not {value}:\n{}", gate.log()),
        );
    };
    scenario.sim.delete("validatingwebhookconfigurations", "", NAME);
    passes(0);
    gate.wait_for("self-check failed; evictions are not held");
    gate.wait_for("there is no ValidatingWebhookConfiguration");
    scenario.sim.apply(configuration()).unwrap();
    passes(1);
    // A network policy, a firewall, or a wrong Service.
    assert!(scenario.sim.delete("endpointslices", NAMESPACE, &format!("gate-{}", gate.reviews.port())));
    passes(0);
    scenario.publish(&gate);
    passes(1);
    // `kubectl apply` of the manifests, which have no caBundle: the gate writes it again.
    scenario.sim.apply(configuration()).unwrap();
    until("the caBundle", || {
        let configuration = scenario.sim.get("validatingwebhookconfigurations", "", NAME).unwrap();
        configuration["webhooks"][0]["clientConfig"]["caBundle"].is_string().then_some(())
    });
    passes(1);
    // A Pod of that name in another namespace is nothing special.
    let name = "nodegate-eviction-gate-self-check-1";
    assert_eq!(evict(scenario.sim.address(), name, "?dryRun=All").status, 404);
}
