//! The states of a server before its first check, from the first request that HAProxy could give it.

use crate::Row;
use crate::lab::{Lab, get, node_address, node_name, service};
use crate::servers::{Counts, agents, count, serve};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Sends requests for a time. Returns how many were answered.
async fn ask_for(port: u16, long: Duration) -> usize {
    let (began, mut answered) = (Instant::now(), 0);
    while began.elapsed() < long {
        answered += usize::from(get(port).is_ok());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_disagrees_does_not_end_a_drain_of_the_first_load() {
    stubborn_agent_at_first_load().await;
}

pub(crate) async fn stubborn_agent_at_first_load() -> Row {
    let mut lab = Lab::new(3).await;
    lab.agent_port = agents(|_| b"up ready\n").await;
    let port = ports::free();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    assert!(lab.sim.cordon(&node_name(0)));
    lab.once(&[]).await;
    lab.start_haproxy().await;
    lab.until("the port answers", async || get(port).is_ok()).await;
    // Three of the agent's intervals, without any command to HAProxy.
    let answered = ask_for(port, Duration::from_millis(1600)).await;
    assert_eq!(count(&lab.served, 0), 0, "of {answered} requests\n{}", lab.log());
    lab.start_program(&[]);
    lab.until("the program is ready", async || lab.is_ready()).await;
    assert!(lab.sim.uncordon(&node_name(0)));
    lab.until("it serves", async || get(port).is_ok() && count(&lab.served, 0) > 0).await;
    let result =
        format!("0 of {answered} requests before the program says anything; requests after the uncordon");
    Row { what: "agent says ready, cordoned at the first load", result }
}

/// Returns true if a node has an endpoint of the Services below.
fn has_endpoint(at: IpAddr) -> bool {
    at == node_address(0) || at == node_address(1)
}

async fn local_service(name: &str, port: u16, node_port: u16) -> Value {
    let mut local = service(name, port, node_port, &json!({}));
    local["spec"]["type"] = json!("LoadBalancer");
    local["spec"]["externalTrafficPolicy"] = json!("Local");
    local["spec"]["healthCheckNodePort"] = json!(serve(Counts::default(), has_endpoint).await);
    local
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_local_service_gets_nothing_before_its_first_check() {
    local_servers_start_down().await;
}

pub(crate) async fn local_servers_start_down() -> Row {
    let port = ports::free();
    let mut lab = Lab::new(4).await;
    lab.publish().await;
    let served = Counts::default();
    let node_port = serve(served.clone(), |_| true).await;
    let traffic = Traffic::start(port);
    let strays = || served.lock().unwrap().keys().filter(|at| !has_endpoint(**at)).count();
    lab.sim.apply(local_service("local", port, node_port).await).unwrap();
    let both = async || count(&served, 0) > 0 && count(&served, 1) > 0;
    lab.until("the nodes with an endpoint serve", both).await;
    assert_eq!(strays(), 0, "of a new Service\n{}", lab.log());
    let backend = format!("nodegate_default_local_{port}");
    lab.add_node(4);
    lab.until("it is added", async || lab.is_admin_ready(&backend, &node_name(4)).await).await;
    ask_for(port, Duration::from_millis(600)).await;
    assert_eq!(strays(), 0, "of a new node\n{}", lab.log());
    let out = async || lab.admin_state(&backend, &node_name(2)).await.is_some_and(|state| state & 1 != 0);
    lab.sim.set_ready(&node_name(2), "False", "KubeletNotReady");
    lab.until("it is under maintenance", out).await;
    lab.sim.set_ready(&node_name(2), "True", "KubeletReady");
    lab.until("it is back", async || lab.is_admin_ready(&backend, &node_name(2)).await).await;
    ask_for(port, Duration::from_millis(600)).await;
    assert_eq!(strays(), 0, "of a node that is Ready again\n{}", lab.log());
    let (good, _) = traffic.end();
    let result = format!("{good} requests, 0 to nodes without endpoints: new Service, new node, Ready again");
    Row { what: "Local servers before their first check", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_local_services_are_all_looked_after() {
    many_local_services().await;
}

/// More Services than the program ever read back.
const MANY: u16 = 40;

pub(crate) async fn many_local_services() -> Row {
    let mut lab = Lab::new(3).await;
    let mut ports = Vec::new();
    for _ in 0..MANY {
        ports.push(ports::free());
    }
    ports.sort_unstable();
    let last = *ports.last().unwrap();
    let served = Counts::default();
    let node_port = serve(served.clone(), |_| true).await;
    for port in &ports {
        // Their backends are in the order of their names.
        let own = if *port == last { node_port } else { lab.node_port };
        lab.sim.apply(local_service(&format!("local-{port:05}"), *port, own).await).unwrap();
    }
    lab.start(&[last]).await;
    assert!(lab.sim.cordon(&node_name(0)));
    let backend = format!("nodegate_default_local-{last:05}_{last}");
    lab.until("it drains", async || lab.is_draining(&backend, &node_name(0)).await).await;
    lab.runtime().ask(&format!("set server {backend}/{} state ready", node_name(0))).await.unwrap();
    let before = count(&served, 0);
    lab.until("the server that came back serves", async || get(last).is_ok() && count(&served, 0) > before)
        .await;
    lab.until("it is taken out again", async || lab.is_draining(&backend, &node_name(0)).await).await;
    let before = count(&served, 0);
    for _ in 0..30 {
        get(last).unwrap();
    }
    assert_eq!(count(&served, 0), before, "{}", lab.log());
    // The results of the last Service's checks survive a reload, too: only node 1 has an endpoint and no
    // cordon. Before HAProxy 3.1, the very first process has node 2 up until its checks have failed, because
    // no process could be asked for states yet.
    let astray = count(&served, 2);
    let reloads = lab.processes_now().await.reloads;
    let traffic = Traffic::start(last);
    lab.sim.apply(lab.service("more", ports::free(), &json!({}))).unwrap();
    let reloaded = async || lab.processes().await.is_some_and(|now| now.reloads > reloads);
    lab.until("it is reloaded", reloaded).await;
    lab.until("traffic goes on", async || traffic.answered() > 100).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    assert_eq!(count(&served, 2), astray, "a node without an endpoint\n{}", lab.log());
    let result =
        format!("the last one's drain is made good again; {good} requests over a reload, 0 lost, 0 astray");
    Row { what: "40 Services with traffic policy Local", result }
}
