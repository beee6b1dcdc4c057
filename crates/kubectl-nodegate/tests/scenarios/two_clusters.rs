//! Two clusters whose nodes have the same addresses: a command for one cluster never uses the answers of the
//! other's agents.

use crate::drain::{Scene, cluster, follows, is_cordoned};
use crate::lab::{Lab, NAMESPACE, Said, out, says};
use serde_json::json;

/// Creates the production cluster, at whose nodes' addresses staging's agents answer. Staging has nodes with
/// the same names, and its agents' answers look like a completed drain.
fn production() -> Lab {
    let prod = cluster(Scene { acknowledged: 3, ..Scene::default() }, &["new1", "new2"]);
    for node in ["new1", "new2"] {
        let mut status = out(node, "draining", "Unschedulable", 60);
        status["uid"] = json!("uid-in-staging");
        prod.crowd.now(node, says(&status));
    }
    prod
}

fn is_untouched(lab: &Lab, said: &Said, why: &str) {
    assert_eq!(said.code, Some(3), "{said:#?}");
    assert!(said.out.contains(why), "no {why:?} in {said:#?}");
    assert!(said.out.contains("nothing was done to it"), "{said:#?}");
    assert!(!is_cordoned(lab, "new1") && lab.sim.get("pods", "default", "app").is_some());
}

/// Returns the message about staging's agent at the address of production's new1.
fn stranger(prod: &Lab) -> String {
    let address = prod.crowd.nodes().next().unwrap().1;
    format!(
        "another cluster's agent answers at {address}: it speaks for Node new1 (uid uid-in-staging), not for Node new1 (uid \
         uid-of-new1)"
    )
}

#[test]
fn another_clusters_agent_drains_nothing() {
    let prod = production();
    let stranger = stranger(&prod);
    for via in ["--via=auto", "--via=node"] {
        is_untouched(&prod, &prod.run(&["drain", "new1", via]), &stranger);
    }
    // The API server also reaches the other cluster's agent.
    let proxied = prod.run(&["drain", "new1", "--via=proxy"]);
    is_untouched(&prod, &proxied, "another cluster's agent answers at the pod nodegate-new1");
    // The plugin shows nothing of its answer.
    let rehearsed = prod.run(&["drain", "new1", "--dry-run=client"]);
    is_untouched(&prod, &rehearsed, &stranger);
    assert!(!rehearsed.out.contains("evicting"), "{rehearsed:#?}");

    let fleet = prod.run(&[]);
    assert_eq!(fleet.code, Some(3), "{fleet:#?}");
    assert_eq!(fleet.row("new1"), "new1 Unknown another cluster's agent - - - - -");
    assert!(prod.run(&["-o", "wide"]).row("new1").contains(&stranger));
    let waited = prod.run(&["wait", "new1", "--timeout=1s"]);
    assert!(waited.code == Some(3) && waited.out.contains(&stranger), "{waited:#?}");
    assert!(!waited.out.contains("acknowledged after"), "{waited:#?}");
}

#[test]
fn the_api_server_reaches_the_agent_behind_a_strangers_address() {
    let prod = production();
    // The pod's address is not the node's.
    let own = prod.crowd.nodes().nth(1).unwrap().1;
    prod.crowd.now("new2", follows(&prod.sim, "new1", Scene { acknowledged: 2, ..Scene::default() }));
    let mut pod = prod.sim.get("pods", NAMESPACE, "nodegate-new1").unwrap();
    pod["status"]["podIP"] = json!(own.to_string());
    prod.sim.apply(pod).unwrap();
    let fleet = prod.run(&["new1", "-o", "wide"]);
    assert!(fleet.code == Some(0) && fleet.row("new1").contains("proxy of nodegate-new1"), "{fleet:#?}");
    let drained = prod.run(&["drain", "new1"]);
    assert_eq!(drained.code, Some(0), "{drained:#?}");
    assert!(is_cordoned(&prod, "new1") && prod.sim.get("pods", "default", "app").is_none());
}
