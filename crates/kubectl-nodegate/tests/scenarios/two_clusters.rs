//! Two clusters whose nodes have the same addresses: a command for one cluster never uses the answers of the
//! other's agents.

use crate::drain::{RESPONSIVE, cluster, follows, is_cordoned};
use crate::scenario::{NAMESPACE, Scenario, out, says};
use serde_json::json;

/// Creates the production cluster, at whose nodes' addresses staging's agents answer. Staging has nodes with
/// the same names, and its agents' answers look like a completed drain.
fn production() -> Scenario {
    let prod = cluster(RESPONSIVE, &["new1", "new2"]);
    for node in ["new1", "new2"] {
        let mut status = out(node, "draining", "Unschedulable", 60);
        status["uid"] = json!("uid-in-staging");
        prod.crowd.now(node, says(&status));
    }
    prod
}

#[test]
fn another_clusters_agent_drains_nothing() {
    let prod = production();
    let address = prod.crowd.nodes().next().unwrap().1;
    let stranger = format!(
        "another Node's agent answers at {address}: it speaks for Node new1 (uid uid-in-staging), not for Node new1 (uid \
         uid-of-new1)"
    );
    // The API server also reaches the other cluster's agent.
    let proxied = "another Node's agent answers at the pod nodegate-new1";
    for (flag, why) in [
        ("--via=auto", &*stranger),
        ("--via=node", &stranger),
        ("--via=proxy", proxied),
        ("--dry-run=client", &stranger),
    ] {
        let said = prod.run(&["drain", "new1", flag]);
        said.has(3, &[why, "nothing was done to it"]);
        assert!(!said.out.contains("evicting"), "{said:#?}");
        assert!(!is_cordoned(&prod, "new1") && prod.sim.get("pods", "default", "app").is_some());
    }
    let fleet = prod.run(&["-o", "wide"]);
    fleet.has(3, &[&stranger]);
    assert!(fleet.row("new1").starts_with("new1 Unknown another Node's agent answers at "), "{fleet:#?}");
    let waited = prod.run(&["wait", "new1", "--timeout=1s"]);
    waited.has(3, &[&stranger]);
    assert!(!waited.out.contains("acknowledged after"), "{waited:#?}");
}

#[test]
fn the_api_server_reaches_the_agent_behind_a_strangers_address() {
    let prod = production();
    // The pod's address is not the node's.
    let own = prod.crowd.nodes().nth(1).unwrap().1;
    prod.crowd.now("new2", follows(&prod.sim, "new1", RESPONSIVE));
    let mut pod = prod.sim.get("pods", NAMESPACE, "nodegate-new1").unwrap();
    pod["status"]["podIP"] = json!(own.to_string());
    prod.sim.apply(pod).unwrap();
    prod.run(&["new1", "-o", "wide"]).has(0, &["proxy of nodegate-new1"]);
    prod.run(&["drain", "new1"]).has(0, &[]);
    assert!(is_cordoned(&prod, "new1") && prod.sim.get("pods", "default", "app").is_none());
}
