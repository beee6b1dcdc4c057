//! Failures of the programs, of the template and of the API server. The removal limit counts servers, and lets changes pass
//! that only look like a loss.

use crate::lab::{Lab, rounds};
use crate::servers::{Traffic, get, node_name};
use crate::statuses::{a_while, ingress, publishing, writes};
use nodegate_testbed::haproxy::check;
use nodegate_testbed::process::signal;
use serde_json::Value;
use std::time::Duration;

/// The number of objects that are kept.
const HELD: &str = "nodegate_haproxy_problems{kind=\"held\"}";

/// Kills either program at a random moment of a change, which is a reload or a few weights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_programs_are_killed_at_random_and_come_back() {
    let mut lab = Lab::new(2).await;
    lab.reload_interval = "0s";
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    for round in 0..rounds(6, 100) {
        let (node, weight) = (node_name(0), if round % 2 == 0 { 0 } else { 100 });
        assert!(if weight == 0 { lab.sim.cordon(&node) } else { lab.sim.uncordon(&node) });
        if round % 3 != 0 {
            lab.change(round);
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..600))).await;
        if fastrand::bool() {
            lab.kill_program().await;
            check(&lab.config).unwrap();
            lab.start_program();
        }
        if fastrand::bool() {
            lab.stop_haproxy();
            lab.start_haproxy().await;
        }
        lab.until_weight(&backend, 0, weight).await;
        lab.until("it is ready", async || lab.is_ready()).await;
        get(port).unwrap_or_else(|error| panic!("round {round}: {error}\n{}", lab.log()));
    }
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    // A reload may be under way.
    let files = ["haproxy.cfg.applied", "haproxy.cfg.states"];
    lab.until("no other file is left", async || lab.left_behind() == files).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_templates_a_frozen_master_and_an_api_outage_change_nothing() {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let old = lab.written();
    let traffic = Traffic::start(port);
    for (template, says) in [
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        (".if defined(NO)\nglobal\n", ".if"),
    ] {
        std::fs::write(&lab.template, template).unwrap();
        lab.until_logged(says).await;
        lab.until("the old file is back", async || lab.written() == old).await;
        lab.until("it is ready", async || lab.is_ready()).await;
    }
    // A broken template keeps no cordon from the running HAProxy and its file.
    lab.drain(&backend, 1).await;
    lab.until("the file has the cordon", async || lab.written().contains(" weight 0")).await;
    lab.undrain(&backend, 1).await;
    let before = lab.reloads().await;
    std::fs::write(&lab.template, "global\n  maxconn 1999").unwrap();
    lab.until_reloaded(before).await;

    let master = lab.haproxy.as_ref().and_then(tokio::process::Child::id).unwrap();
    signal(master, "STOP");
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("/readyz says so", async || lab.page("/readyz").contains("does not answer")).await;
    signal(master, "CONT");
    lab.until_weight(&backend, 0, 0).await;
    lab.undrain(&backend, 0).await;

    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    let old = lab.written();
    let watching = async || lab.metric("nodegate_haproxy_watching");
    lab.sim.kill().await;
    lab.until("the outage is seen", async || watching().await == Some(0.0)).await;
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!(lab.written(), old, "{}", lab.log());
    lab.sim.restart(true).await.unwrap();
    lab.until("it watches again", async || watching().await == Some(1.0)).await;
    lab.drain(&backend, 0).await;
    traffic.none_lost(&lab);
}

/// Each of them alone is within the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_nodes_that_vanish_one_after_the_other_within_a_moment_are_one_removal() {
    let mut lab = Lab::new(10).await;
    lab.publish().await;
    for index in 0..10 {
        assert!(lab.sim.delete("nodes", "", &node_name(index)));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    // On a busy machine, the first half may be one change, and the second half another one.
    lab.until("half of them are kept", async || lab.metric(HELD) >= Some(5.0)).await;
    a_while(&lab).await;
    let servers = lab.written().split_once("backend nodegate_nodes").unwrap().1.matches("  server ").count();
    assert!(servers >= 5, "{}", lab.written());
}

/// Loses etcd's data and gets it back: the lists have nothing meanwhile, and no watch has reported a deletion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_keeps_everything() {
    let mut lab = publishing(0).await;
    let empty = lab.sim.back_up_etcd();
    for index in 0..3 {
        lab.add_node(index);
    }
    let port = lab.publish().await;
    lab.until("it has a status", async || ingress(&lab, "web") != Value::Null).await;
    let applied = || lab.read("haproxy.cfg.applied");
    lab.until("it is remembered", async || applied().contains("\"web\"")).await;
    let (before, status, full) = (lab.written(), ingress(&lab, "web"), lab.sim.back_up_etcd());
    let traffic = Traffic::start(port);
    let sim = lab.sim.clone();
    let restored = async |etcd| {
        sim.kill().await;
        sim.restore_etcd(etcd);
        sim.restart(true).await.unwrap();
    };
    restored(&empty).await;
    lab.until_metric(HELD, 4.0).await;
    lab.kill_program().await;
    lab.start_program();
    lab.until_metric(HELD, 4.0).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!(lab.written(), before, "{}", lab.log());
    a_while(&lab).await;
    restored(&full).await;
    lab.until("nothing is kept any more", async || lab.metric(HELD).is_none()).await;
    a_while(&lab).await;
    assert_eq!((writes(&lab), ingress(&lab, "web")), (1, status), "{}", lab.log());
    traffic.none_lost(&lab);
}
