//! The plugin with the real agent.

use crate::lab::{Said, program, ready};
use nodegate_testbed::waiting::until;
use nodegate_testbed::{Agent, Cluster, NODE};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Puts the node at the agent's address, and returns the administrator's kubeconfig.
fn admin(cluster: &Cluster, agent: &Agent) -> PathBuf {
    cluster.sim.edit_node(NODE, "kubelet", |node| {
        node["status"]["addresses"] =
            json!([{"type": "InternalIP", "address": agent.address().ip().to_string()}]);
    });
    let kubeconfig = cluster.dir.path().join("administrator");
    cluster.sim.write_kubeconfig(&kubeconfig).unwrap();
    kubeconfig
}

/// The canned agents of these tests answer like a real one.
#[test]
fn a_real_agent_answers_like_the_canned_ones() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    let kubeconfig = admin(&cluster, &agent);
    let run = |args: &[&str]| {
        let mut command = program();
        command.env("KUBECONFIG", &kubeconfig).arg(format!("--port={}", agent.address().port())).args(args);
        Said::of(&command.output().unwrap())
    };
    let said = run(&[]);
    assert!(said.code == Some(0) && said.row(NODE).starts_with(&format!("{NODE} Ready - >")), "{said:#?}");
    cluster.kubectl(&["cordon", NODE]);
    let said = until("the cordon", || Some(run(&["-o", "json"])).filter(|said| said.code == Some(1)));
    let document: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(document["nodes"][0]["reason"], "Unschedulable");
    let real = &document["nodes"][0]["status"];
    for key in ready("a").as_object().unwrap().keys() {
        assert!(real.get(key).is_some(), "no {key} in {real}");
    }
    // After a few seconds an agent does not know its probers yet.
    assert_eq!(document["nodes"][0]["acknowledged_known"], false);
}
