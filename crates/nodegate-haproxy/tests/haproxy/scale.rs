//! Thousands of nodes: memory, reloads and lost requests.

use crate::lab::{Lab, node, node_name, service};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_depend_on_the_size_of_nodes() {
    let mut sizes = Vec::new();
    for bytes in [4_000, 40_000] {
        let mut lab = Lab::new(0).await;
        for index in 0..300 {
            let mut node = node(index);
            node["status"]["images"] = json!([{"names": ["x".repeat(bytes)], "sizeBytes": 1}]);
            lab.sim.apply(node).unwrap();
        }
        lab.sim.apply(lab.service("web", ports::free(), &json!({}))).unwrap();
        lab.start_program();
        lab.until("the file is written", async || lab.config.exists()).await;
        sizes.push(lab.memory().0 >> 10);
    }
    assert!(sizes[1] < sizes[0] + 16, "{sizes:?} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; make haproxy-test"]
async fn two_thousand_nodes_drain_under_traffic() {
    let mut lab = Lab::new(2000).await;
    lab.reload_interval = "5s";
    // All nodes are one process here, which takes a while for 4,000 checks at once. A late answer would take a node
    // down, and HAProxy recounts all servers of 50 backends for each node that goes down or comes back.
    let check = format!("--check=agent:port={},interval=10s", lab.check_port);
    lab.arguments = vec![check, "--timeouts=connect=30s,check=30s".to_owned()];
    // Reserved, because HAProxy would share a port with another process without an error.
    let base = ports::free();
    for index in 0..50 {
        let port = if index == 0 { base } else { ports::free() };
        let service = service(&format!("service-{index}"), port, lab.node_port, &json!({}));
        lab.sim.apply(service).unwrap();
    }
    let began = Instant::now();
    lab.start(&[base]).await;
    let started = began.elapsed();
    let traffic = crate::traffic::Traffic::start(base);
    let before = lab.reloads().await;
    let backend = format!("nodegate_default_service-0_{base}");
    let began = Instant::now();
    for wave in 0..3 {
        for index in 0..25 {
            lab.sim.cordon(&node_name(wave * 25 + index));
        }
        let last = node_name(wave * 25 + 24);
        lab.until("the wave drains", async || lab.weight(&backend, &last).await == Some(0)).await;
    }
    let took = began.elapsed() / 3;
    let reloads = lab.reloads().await - before;
    let good = traffic.none_lost(&lab);
    let (resident, peak) = lab.memory();
    println!(
        "2,000 nodes x 50 Services: start {started:.0?}; 3 waves of 25 cordons: {took:.1?} each, {reloads} reloads; \
             {good} requests, 0 lost; {} MiB, peak {} MiB",
        resident >> 10,
        peak >> 10
    );
}
