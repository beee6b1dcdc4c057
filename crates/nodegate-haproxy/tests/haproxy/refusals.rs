//! A frontend that HAProxy refuses affects no other.

use crate::Row;
use crate::lab::{Lab, get, get_from, node_name};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Instant;

const PROBLEMS: &str = "nodegate_haproxy_problems";

/// Returns how often HAProxy has refused a frontend.
fn refusals(lab: &Lab) -> u64 {
    lab.whole_log().matches("HAProxy rejects a frontend").count() as u64
}

/// Adds a Service and a node while HAProxy refuses another Service, and checks that both are served.
async fn others_go_on(lab: &Lab, port: u16) {
    let other = ports::free();
    lab.sim.apply(lab.service("other", other, &json!({}))).unwrap();
    lab.until("another Service is served", async || get(other).is_ok()).await;
    lab.add_node(7);
    lab.until_asked(7).await;
    assert!(get(port).is_ok(), "{}", lab.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frontend_that_haproxy_cannot_read_is_set_aside_and_tried_again() {
    unreadable().await;
}

pub(crate) async fn unreadable() -> Row {
    let mut lab = Lab::new(2).await;
    let (template, list) = (lab.dir.path().join("own.cfg.j2"), lab.dir.path().join("list"));
    let head = "defaults\n  timeout connect 2s\n  timeout client 9s\n  timeout server 9s\n";
    let mode = "\n  mode {{ f.mode }}\n{%- for bind";
    let tricky = format!(
        "\n  mode {{{{ f.mode }}}}\n{{%- if f.service == 'tricky' %}}\n  acl x src -f {}{{% endif %}}\n{{%- for bind",
        list.display()
    );
    let sections = include_str!("../../templates/sections.cfg.j2");
    assert_eq!(sections.matches(mode).count(), 1);
    std::fs::write(&template, format!("{head}{}", sections.replace(mode, &tricky))).unwrap();
    lab.arguments = vec!["--template".to_owned(), template.to_string_lossy().into_owned()];
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let refused = ports::free();
    lab.sim.apply(lab.service("tricky", refused, &json!({}))).unwrap();
    lab.until("it is named", async || lab.metric(&format!("{PROBLEMS}{{kind=\"refused\"}}")) == Some(1.0))
        .await;
    lab.until_logged(&format!("HAProxy refuses port {refused}")).await;
    lab.until_logged("default/tricky").await;
    others_go_on(&lab, port).await;
    assert!(get(refused).is_err(), "{}", lab.log());
    std::fs::write(&list, "192.0.2.1\n").unwrap();
    lab.until("it is tried again", async || get(refused).is_ok()).await;
    lab.until("nothing is wrong any more", async || {
        lab.metric(&format!("{PROBLEMS}{{kind=\"refused\"}}")).is_none()
    })
    .await;
    // The running version stays in effect if HAProxy refuses a newer one.
    std::fs::remove_file(&list).unwrap();
    let mut worse = lab.service("web", port, &json!({"nodegate.io/haproxy-balance": "leastconn"}));
    worse["metadata"]["name"] = json!("web");
    lab.sim.apply(worse).unwrap();
    lab.until("the other change is loaded", async || {
        std::fs::read_to_string(&lab.config).unwrap().contains("balance leastconn")
    })
    .await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("set aside by name, others served, tried again; {good} requests, 0 lost");
    Row { what: "a frontend that HAProxy can't read", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_this_host_lacks_harms_nobody_else() {
    absent_address().await;
}

pub(crate) async fn absent_address() -> Row {
    let mut lab = Lab::new(2).await;
    lab.arguments = vec!["--bind=here=127.0.0.1,there=192.0.2.1".to_owned()];
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let there = json!({"nodegate.io/haproxy-bind": "there"});
    lab.sim.apply(lab.service("far", ports::free(), &there)).unwrap();
    lab.until("it is named", async || lab.metric(&format!("{PROBLEMS}{{kind=\"absent\"}}")) == Some(1.0))
        .await;
    others_go_on(&lab, port).await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("left out by name, others served; {good} requests, 0 lost");
    Row { what: "a Service on an address that is not here", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_haproxy_may_not_bind_is_left_out_without_a_reload() {
    forbidden_port().await;
}

/// Returns a lab in which the program may bind low ports and HAProxy may not, with such a port.
async fn unprivileged() -> (Lab, u16) {
    let mut lab = Lab::new(2).await;
    lab.haproxy_by = ["setpriv", "--bounding-set=-net_bind_service"].map(str::to_owned).to_vec();
    let low = (600..1024).find(|port| std::net::TcpListener::bind(("::", *port)).is_ok()).unwrap();
    (lab, low)
}

/// The kernel tells the rights of HAProxy's master, so that no reload has to fail.
pub(crate) async fn forbidden_port() -> Row {
    let (mut lab, low) = unprivileged().await;
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let before = lab.processes_now().await;
    lab.sim.apply(lab.service("low", low, &json!({}))).unwrap();
    lab.until("it is named", async || lab.metric(&format!("{PROBLEMS}{{kind=\"forbidden\"}}")) == Some(1.0))
        .await;
    lab.until_logged(&format!("may not bind port {low}")).await;
    assert_eq!(lab.processes_now().await, before, "no reload was tried\n{}", lab.log());
    others_go_on(&lab, port).await;
    assert!(get_from(SocketAddr::from(([127, 0, 0, 1], low))).is_err());
    assert_eq!(refusals(&lab), 0, "no reload has failed\n{}", lab.log());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("left out without a reload, others served; {good} requests, 0 lost");
    Row { what: "a port that HAProxy may not bind", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_only_haproxy_knows_to_fail_is_set_aside_by_its_own_words() {
    refused_port().await;
}

/// The program sees no process of HAProxy, so only HAProxy knows its rights. HAProxy pauses its listeners for
/// up to two seconds while it tries. Requests that are lost then are counted apart. None are lost before or
/// after.
pub(crate) async fn refused_port() -> Row {
    let (mut lab, low) = unprivileged().await;
    lab.program_by = ["unshare", "--pid", "--fork", "--kill-child"].map(str::to_owned).to_vec();
    let port = lab.publish().await;
    let traffic = Traffic::start(port);
    let began = Instant::now();
    lab.sim.apply(lab.service("low", low, &json!({}))).unwrap();
    lab.until("it is set aside", async || {
        lab.metric(&format!("{PROBLEMS}{{kind=\"refused\"}}")) == Some(1.0)
    })
    .await;
    let (_, lost) = traffic.end();
    let traffic = Traffic::start(port);
    others_go_on(&lab, port).await;
    let backend = format!("nodegate_default_web_{port}");
    assert!(lab.sim.cordon(&node_name(0)));
    lab.until("a cordon arrives", async || lab.is_draining(&backend, &node_name(0)).await).await;
    assert!(get_from(SocketAddr::from(([127, 0, 0, 1], low))).is_err());
    let (good, lost_later) = traffic.end();
    assert_eq!(lost_later, Vec::<String>::new(), "{}", lab.log());
    // The program retries after 10 s, and then at growing intervals.
    let attempts = 1..=1 + began.elapsed().as_secs() / 10;
    assert!(attempts.contains(&refusals(&lab)), "no other attempt at once\n{}", lab.log());
    let (lost, says) = (lost.len(), if lab.log().contains("does not say why") { "deduced" } else { "named" });
    let result = format!(
        "{says}, others served; {good} requests, 0 lost; HAProxy's own pause for the one attempt: {lost} lost"
    );
    Row { what: "  the same where only HAProxy can tell", result }
}
