//! The addresses and ports that Services may open, and the permission for them.

use crate::Row;
use crate::lab::{Lab, get, get_from, serve};
use crate::traffic::Traffic;
use nodegate_testbed::network::ports;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns a Service of another namespace, with its own node port.
async fn of(lab: &Lab, namespace: &str, name: &str, port: u16, annotations: &Value) -> Value {
    let mut service = lab.service(name, port, annotations);
    service["metadata"]["namespace"] = json!(namespace);
    service["spec"]["ports"][0]["nodePort"] = json!(serve(lab.served.clone(), |_| true).await);
    service
}

fn problems(lab: &Lab, kind: &str) -> Option<f64> {
    lab.metric(&format!("nodegate_haproxy_problems{{kind=\"{kind}\"}}"))
}

async fn explained(lab: &Lab) -> String {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_nodegate-haproxy"));
    command.arg("--explain").args(lab.places()).args(&lab.arguments);
    let output = command.env("KUBECONFIG", lab.dir.path().join("kubeconfig")).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_type_node_port_is_published_if_it_asks_for_it() {
    node_ports().await;
}

pub(crate) async fn node_ports() -> Row {
    let (quiet, asks) = (ports::free(), ports::free());
    let mut lab = Lab::new(1).await;
    let port = lab.publish().await;
    for (name, at, annotations) in
        [("quiet", quiet, json!({})), ("asks", asks, json!({"nodegate.io/haproxy-publish": "true"}))]
    {
        let mut service = of(&lab, "default", name, at, &annotations).await;
        service["spec"]["type"] = json!("NodePort");
        lab.sim.apply(service).unwrap();
    }
    lab.until("the one that asks is published", async || get(asks).is_ok()).await;
    assert!(get(quiet).is_err() && get(port).is_ok(), "{}", lab.log());
    let explained = explained(&lab).await;
    assert!(explained.contains("it is of type NodePort and has no"), "{explained}");
    let result = "not opened; with haproxy-publish: true it is".to_owned();
    Row { what: "a NodePort Service, by default", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_have_one_port_on_two_addresses_and_grants_say_who_may() {
    one_port_twice().await;
}

pub(crate) async fn one_port_twice() -> Row {
    let mut lab = Lab::new(2).await;
    let port = ports::free();
    lab.arguments = [
        "--bind=web=127.0.0.1,db=127.0.0.2",
        "--bind-allow=default=web,data=db",
        &format!("--ports=default={port},data=1024-65535"),
    ]
    .map(str::to_owned)
    .to_vec();
    lab.sim.apply(of(&lab, "default", "web", port, &json!({})).await).unwrap();
    lab.start(&[port]).await;
    let traffic = Traffic::start(port);
    let (counts, on_db) = (Arc::default(), json!({"nodegate.io/haproxy-bind": "db"}));
    let mut db = of(&lab, "data", "db", port, &on_db).await;
    db["spec"]["ports"][0]["nodePort"] = json!(serve(Arc::clone(&counts), |_| true).await);
    lab.sim.apply(db).unwrap();
    let at_db = SocketAddr::from(([127, 0, 0, 2], port));
    lab.until("both have the port", async || get_from(at_db).is_ok() && get(port).is_ok()).await;
    assert!(counts.lock().unwrap().values().sum::<u64>() > 0, "served by the other Service");
    let other = ports::free();
    for (name, at, annotations) in [
        ("thief", port, on_db),
        ("loud", other, json!({})),
        ("lost", port, json!({"nodegate.io/haproxy-bind": "nowhere"})),
    ] {
        lab.sim.apply(of(&lab, "default", name, at, &annotations).await).unwrap();
    }
    lab.until("two are refused", async || problems(&lab, "not-allowed") == Some(2.0)).await;
    lab.until("one is not understood", async || problems(&lab, "annotation") == Some(1.0)).await;
    let explained = explained(&lab).await;
    for why in [
        "Services of namespace default may not listen on db (--bind-allow)".to_owned(),
        format!("Services of namespace default may not open port {other} (--ports)"),
        "no address has the name \"nowhere\" (--bind)".to_owned(),
    ] {
        assert!(explained.contains(&why), "{why}\n{explained}");
        let start = why.split('"').next().unwrap_or_default();
        lab.until_logged(start).await;
    }
    assert!(get(other).is_err() && get_from(SocketAddr::from(([127, 0, 0, 2], other))).is_err());
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("both serve; 3 others refused and explained; {good} requests, 0 lost");
    Row { what: "one port on two addresses, and grants", result }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_whose_service_is_gone_is_nobody_elses_for_a_while() {
    held_port().await;
}

pub(crate) async fn held_port() -> Row {
    let mut lab = Lab::new(2).await;
    let (port, steady) = (ports::free(), ports::free());
    lab.sim.apply(of(&lab, "default", "steady", steady, &json!({})).await).unwrap();
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.start(&[port, steady]).await;
    let traffic = Traffic::start(steady);
    let theirs = Arc::default();
    let mut heir = of(&lab, "other", "heir", port, &json!({})).await;
    heir["spec"]["ports"][0]["nodePort"] = json!(serve(Arc::clone(&theirs), |_| true).await);
    lab.sim.apply(heir).unwrap();
    lab.until("it has to wait", async || problems(&lab, "conflict") == Some(1.0)).await;
    lab.sim.delete("services", "default", "web");
    lab.until("the port is held", async || problems(&lab, "held") == Some(1.0)).await;
    lab.until("nobody has it", async || get(port).is_err()).await;
    // The reservation survives a restart, too.
    let known = lab.state("cluster.json");
    lab.until("it is remembered", async || {
        std::fs::read_to_string(&known).is_ok_and(|text| text.contains("\"until\":1"))
    })
    .await;
    lab.program.take().unwrap().kill().await.unwrap();
    lab.start_program(&[]);
    lab.until("the port is held", async || problems(&lab, "held") == Some(1.0)).await;
    let explained = explained(&lab).await;
    assert!(explained.contains("stays reserved for 5 min"), "{explained}");
    lab.sim.apply(lab.service("web", port, &json!({}))).unwrap();
    lab.until("its own Service has it back", async || get(port).is_ok()).await;
    assert_eq!(theirs.lock().unwrap().values().sum::<u64>(), 0, "another tenant got the port");
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    let result = format!("kept from another tenant, over a restart; {good} requests, 0 lost");
    Row { what: "a Service deleted and made again", result }
}
