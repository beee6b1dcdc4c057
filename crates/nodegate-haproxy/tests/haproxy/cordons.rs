//! A cordon, and the death of a node: with agents, without agents, and for a Service whose traffic stays on the
//! node.

use crate::lab::{Lab, get, node_address, node_name};
use crate::servers::{Counts, Switches, Traffic, serve_switched};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time without a failed request after which the last one was the last.
const QUIET: Duration = Duration::from_secs(3);

/// Starts a server that can't drain, only die.
async fn undrained(counts: Counts, switches: &Switches) -> u16 {
    serve_switched(counts, &Switches { draining: Arc::default(), ..switches.clone() }).await
}

/// kube-proxy answers 200 as long as there is an endpoint, so the watch alone drains the Service that it checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_and_a_death_with_agents_and_on_kube_proxy_s_port() {
    let (mut lab, switches) = (Lab::new(3).await, Switches::default());
    lab.check_port = serve_switched(lab.checked.clone(), &switches).await;
    lab.node_port = undrained(lab.served.clone(), &switches).await;
    // As in a package: the default.
    lab.reload_interval = "5s";
    let (local, health) = (ports::free(), undrained(Counts::default(), &switches).await);
    let more = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": health}});
    let node_port = undrained(lab.served.clone(), &switches).await;
    lab.sim.apply(Lab::service("local", local, node_port, &more)).unwrap();
    let web = lab.publish().await;
    lab.until("the other one is served", async || get(local).is_ok()).await;
    let traffic = [web, local].map(Traffic::start);
    for index in 0..3 {
        lab.until_asked(index).await;
    }
    switches.draining.lock().unwrap().insert(node_address(0));
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until_spared(0).await;
    for traffic in traffic {
        traffic.none_lost(&lab);
    }
    let traffic = [web, local].map(Traffic::start);
    lab.until_asked(1).await;
    let died = Instant::now();
    switches.dead.lock().unwrap().insert(node_address(1));
    for traffic in traffic {
        while died.elapsed() <= traffic.back_after(died) + QUIET {
            assert!(died.elapsed() < Duration::from_mins(1), "requests still fail\n{}", lab.log());
            tokio::time::sleep(QUIET).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_of_a_pool_stays_when_all_nodes_are_cordoned_and_the_others_wait_their_turn() {
    let mut lab = Lab::new(10).await;
    lab.arguments = vec!["--check=tcp:interval=500ms".to_owned(), "--max-drained=50%".to_owned()];
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    // Neither the order of names nor that of dates, which are of the same second.
    for index in [3, 1, 4, 0, 5, 9, 2, 6, 8, 7] {
        assert!(lab.sim.cordon(&node_name(index)));
    }
    lab.until_reached(port, &[2, 6, 7, 8, 9]).await;
    lab.until_metric("nodegate_haproxy_problems{kind=\"kept\"}", 5.0).await;
    assert!(lab.explain().contains("kept in the pool: 5 of 10 nodes are drained (--max-drained 50%)"));
    assert!(lab.sim.uncordon(&node_name(4)));
    lab.until_reached(port, &[2, 4, 6, 7, 8]).await;
    // The cordons that have left stay out over a restart, and with fewer nodes.
    lab.kill_program().await;
    assert!(lab.sim.delete("nodes", "", &node_name(8)) && lab.sim.uncordon(&node_name(3)));
    lab.start_program();
    lab.until_reached(port, &[2, 3, 4, 6, 7]).await;
    traffic.none_lost(&lab);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_without_agents_is_obeyed_and_the_failing_checks_are_named() {
    let mut lab = Lab::new(3).await;
    lab.check_port = ports::free();
    let port = lab.publish().await;
    lab.until_logged("no node passes HAProxy's check").await;
    lab.until_metric("nodegate_haproxy_nodes_passing", 0.0).await;
    let tables = lab.explain();
    assert!(tables.contains("No node passes HAProxy's check.") && tables.contains("fails"), "{tables}");
    let traffic = Traffic::start(port);
    lab.until_asked(0).await;
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until_spared(0).await;
    for index in [1, 2] {
        assert!(lab.sim.cordon(&node_name(index)));
    }
    lab.until_asked(0).await;
    traffic.none_lost(&lab);
}
