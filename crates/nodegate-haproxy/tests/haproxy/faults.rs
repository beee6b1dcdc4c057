//! Failures of the programs, of the template and of the API server.

use crate::lab::{Lab, get, node_name};
use crate::servers::Traffic;
use nodegate_testbed::haproxy::check;
use nodegate_testbed::process::signal;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_programs_are_killed_at_random_and_come_back() {
    are_killed(6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn both_programs_are_killed_a_hundred_times_and_come_back() {
    are_killed(100).await;
}

/// Kills either program at a random moment of a change, which is a reload or a few weights.
async fn are_killed(rounds: u64) {
    let mut lab = Lab::new(2).await;
    lab.reload_interval = "0s";
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    for round in 0..rounds {
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
    let old = std::fs::read(&lab.config).unwrap();
    let traffic = Traffic::start(port);
    for (template, says) in [
        ("global\n  no-such-keyword\n", "no-such-keyword"),
        ("defaults nodegate\n", "which the generated part has"),
        ("global\n  zero-warning\n", "it has zero-warning"),
        (
            "backend own\n  server a 127.0.0.1:1 track nodegate_nodes/node-000\n",
            "it has nodegate_nodes/node-000",
        ),
        (".if defined(NO)\nglobal\n", ".if"),
    ] {
        std::fs::write(&lab.template, template).unwrap();
        lab.until_logged(says).await;
        lab.until("the old file is back", async || std::fs::read(&lab.config).unwrap() == old).await;
        lab.until("it is ready", async || lab.is_ready()).await;
    }
    // A broken template keeps no cordon from the running HAProxy and its file.
    lab.drain(&backend, 1).await;
    let cordoned = async || std::fs::read_to_string(&lab.config).unwrap().contains(" weight 0");
    lab.until("the file has the cordon", cordoned).await;
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
    let old = std::fs::read(&lab.config).unwrap();
    let watching = async || lab.metric("nodegate_haproxy_watching");
    lab.sim.kill().await;
    lab.until("the outage is seen", async || watching().await == Some(0.0)).await;
    let before = traffic.answered();
    lab.until("traffic goes on", async || traffic.answered() > before + 20).await;
    lab.until("it is ready", async || lab.is_ready()).await;
    assert_eq!(std::fs::read(&lab.config).unwrap(), old, "{}", lab.log());
    lab.sim.restart(true).await.unwrap();
    lab.until("it watches again", async || watching().await == Some(1.0)).await;
    lab.drain(&backend, 0).await;
    traffic.none_lost(&lab);
}
