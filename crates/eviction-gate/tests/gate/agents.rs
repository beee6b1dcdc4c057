//! With the real agent, and with kubectl.

use crate::lab::{Lab, NAME};
use nodegate_testbed::{Agent, NODE, http, until};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The canned agents of these tests say what a real one says.
#[test]
fn a_real_agent_is_read_like_the_canned_ones() {
    let lab = Lab::with(|builder| builder.kubelets(true));
    let agent = lab.cluster.ready_agent(&["--told-probers=1"]);
    let gate = lab.gate(&[&port(&agent), "--unknown-hold=3s"]);
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

/// Two load balancers ask; plain kubectl drains. The agent has to listen for a minute and a half before it knows who asks.
#[test]
#[ignore = "two minutes: make gate-test"]
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
