//! No node is Ready, and requests are still served: by drained nodes, and by any node if no drained node
//! passes its check. The tests look at the requests that arrive, and at the nodes that they reach.

use crate::lab::{Lab, node_address, node_name};
use crate::servers::{Traffic, serve, serve_requests};
use nodegate_readiness::EXCLUDE_LABEL;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Nodes whose health check fails.
type Sick = Arc<Mutex<BTreeSet<IpAddr>>>;

/// Starts a lab whose nodes can be made sick.
async fn lab(nodes: usize) -> (Lab, Sick) {
    let (mut lab, sick) = (Lab::new(nodes).await, Sick::default());
    let seen = sick.clone();
    lab.check_port = serve(lab.checked.clone(), move |at| !seen.lock().unwrap().contains(&at)).await;
    (lab, sick)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_nodes_serve_before_those_that_are_not_ready_and_any_node_before_none() {
    let (mut lab, sick) = lab(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let traffic = Traffic::start(port);
    for index in 0..3 {
        lab.drain(&backend, index).await;
    }
    lab.until_reached(port, &[0, 1, 2]).await;
    lab.undrain(&backend, 0).await;
    lab.until_reached(port, &[0]).await;
    traffic.none_lost(&lab);
    for index in [1, 2] {
        lab.undrain(&backend, index).await;
    }
    sick.lock().unwrap().insert(node_address(0));
    lab.sim.set_ready(&node_name(0), "False", "KubeletNotReady");
    for index in [1, 2] {
        lab.drain(&backend, index).await;
    }
    lab.until_reached(port, &[1, 2]).await;
    sick.lock().unwrap().extend([1, 2].map(node_address));
    lab.until_reached(port, &[0, 1, 2]).await;
    sick.lock().unwrap().remove(&node_address(2));
    lab.until_reached(port, &[2]).await;
    sick.lock().unwrap().clear();
    assert!(lab.sim.uncordon(&node_name(1)));
    lab.until_reached(port, &[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_out_by_their_label_serve_before_drained_ones() {
    let mut lab = Lab::new(3).await;
    let (cordoned, asked) = (Sick::default(), Arc::new(AtomicBool::new(false)));
    let (out, seen) = (cordoned.clone(), asked.clone());
    // As agents answer of nodes with the label.
    lab.check_port = serve_requests(move |at, request| {
        let is_excepted = request.contains("drain=404&excluded=200") && !out.lock().unwrap().contains(&at);
        seen.fetch_or(is_excepted, Ordering::Relaxed);
        if is_excepted || request.contains("drain=200") { "200 OK" } else { "404 Not Found" }
    })
    .await;
    for index in 0..3 {
        lab.sim.label(&node_name(index), EXCLUDE_LABEL, Some(""));
    }
    let port = lab.publish().await;
    lab.until_reached(port, &[0, 1, 2]).await;
    let traffic = Traffic::start(port);
    let cordon = |index| {
        cordoned.lock().unwrap().insert(node_address(index));
        assert!(lab.sim.cordon(&node_name(index)));
    };
    cordon(0);
    lab.until_reached(port, &[1, 2]).await;
    assert!(asked.load(Ordering::Relaxed), "the agents know who has acknowledged it");
    cordon(1);
    lab.until_reached(port, &[2]).await;
    cordon(2);
    lab.until_reached(port, &[0, 1, 2]).await;
    traffic.none_lost(&lab);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_nodes_with_an_endpoint_serve_a_local_service() {
    let (mut lab, _) = lab(3).await;
    let with_endpoint = |at| at != node_address(2);
    let health_port = serve(Arc::default(), with_endpoint).await;
    let more = json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": health_port}});
    let port = lab.add("local", more).await;
    lab.start(&[port]).await;
    let backend = format!("nodegate_default_local_{port}");
    lab.until_reached(port, &[0, 1]).await;
    for index in 0..3 {
        lab.drain(&backend, index).await;
    }
    lab.until_reached(port, &[0, 1]).await;
    assert!(lab.sim.uncordon(&node_name(1)));
    lab.until_reached(port, &[1]).await;
}
