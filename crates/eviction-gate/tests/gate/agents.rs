//! With the real agent, and with kubectl.

use crate::lab::{Gate, Lab, NAME};
use nodegate_testbed::network::node_network::NodeNetwork;
use nodegate_testbed::process::StoppedProcess;
use nodegate_testbed::{Agent, Cluster, NODE, http, programs, until};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The canned agents of these tests say what a real one says.
#[test]
fn a_real_agent_is_read_like_the_canned_ones() {
    let lab = Lab::with(|builder| builder.kubelets(true));
    let agent = lab.cluster.ready_agent(&["--told-probers=1"]);
    let gate = lab.gate(&[&port(&agent), "--told-unknown-hold=3s"]);
    lab.pod("p");
    lab.sim().cordon(NODE);
    agent.wait_for("the cordon", |reply| reply.status == 503);
    let evicted = lab.evict("p");
    assert_eq!(evicted.code, 429, "{evicted:?}");
    assert!(evicted.message.contains("the agent has listened for"), "{evicted:?}");
    let real = agent.get("/drain.json").json();
    for key in crate::lab::draining("u").as_object().unwrap().keys() {
        assert!(real.get(key).is_some() || key == "waiting_for", "no {key} in {real}");
    }
    assert_eq!((&real["not_known_code"], &real["uid"]), (&"listening".into(), &lab.uid.as_str().into()));
    lab.evict_until_allowed("p");
    gate.wait_for_reviews("allowed", "not_known", 1);
}

fn port(agent: &Agent) -> String {
    format!("--agent-port={}", agent.address().port())
}

/// Evicts a pod until the gate lets it go after `--told-unknown-hold` (2 s), for this reason.
fn held_for_a_while(lab: &Lab, gate: &Gate, says: &str, why: &str) {
    lab.pod("p");
    let (refused, evicted) = lab.evict_until_allowed("p");
    assert!(refused.iter().any(|refused| refused.message.contains(says)), "{refused:?}");
    assert!(evicted.warning.as_ref().is_some_and(|text| text.contains("held for 4 s")), "{evicted:?}");
    gate.wait_for_reviews("allowed", why, 1);
}

#[test]
fn a_hung_agent_holds_for_a_while() {
    let lab = Lab::with(|builder| builder.kubelets(true));
    let agent = lab.cluster.ready_agent(&[]);
    let gate = lab.gate_in("agent=1000", &[&port(&agent), "--told-unknown-hold=4s"]);
    lab.sim().cordon(NODE);
    let _stopped = StoppedProcess::new(agent.pid());
    held_for_a_while(&lab, &gate, "the node's agent does not answer", "unreachable");
}

#[test]
fn another_clusters_agent_holds_for_a_while() {
    let (lab, other) = (Lab::new(), Cluster::start());
    let agent = other.ready_agent(&[]);
    let gate = lab.gate(&[&port(&agent), "--told-unknown-hold=4s"]);
    lab.sim().cordon(NODE);
    held_for_a_while(&lab, &gate, "another cluster's agent answers at 127.0.0.1", "wrong_agent");
}

/// The test is on the node; cluster and gate are on its router.
#[test]
fn an_agent_that_shuts_the_gate_out_holds_for_a_while() {
    const FLAGS: [&str; 2] = ["--agent-port=25001", "--told-unknown-hold=4s"];
    let net = NodeNetwork::start();
    let lab =
        net.on_router(|| Lab::with(|builder| builder.listen(([10, 77, 0, 1], 0).into()).kubelets(true)));
    lab.sim().edit_node(NODE, "kubelet", |node| {
        node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "10.77.0.2"}]);
    });
    let agent = |allow_from: &str| {
        let mut command = Command::new(programs::agent());
        command.args(["--listen-address=10.77.0.2", "--listen-port=25001", allow_from]);
        let agent = lab.cluster.launch(command);
        agent.wait_ready();
        agent
    };
    let shut = agent("--allow-from=10.77.0.9");
    let gate = net.on_router(|| lab.gate_in("agent=1000", &FLAGS));
    lab.sim().cordon(NODE);
    net.on_router(|| held_for_a_while(&lab, &gate, "the node's agent does not answer", "unreachable"));
    assert!(shut.metric("nodegate_connections_denied_total").unwrap() >= 1.0);
    drop(shut);
    lab.sim().uncordon(NODE);
    let _open = agent("--allow-from=10.77.0.1");
    net.on_router(|| {
        lab.pod("q");
        assert_eq!(lab.evict("q").code, 201, "not draining");
        lab.sim().cordon(NODE);
        held_for_a_while(&lab, &gate, "the agent has listened for", "not_known");
    });
}

/// Two load balancers ask; plain kubectl drains. The agent has to listen for a minute and a half before it knows its probers.
#[test]
#[ignore = "two minutes: make drains"]
fn plain_kubectl_drain_waits_for_both_balancers() {
    let lab = Lab::with(|builder| builder.kubelets(true));
    let agent = lab.cluster.ready_agent(&[]);
    let gate = lab.gate(&[&port(&agent)]);
    let (address, ended) = (agent.address(), Arc::new(AtomicBool::new(false)));
    let askers: Vec<_> = ["/health", "/health?drain=404"]
        .map(|question| {
            let ended = ended.clone();
            std::thread::spawn(move || {
                let mut first_out = None;
                while !ended.load(Ordering::SeqCst) {
                    let Ok(reply) = http::get(address, question) else { continue };
                    if reply.status != 200 && first_out.is_none() {
                        first_out = Some(Instant::now());
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
                first_out
            })
        })
        .into();
    until("both to be known", || {
        std::thread::sleep(Duration::from_millis(500));
        let drain: Value = agent.get("/drain.json").json();
        (drain["probers"] == 2 && drain["not_known_code"].is_null()).then_some(())
    });
    for name in ["p", "q"] {
        lab.pod(name);
    }
    let began = Instant::now();
    lab.cluster.kubectl(&["drain", NODE, "--force", "--ignore-daemonsets"]);
    let drained = Instant::now();
    ended.store(true, Ordering::SeqCst);
    for asker in askers {
        let out = asker.join().unwrap().expect("an answer that takes the node out");
        assert!(out < drained, "told before the end of the drain");
    }
    assert!(gate.reviews_of("denied", "waiting") >= 1, "{}", gate.page("/metrics").body);
    gate.wait_for_reviews("allowed", "told", 2);
    eprintln!("{NAME}: plain kubectl drain took {:.1} s", (drained - began).as_secs_f64());
}
