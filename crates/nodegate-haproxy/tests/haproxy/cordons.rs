//! A cordon, and the death of a node: with agents, without agents, and for a Service whose traffic stays on the node. If
//! no node is Ready, drained nodes serve, and any node if no drained one passes its check.

use crate::scenario::Scenario;
use crate::servers::{Counts, Statuses, Traffic, get, node_address, node_name, serve};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::time::{Duration, Instant};

const SICK: &str = "503 Service Unavailable";
/// The time without a failed request after which the last one was the last.
const QUIET: Duration = Duration::from_secs(3);

/// kube-proxy answers 200 as long as there is an endpoint, so the watch alone drains the Service that it checks.
#[test]
fn a_cordon_and_a_death_with_agents_and_on_kube_proxy_s_port() {
    let (mut scenario, agents, others) = (Scenario::new(3), Statuses::default(), Statuses::default());
    scenario.check_port = serve(&Counts::default(), &agents);
    scenario.node_port = serve(&scenario.served, &others);
    // As in a package: the default.
    scenario.reload_interval = "5s";
    let (local, health) = (ports::free(), serve(&Counts::default(), &others));
    let more = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": health}});
    let node_port = serve(&scenario.served, &others);
    scenario.sim.apply(Scenario::service("local", local, node_port, &more)).unwrap();
    let web = scenario.publish();
    scenario.until("the other one is served", || get(local).is_ok());
    let traffic = [web, local].map(Traffic::start);
    for index in 0..3 {
        scenario.until_asked(index);
    }
    agents.lock().unwrap().insert(node_address(0), "404 Not Found");
    assert!(scenario.sim.cordon(&node_name(0)));
    scenario.until_spared(0);
    for traffic in traffic {
        traffic.none_lost(&scenario);
    }
    let traffic = [web, local].map(Traffic::start);
    scenario.until_asked(1);
    let died = Instant::now();
    for server in [agents, others] {
        server.lock().unwrap().insert(node_address(1), "");
    }
    for traffic in traffic {
        while died.elapsed() <= traffic.back_after(died) + QUIET {
            assert!(died.elapsed() < Duration::from_mins(1), "requests still fail\n{}", scenario.log());
            std::thread::sleep(QUIET);
        }
    }
}

#[test]
fn half_of_a_pool_stays_when_all_nodes_are_cordoned_and_the_others_wait_their_turn() {
    let mut scenario = Scenario::new(10);
    scenario.arguments = vec!["--check=tcp:interval=500ms".to_owned(), "--max-drained=50%".to_owned()];
    let port = scenario.publish();
    let traffic = Traffic::start(port);
    // Neither the order of names nor that of dates, which are of the same second.
    for index in [3, 1, 4, 0, 5, 9, 2, 6, 8, 7] {
        assert!(scenario.sim.cordon(&node_name(index)));
    }
    scenario.until_reached(port, &[2, 6, 7, 8, 9]);
    scenario.until_metric("nodegate_haproxy_problems{kind=\"kept\"}", 5.0);
    assert!(scenario.explain().contains("kept in the pool: 5 of 10 nodes are drained (--max-drained 50%)"));
    assert!(scenario.sim.uncordon(&node_name(4)));
    scenario.until_reached(port, &[2, 4, 6, 7, 8]);
    // The cordons that have left stay out over a restart, and with fewer nodes.
    scenario.kill_program();
    assert!(scenario.sim.delete("nodes", "", &node_name(8)) && scenario.sim.uncordon(&node_name(3)));
    scenario.start_program();
    scenario.until_reached(port, &[2, 3, 4, 6, 7]);
    traffic.none_lost(&scenario);
}

#[test]
fn a_cordon_without_agents_is_obeyed_and_the_failing_checks_are_named() {
    let mut scenario = Scenario::new(3);
    scenario.check_port = ports::free();
    let port = scenario.publish();
    scenario.until_logged("no node passes HAProxy's check");
    scenario.until_metric("nodegate_haproxy_nodes_passing", 0.0);
    let tables = scenario.explain();
    assert!(tables.contains("No node passes HAProxy's check.") && tables.contains("fails"), "{tables}");
    let traffic = Traffic::start(port);
    scenario.until_asked(0);
    assert!(scenario.sim.cordon(&node_name(0)));
    scenario.until_spared(0);
    for index in [1, 2] {
        assert!(scenario.sim.cordon(&node_name(index)));
    }
    scenario.until_asked(0);
    traffic.none_lost(&scenario);
}

#[test]
fn drained_nodes_serve_before_those_that_are_not_ready_and_any_node_before_none() {
    let (mut scenario, agents) = (Scenario::new(3), Statuses::default());
    scenario.check_port = serve(&Counts::default(), &agents);
    let port = scenario.publish();
    let traffic = Traffic::start(port);
    for index in 0..3 {
        scenario.drain(port, index);
    }
    scenario.until_reached(port, &[0, 1, 2]);
    scenario.undrain(port, 0);
    scenario.until_reached(port, &[0]);
    traffic.none_lost(&scenario);
    for index in [1, 2] {
        scenario.undrain(port, index);
    }
    agents.lock().unwrap().insert(node_address(0), SICK);
    scenario.sim.set_ready(&node_name(0), "False", "KubeletNotReady");
    for index in [1, 2] {
        scenario.drain(port, index);
    }
    scenario.until_reached(port, &[1, 2]);
    agents.lock().unwrap().extend([1, 2].map(|index| (node_address(index), SICK)));
    scenario.until_reached(port, &[0, 1, 2]);
    agents.lock().unwrap().remove(&node_address(2));
    scenario.until_reached(port, &[2]);
    agents.lock().unwrap().clear();
    assert!(scenario.sim.uncordon(&node_name(1)));
    scenario.until_reached(port, &[1]);
}
