//! Nodes that were out when HAProxy loaded its configuration get traffic again. The tests look at the
//! requests that reach them, because HAProxy can report a server as ready while its checks go nowhere.

use crate::Row;
use crate::lab::{Lab, get, node, node_address, node_name, service};
use crate::servers::{Counts, count, serve};
use nodegate_kube_sim::Sim;
use nodegate_testbed::network::ports;
use serde_json::json;

/// More health checks in a row than bring a server down or up.
const CHECKS: u64 = 3;

/// Asks a port until a request has reached a node. First waits for some rounds of checks, because a server
/// whose checks get no answer is up until they have failed.
pub(crate) async fn reaches(lab: &Lab, port: u16, counts: &Counts, index: usize) {
    let before = lab.checked.lock().unwrap().clone();
    lab.until("nodes have been checked again", async || {
        let now = lab.checked.lock().unwrap();
        now.iter().any(|(node, count)| *count >= before.get(node).copied().unwrap_or(0) + CHECKS)
    })
    .await;
    let before = count(counts, index);
    lab.until(&format!("a request to port {port} reaches node {index}"), async || {
        let _ = get(port);
        count(counts, index) > before
    })
    .await;
}

/// Checks that many requests to a port do not reach a node.
pub(crate) fn spares(lab: &Lab, port: u16, index: usize) {
    let before = count(&lab.served, index);
    for _ in 0..30 {
        get(port).unwrap();
    }
    assert_eq!(count(&lab.served, index), before, "it gets traffic\n{}", lab.log());
}

/// Adds a Service, for which HAProxy is reloaded. Returns its port.
pub(crate) async fn reload(lab: &Lab) -> u16 {
    let before = lab.processes_now().await.reloads;
    let port = ports::free();
    lab.sim.apply(lab.service(&format!("more-{port}"), port, &json!({}))).unwrap();
    lab.until("HAProxy is reloaded", async || {
        lab.processes().await.is_some_and(|now| now.reloads > before) && get(port).is_ok()
    })
    .await;
    port
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cordoned_at_the_first_load_gets_traffic_after_its_uncordon() {
    cordoned_at_first_load().await;
}

pub(crate) async fn cordoned_at_first_load() -> Row {
    first_load("cordoned at the first load", Sim::cordon, Sim::uncordon).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_not_ready_at_the_first_load_gets_traffic_when_it_is() {
    not_ready_at_first_load().await;
}

pub(crate) async fn not_ready_at_first_load() -> Row {
    first_load(
        "NotReady at the first load",
        |sim, node| sim.set_ready(node, "False", "KubeletNotReady"),
        |sim, node| sim.set_ready(node, "True", "KubeletReady"),
    )
    .await
}

async fn first_load(what: &'static str, out: fn(&Sim, &str) -> bool, back: fn(&Sim, &str) -> bool) -> Row {
    let mut lab = Lab::new(3).await;
    assert!(out(&lab.sim, &node_name(0)));
    let port = lab.publish().await;
    spares(&lab, port, 0);
    assert!(back(&lab.sim, &node_name(0)));
    reaches(&lab, port, &lab.served, 0).await;
    // The next process gets a state that is just as good.
    let other = reload(&lab).await;
    reaches(&lab, port, &lab.served, 0).await;
    reaches(&lab, other, &lab.served, 0).await;
    Row { what, result: "0 requests while out; requests again, over a reload".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cordoned_at_one_once_gets_traffic_after_the_next() {
    cordoned_at_once().await;
}

pub(crate) async fn cordoned_at_once() -> Row {
    let mut lab = Lab::new(3).await;
    let port = ports::free();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    assert!(lab.sim.cordon(&node_name(0)));
    lab.once(&[]).await;
    lab.start_haproxy().await;
    lab.until("the port answers", async || get(port).is_ok()).await;
    spares(&lab, port, 0);
    assert!(lab.sim.uncordon(&node_name(0)));
    let master = lab.master_socket().to_string_lossy().into_owned();
    lab.once(&["--master-socket", &master]).await;
    reaches(&lab, port, &lab.served, 0).await;
    Row { what: "cordoned at --once, and not at the next", result: "requests again".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cordoned_at_a_reload_gets_traffic_after_its_uncordon() {
    cordoned_at_a_reload().await;
}

pub(crate) async fn cordoned_at_a_reload() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    lab.add_node(2);
    reaches(&lab, port, &lab.served, 2).await;
    assert!(lab.sim.cordon(&node_name(2)));
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(2)).await).await;
    let other = reload(&lab).await;
    spares(&lab, port, 2);
    assert!(lab.sim.uncordon(&node_name(2)));
    reaches(&lab, port, &lab.served, 2).await;
    reaches(&lab, other, &lab.served, 2).await;
    Row { what: "joined, cordoned, reload, uncordoned", result: "requests again".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_joins_cordoned_gets_traffic_after_its_uncordon() {
    joins_cordoned().await;
}

pub(crate) async fn joins_cordoned() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    let backend = format!("nodegate_default_web_{port}");
    let mut new = node(2);
    new["spec"]["unschedulable"] = json!(true);
    lab.sim.apply(new).unwrap();
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(2)).await).await;
    spares(&lab, port, 2);
    let other = reload(&lab).await;
    spares(&lab, port, 2);
    assert!(lab.sim.uncordon(&node_name(2)));
    reaches(&lab, port, &lab.served, 2).await;
    reaches(&lab, other, &lab.served, 2).await;
    Row { what: "joins cordoned, reload, uncordoned", result: "requests again".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_service_that_moves_to_another_node_port_is_reached_there() {
    local_service_moves().await;
}

pub(crate) async fn local_service_moves() -> Row {
    let mut lab = Lab::new(2).await;
    let port = ports::free();
    let health_port = serve(lab.checked.clone(), |_| true).await;
    let at = |node_port| {
        let mut local = service("local", port, node_port, &json!({}));
        local["spec"]["type"] = json!("LoadBalancer");
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        local["spec"]["healthCheckNodePort"] = json!(health_port);
        local
    };
    lab.sim.apply(at(lab.node_port)).unwrap();
    lab.start(&[port]).await;
    reaches(&lab, port, &lab.served, 0).await;
    let counts = Counts::default();
    lab.sim.delete("services", "default", "local");
    lab.sim.apply(at(serve(counts.clone(), |_| true).await)).unwrap();
    for index in 0..2 {
        reaches(&lab, port, &counts, index).await;
    }
    Row { what: "Local Service with another nodePort", result: "requests at the new port".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_made_again_is_reached_at_its_new_node_port() {
    made_again().await;
}

pub(crate) async fn made_again() -> Row {
    let mut lab = Lab::new(3).await;
    let port = lab.publish().await;
    // The current states of its servers are in the state file for the next process.
    assert!(lab.sim.cordon(&node_name(2)));
    let backend = format!("nodegate_default_web_{port}");
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(2)).await).await;
    let counts = Counts::default();
    lab.sim.delete("services", "default", "web");
    lab.until("its port is closed", async || get(port).is_err()).await;
    lab.sim.apply(service("web", port, serve(counts.clone(), |_| true).await, &json!({}))).unwrap();
    for index in 0..2 {
        reaches(&lab, port, &counts, index).await;
    }
    assert_eq!(count(&counts, 2), 0, "it is cordoned\n{}", lab.log());
    assert!(lab.sim.uncordon(&node_name(2)));
    reaches(&lab, port, &counts, 2).await;
    let result = "its port is closed meanwhile; requests at the new port".to_owned();
    Row { what: "the only Service deleted and made again", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_without_ports_are_healed_by_the_next_reload() {
    states_without_ports().await;
}

pub(crate) async fn states_without_ports() -> Row {
    let mut lab = Lab::new(2).await;
    // Without this option, nodes that are wrongly down would serve anyway.
    lab.arguments = vec!["--last-resort".to_owned(), "none".to_owned()];
    let port = ports::free();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.once(&[]).await;
    // An earlier version wrote the lines like this. HAProxy still runs with these states, and reports them
    // when asked.
    let line = |index| {
        let (name, address) = (node_name(index), node_address(index));
        format!("1 nodegate_nodes 1 {name} {address} 2 0 1 1 0 1 0 1 6 22 0 0 - 0 - 0 0 - - 0\n")
    };
    let saved = lab.state("servers");
    std::fs::write(saved, format!("1\n{}{}", line(0), line(1))).unwrap();
    lab.start_haproxy().await;
    lab.until("all servers are down", async || get(port).is_err()).await;
    lab.start_program(&[]);
    lab.until("the program is ready", async || lab.is_ready()).await;
    let other = reload(&lab).await;
    for index in 0..2 {
        reaches(&lab, port, &lab.served, index).await;
        reaches(&lab, other, &lab.served, index).await;
    }
    Row { what: "HAProxy runs with ports of 0", result: "healed by the next reload".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_checked_at_the_port_that_the_program_was_last_started_with() {
    another_check_port().await;
}

pub(crate) async fn another_check_port() -> Row {
    let mut lab = Lab::new(2).await;
    let port = lab.publish().await;
    lab.program.take().unwrap().kill().await.unwrap();
    lab.checked = Counts::default();
    lab.check_port = serve(lab.checked.clone(), |_| true).await;
    lab.start_program(&[]);
    for index in 0..2 {
        reaches(&lab, port, &lab.served, index).await;
    }
    Row { what: "started with another --check-port", result: "all nodes are checked there".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_file_of_the_operators_does_not_reach_our_servers() {
    operators_state_file().await;
}

pub(crate) async fn operators_state_file() -> Row {
    let mut lab = Lab::new(2).await;
    let dump = lab.dir.path().join("operators.state");
    let template = lab.dir.path().join("head");
    let head = format!(
        "global\n  server-state-file {}\ndefaults\n  timeout connect 2s\n  timeout client 20s\n  timeout server 20s\n  \
         load-server-state-from-file global\n",
        dump.display()
    );
    std::fs::write(&template, head).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let port = lab.publish().await;
    reaches(&lab, port, &lab.served, 0).await;
    std::fs::write(&dump, lab.runtime().ask("show servers state").await.unwrap()).unwrap();
    let counts = Counts::default();
    lab.sim.apply(service("web", port, serve(counts.clone(), |_| true).await, &json!({}))).unwrap();
    for index in 0..2 {
        reaches(&lab, port, &counts, index).await;
    }
    Row { what: "the head has a server-state-file of its own", result: "requests at the new port".to_owned() }
}
