//! Two clusters whose nodes have the same addresses: a command for one cluster never uses the answers of the
//! other's agents.

use crate::drain::{Scene, cluster, follows, is_cordoned};
use crate::lab::{Lab, NAMESPACE, Said, out, ready, says, uid};
use serde_json::json;

/// Creates the production cluster, at whose nodes' addresses staging's agents answer. Staging has nodes with
/// the same names, and its agents' answers look like a completed drain.
pub(crate) fn production() -> Lab {
    let prod = cluster(Scene { told: 3, ..Scene::default() }, &["new1", "new2"]);
    for node in ["new1", "new2"] {
        let mut told = out(node, "draining", "Unschedulable", 60);
        told["uid"] = json!("uid-in-staging");
        prod.crowd.now(node, says(&told));
    }
    prod
}

pub(crate) fn is_untouched(lab: &Lab, said: &Said, why: &str) {
    assert_eq!(said.code, Some(3), "{said:#?}");
    assert!(said.out.contains(why), "no {why:?} in {said:#?}");
    assert!(said.out.contains("nothing was done to it"), "{said:#?}");
    assert!(!is_cordoned(lab, "new1") && lab.sim.get("pods", "default", "app").is_some());
}

/// Returns the message about staging's agent at the address of production's new1.
pub(crate) fn stranger(prod: &Lab) -> String {
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
    assert!(!waited.out.contains("told after"), "{waited:#?}");
}

/// Another cluster's node does not count as another Ready node.
#[test]
fn another_clusters_agents_are_no_reserve() {
    let prod = production();
    prod.crowd.now("new1", follows(&prod.sim, "new1", Scene { told: 1, ..Scene::default() }));
    let mut other = ready("new2");
    other["uid"] = json!("uid-in-staging");
    prod.crowd.now("new2", says(&other));
    let refused = prod.run(&["drain", "new1", "--min-ready=1"]);
    assert!(
        refused.code == Some(1) && refused.out.contains("refused: 0 other nodes are Ready"),
        "{refused:#?}"
    );
    assert!(!is_cordoned(&prod, "new1"));
}

#[test]
fn a_stranger_at_the_address_is_passed_by_where_the_api_server_reaches_the_agent() {
    let prod = production();
    // The pod's address is not the node's.
    let own = prod.crowd.nodes().nth(1).unwrap().1;
    prod.crowd.now("new2", follows(&prod.sim, "new1", Scene { told: 2, ..Scene::default() }));
    let mut pod = prod.sim.get("pods", NAMESPACE, "nodegate-new1").unwrap();
    pod["status"]["podIP"] = json!(own.to_string());
    prod.sim.apply(pod).unwrap();
    let fleet = prod.run(&["new1", "-o", "wide"]);
    assert!(fleet.code == Some(0) && fleet.row("new1").contains("proxy of nodegate-new1"), "{fleet:#?}");
    let drained = prod.run(&["drain", "new1"]);
    assert_eq!(drained.code, Some(0), "{drained:#?}");
    assert!(is_cordoned(&prod, "new1") && prod.sim.get("pods", "default", "app").is_none());
}

/// Agents of version 0.1 did not report a UID; the API server knows the pod that it queries.
#[test]
fn an_agent_that_is_too_old_is_believed_through_the_api_server_alone() {
    let lab = cluster(Scene::default(), &["new1", "new2"]);
    let mut old = ready("new1");
    for key in ["uid", "start_id"] {
        old.as_object_mut().unwrap().remove(key);
    }
    lab.crowd.now("new1", says(&old));
    let direct = lab.run(&["new1", "--via=node", "-o", "wide"]);
    assert!(
        direct.code == Some(3) && direct.row("new1").starts_with("new1 Unknown agent too old"),
        "{direct:#?}"
    );
    assert!(direct.out.contains("(nodegate 0.1.0) is too old to be identified"), "{direct:#?}");
    let auto = lab.run(&["new1", "-o", "wide"]);
    assert!(auto.code == Some(0) && auto.row("new1").contains("proxy of nodegate-new1"), "{auto:#?}");
    let mut young = old.clone();
    young["start_id"] = json!("0123456789abcdef");
    lab.crowd.now("new1", says(&young));
    let direct = lab.run(&["new1", "--via=node"]);
    assert!(direct.row("new1").starts_with("new1 Unknown agent not identified yet"), "{direct:#?}");
}

/// The plugin names the cluster before it changes anything.
#[test]
fn a_drain_begins_with_the_name_of_the_cluster() {
    let lab = cluster(Scene { told: 1, ..Scene::default() }, &["new1", "new2"]);
    for command in ["drain", "uncordon"] {
        let said = lab.run(&[command, "new1"]);
        let first = format!("cluster: context sim, server {}", lab.sim.url());
        assert!(said.code == Some(0) && said.out.starts_with(&first), "{first}: {said:#?}");
    }
    assert_eq!(lab.sim.node("new1").unwrap()["metadata"]["uid"], uid("new1"));
}
