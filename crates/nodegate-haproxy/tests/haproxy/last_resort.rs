//! No node is Ready, and requests are still served: by drained nodes, and by any node if no drained node
//! passes its check. The tests look at the requests that arrive, and at the nodes that they reach.

use crate::Row;
use crate::lab::{Lab, get, node_address, node_name};
use crate::servers::serve;
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::collections::BTreeSet;
use std::net::IpAddr;
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

/// Returns the nodes that many requests to a port reach.
fn reached(lab: &Lab, port: u16) -> BTreeSet<IpAddr> {
    let before = lab.served.lock().unwrap().clone();
    for _ in 0..30 {
        let _ = get(port);
    }
    let now = lab.served.lock().unwrap();
    now.iter().filter(|(at, count)| before.get(at) != Some(*count)).map(|(at, _)| *at).collect()
}

async fn until_reached(lab: &Lab, port: u16, nodes: &[usize]) {
    let wanted: BTreeSet<IpAddr> = nodes.iter().map(|index| node_address(*index)).collect();
    lab.until(&format!("requests to {port} reach {nodes:?}"), async || reached(lab, port) == wanted).await;
}

async fn drain(lab: &Lab, backend: &str, index: usize) {
    assert!(lab.sim.cordon(&node_name(index)));
    lab.until("it drains", async || lab.is_draining(backend, &node_name(index)).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_are_cordoned_and_no_request_is_lost() {
    mass_cordon().await;
}

pub(crate) async fn mass_cordon() -> Row {
    let (mut lab, _) = lab(3).await;
    let (web, tcp) = (ports::free(), ports::free());
    let mode = json!({"nodegate.io/haproxy-mode": "http"});
    lab.sim.apply(lab.service("web", web, &mode)).unwrap();
    let mut plain = lab.service("plain", tcp, &json!({}));
    plain["spec"]["ports"][0]["nodePort"] = json!(serve(lab.served.clone(), |_| true).await);
    lab.sim.apply(plain).unwrap();
    lab.start(&[web, tcp]).await;
    let before = lab.processes_now().await;
    let traffic = [Traffic::start(web), Traffic::start(tcp)];
    let backend = format!("nodegate_default_web_{web}");
    for index in 0..3 {
        drain(&lab, &backend, index).await;
    }
    let mut good = 0;
    for port in [web, tcp] {
        until_reached(&lab, port, &[0, 1, 2]).await;
    }
    assert!(lab.sim.uncordon(&node_name(1)));
    lab.until("it is back", async || lab.is_admin_ready(&backend, &node_name(1)).await).await;
    for traffic in traffic {
        let (answered, lost) = traffic.end();
        assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
        good += answered;
    }
    for port in [web, tcp] {
        until_reached(&lab, port, &[1]).await;
    }
    assert_eq!(lab.processes_now().await, before, "no reload, the same worker\n{}", lab.log());
    let result = format!("all serve; one uncordoned: only it; 0 reloads; {good} requests, 0 lost");
    Row { what: "all nodes cordoned", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_nodes_serve_before_those_that_are_not_ready_and_any_node_before_none() {
    the_least_bad_nodes().await;
}

pub(crate) async fn the_least_bad_nodes() -> Row {
    let (mut lab, sick) = lab(3).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    sick.lock().unwrap().insert(node_address(0));
    lab.sim.set_ready(&node_name(0), "False", "KubeletNotReady");
    for index in [1, 2] {
        drain(&lab, &backend, index).await;
    }
    until_reached(&lab, port, &[1, 2]).await;
    sick.lock().unwrap().extend([1, 2].map(node_address));
    until_reached(&lab, port, &[0, 1, 2]).await;
    sick.lock().unwrap().remove(&node_address(2));
    until_reached(&lab, port, &[2]).await;
    sick.lock().unwrap().clear();
    assert!(lab.sim.uncordon(&node_name(1)));
    until_reached(&lab, port, &[1]).await;
    let result = "drained ones alone; without a healthy one all; one healthy: only it; one Ready: only it";
    Row { what: "one NotReady, the others cordoned", result: result.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joined_without_a_reload_serves_in_the_last_resort_too() {
    joined_nodes().await;
}

pub(crate) async fn joined_nodes() -> Row {
    let (mut lab, _) = lab(2).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let before = lab.processes_now().await;
    lab.add_node(2);
    until_reached(&lab, port, &[0, 1, 2]).await;
    for index in 0..3 {
        drain(&lab, &backend, index).await;
    }
    until_reached(&lab, port, &[0, 1, 2]).await;
    lab.sim.delete_node(&node_name(0));
    until_reached(&lab, port, &[1, 2]).await;
    assert_eq!(lab.processes_now().await, before, "no reload, the same worker\n{}", lab.log());
    let result = "the joined one serves, the removed one does not; 0 reloads".to_owned();
    Row { what: "all cordoned, one joined and one removed", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_nodes_with_an_endpoint_serve_a_local_service() {
    local_service().await;
}

pub(crate) async fn local_service() -> Row {
    let (mut lab, _) = lab(3).await;
    let port = ports::free();
    let with_endpoint = |at| at != node_address(2);
    let health_port = serve(Arc::default(), with_endpoint).await;
    let mut local = lab.service("local", port, &json!({}));
    local["spec"]["type"] = json!("LoadBalancer");
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    local["spec"]["healthCheckNodePort"] = json!(health_port);
    lab.sim.apply(local).unwrap();
    lab.start(&[port]).await;
    let backend = format!("nodegate_default_local_{port}");
    until_reached(&lab, port, &[0, 1]).await;
    for index in 0..3 {
        drain(&lab, &backend, index).await;
    }
    until_reached(&lab, port, &[0, 1]).await;
    assert!(lab.sim.uncordon(&node_name(1)));
    until_reached(&lab, port, &[1]).await;
    let result = "those with an endpoint serve; one uncordoned: only it".to_owned();
    Row { what: "all cordoned, externalTrafficPolicy: Local", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_last_resort_a_mass_cordon_refuses_all() {
    let (mut lab, _) = lab(2).await;
    lab.arguments = vec!["--last-resort".to_owned(), "none".to_owned()];
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    for index in 0..2 {
        drain(&lab, &backend, index).await;
    }
    until_reached(&lab, port, &[]).await;
    assert!(!std::fs::read_to_string(&lab.config).unwrap().contains("last_resort"));
}
