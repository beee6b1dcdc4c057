//! Faults of the gate and of those that it asks. No eviction is stopped by any of them.

use crate::lab::{Lab, NAME, NAMESPACE, configuration, evict, gate_rules};
use nodegate_kube_sim::{Effect, FaultScope};
use nodegate_testbed::http::ask;
use nodegate_testbed::process::StoppedProcess;
use nodegate_testbed::{NODE, until, until_or};
use serde_json::json;

#[test]
fn without_the_gate_evictions_go_on() {
    let lab = Lab::new();
    let gates = [lab.gate(&[]), lab.gate(&[])];
    lab.sim().cordon(NODE);
    for name in ["p", "q"] {
        lab.pod(name);
    }
    assert_eq!(lab.evict("p").code, 429);
    // One of them hangs: the other answers, or the API server gives up.
    lab.api_server_gives_up_after(3);
    let stopped = StoppedProcess::new(gates[0].child.id());
    let evicted = lab.evict_dry("p");
    assert!(matches!(evicted.code, 201 | 429), "{evicted:?}");
    drop(stopped);
    drop(gates);
    assert_eq!(lab.evict("p").code, 201);
}

#[test]
fn either_of_two_replicas_answers() {
    let lab = Lab::new();
    let gates = [lab.gate_in("self_check=1000", &[]), lab.gate_in("self_check=1000", &[])];
    lab.sim().cordon(NODE);
    lab.pod("p");
    until("both to have held", || {
        assert_eq!(lab.evict("p").code, 429);
        gates.iter().all(|gate| gate.reviews_of("denied", "waiting") >= 1).then_some(())
    });
    // They have one certificate, whichever replica was first.
    let issued = gates.iter().filter(|gate| gate.log().contains("issued a certificate")).count();
    assert_eq!(issued, 1);
    // SIGTERM takes no review away from those that still come.
    let slow = lab.gate_in("shutdown=30000", &[]);
    nodegate_testbed::process::signal(slow.child.id(), "TERM");
    slow.wait_for("still answering reviews");
    assert_eq!((slow.page("/readyz").status, slow.page("/livez").status), (503, 200));
    let before = slow.reviews_of("denied", "waiting");
    until("it to answer another one", || {
        assert_eq!(lab.evict("p").code, 429);
        (slow.reviews_of("denied", "waiting") > before).then_some(())
    });
}

#[test]
fn errors_of_the_api_server_let_evictions_go_on() {
    let lab = Lab::new();
    let gate = lab.gate_in("review=20000", &["--max-hold=1h"]);
    lab.sim().cordon(NODE);
    let gets = |plural: &str| FaultScope::all().resources(&[plural]).verbs(&["get"]);
    for (number, effect) in [Effect::Forbidden, Effect::Hang, Effect::Status { code: 500, retry_after: 0 }]
        .into_iter()
        .enumerate()
    {
        let fault = lab.sim().faults().add(effect.on(gets("nodes")));
        let name = format!("p{number}");
        lab.pod(&name);
        let evicted = lab.evict(&name);
        assert_eq!(evicted.code, 201, "{evicted:?}");
        assert!(evicted.warning.unwrap().contains("evicting nevertheless"));
        lab.sim().faults().remove(fault);
        gate.wait_for_reviews("allowed", "error", number as u64 + 1);
    }
    gate.wait_for("review failed; evicting without a hold");
    // A namespace that can't be read has no annotation.
    let fault = lab.sim().faults().add(Effect::Forbidden.on(gets("namespaces")));
    lab.pod("q");
    assert_eq!(lab.evict("q").code, 429);
    lab.sim().faults().remove(fault);
    // Connections that the API server has reset are replaced within a review.
    lab.sim().reset_connections();
    assert_eq!(lab.evict("q").code, 429);
    lab.cluster.wait(lab.sim().kill());
    lab.cluster.wait(lab.sim().restart(false)).unwrap();
    assert_eq!(lab.evict("q").code, 429);
    // So are credentials that are no longer accepted.
    lab.sim().rotate_token("gate-token", "another");
    lab.pod("r");
    assert_eq!(lab.evict("r").code, 201);
    gate.wait_for("Unauthorized");
    let kubeconfig = lab.cluster.dir.path().join("gate.kubeconfig");
    std::fs::write(kubeconfig, lab.sim().kubeconfig_for("another")).unwrap();
    assert_eq!(lab.evict("q").code, 429);
}

#[test]
fn a_dead_node_is_drained_at_once() {
    let lab = Lab::new();
    let gate = lab.gate_in("agent=1000", &[]);
    lab.agent_hangs();
    lab.sim().edit_node(NODE, "node-controller", |node| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        let ready = conditions.iter_mut().find(|condition| condition["type"] == "Ready").unwrap();
        ready["status"] = json!("Unknown");
        ready["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
    });
    lab.sim().cordon(NODE);
    lab.pod("p");
    let evicted = lab.evict("p");
    assert_eq!(evicted.code, 201, "{evicted:?}");
    gate.wait_for_reviews("allowed", "node_dead", 1);
}

/// The gate reports that evictions bypass it, for any cause.
#[test]
fn the_gate_notices_that_it_is_not_asked() {
    let lab = Lab::new();
    let gate = lab.gate_in("self_check=1000", &[]);
    assert_eq!(gate.metric("nodegate_gate_self_check_passed"), 1);
    let bypassed = || {
        until_or(
            || (gate.metric("nodegate_gate_self_check_passed") == 0).then_some(()),
            || format!("still passed:\n{}", gate.log()),
        );
    };
    let back = || {
        until_or(
            || (gate.metric("nodegate_gate_self_check_passed") == 1).then_some(()),
            || format!("not passed again:\n{}", gate.log()),
        );
    };
    lab.sim().delete("validatingwebhookconfigurations", "", NAME);
    bypassed();
    gate.wait_for("self-check failed; evictions go by unheld");
    gate.wait_for("there is no ValidatingWebhookConfiguration");
    lab.sim().apply(configuration()).unwrap();
    back();
    // A network policy, a firewall, or a wrong Service.
    lab.withdraw(&gate);
    bypassed();
    lab.publish(&gate);
    back();
    // `kubectl apply` of the manifests, which have no caBundle: the gate writes it again.
    lab.sim().apply(configuration()).unwrap();
    until("the caBundle", || {
        let configuration = lab.sim().get("validatingwebhookconfigurations", "", NAME).unwrap();
        configuration["webhooks"][0]["clientConfig"]["caBundle"].is_string().then_some(())
    });
    back();
    // No right to evict: nothing is known, and after three intervals that is an alarm.
    let rules = gate_rules().into_iter().filter(|rule| rule.resources != ["pods/eviction"]).collect();
    lab.sim().service_account("gate-token", NAMESPACE, NAME, rules);
    gate.wait_for("can't check whether evictions come to the gate");
    bypassed();
    // A Pod of that name in another namespace is nothing special.
    let name = "nodegate-eviction-gate-self-check-1";
    assert_eq!(evict(lab.sim().address(), "default", name, "?dryRun=All").code, 404);
}

#[test]
fn strangers_get_nothing_from_the_webhook() {
    let lab = Lab::new();
    let gate = lab.gate(&[]);
    assert_eq!(ask(gate.reviews, "GET / HTTP/1.0\r\n\r\n").matches("HTTP").count(), 0, "no plain HTTP");
    assert_eq!(ask(gate.reviews, [0xff; 4000]).matches("HTTP").count(), 0);
    let idle: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(gate.reviews).unwrap()).collect();
    lab.sim().cordon(NODE);
    lab.pod("p");
    assert_eq!(lab.evict("p").code, 429);
    drop(idle);
    assert_eq!(gate.page("/nothing").status, 404);
    assert!(ask(gate.health, "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405"));
}
