//! The settings of a Service and the Forwards take effect. The tests look at connections.

use crate::lab::{Lab, get, get_from, node, node_address, node_name};
use crate::servers::serve_requests;
use nodegate_testbed::network::ports;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Returns true if a request from this local address is answered.
fn asks(client: [u8; 4], port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((client, 0)).into())?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
        let mut stream = std::net::TcpStream::from(socket);
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

/// Returns the nodes that this client's requests reach.
fn reached_by(lab: &Lab, client: [u8; 4], port: u16) -> BTreeSet<IpAddr> {
    let before = lab.served.lock().unwrap().clone();
    for _ in 0..6 {
        assert!(asks(client, port), "{}", lab.log());
    }
    let now = lab.served.lock().unwrap();
    now.iter().filter(|(at, count)| before.get(at) != Some(*count)).map(|(at, _)| *at).collect()
}

/// Returns a Service of type `LoadBalancer` with more fields in its spec.
fn load_balancer(lab: &Lab, name: &str, port: u16, spec: &Value) -> Value {
    let mut service = lab.service(name, port, &json!({}));
    service["spec"]["type"] = json!("LoadBalancer");
    for (key, value) in spec.as_object().unwrap() {
        service["spec"][key] = value.clone();
    }
    service
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_in_the_source_ranges_are_served() {
    let (port, http) = (ports::free(), ports::free());
    let mut lab = Lab::new(2).await;
    let ranges = json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "127.0.0.0/30", "nonsense"]});
    lab.sim.apply(load_balancer(&lab, "web", port, &ranges)).unwrap();
    let mut older = lab.service("older", http, &json!({"nodegate.io/haproxy-mode": "http"}));
    older["metadata"]["annotations"]["service.beta.kubernetes.io/load-balancer-source-ranges"] =
        json!("127.0.0.1/32,fd00::/8");
    older["spec"]["ports"][0]["nodePort"] = json!(crate::lab::serve(lab.served.clone(), |_| true).await);
    lab.sim.apply(older).unwrap();
    lab.start(&[port, http]).await;
    assert!(asks([127, 0, 0, 3], port) && asks([127, 0, 0, 1], http), "{}", lab.log());
    let before = lab.served.lock().unwrap().clone();
    assert!(!asks([127, 0, 0, 4], port) && !asks([127, 0, 0, 2], http), "served to the world\n{}", lab.log());
    assert_eq!(*lab.served.lock().unwrap(), before);
    lab.until_metric("nodegate_haproxy_problems{kind=\"source-ranges\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_stays_with_its_node_over_reloads_and_leaves_it_when_it_drains() {
    let port = ports::free();
    let mut lab = Lab::new(4).await;
    let affinity = json!({
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
    });
    lab.sim.apply(load_balancer(&lab, "web", port, &affinity)).unwrap();
    lab.start(&[port]).await;
    let clients: Vec<[u8; 4]> = (1..=20).map(|last| [127, 0, 0, last]).collect();
    let homes = || clients.iter().map(|client| reached_by(&lab, *client, port)).collect::<Vec<_>>();
    let first = homes();
    assert!(first.iter().all(|nodes| nodes.len() == 1), "{first:?}\n{}", lab.log());
    let all: BTreeSet<_> = first.iter().flatten().copied().collect();
    assert!(all.len() > 2, "{all:?}");
    let before = lab.reloads().await;
    let other = ports::free();
    lab.sim.apply(lab.distinct(lab.service("more", other, &json!({}))).await).unwrap();
    lab.until_reloaded(before).await;
    assert_eq!(homes(), first, "over a reload");
    let gone = *first[0].first().unwrap();
    let index = (0..4).find(|index| node_address(*index) == gone).unwrap();
    lab.drain(&format!("nodegate_default_web_{port}"), index).await;
    for (now, before) in homes().iter().zip(&first) {
        let moved = before.contains(&gone);
        assert!(now.len() == 1 && (now == before) != moved && !now.contains(&gone), "{before:?} -> {now:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_served_by_the_nodes_that_it_names_by_their_labels() {
    let (port, all) = (ports::free(), ports::free());
    let mut lab = Lab::new(3).await;
    lab.sim.label(&node_name(0), "role", Some("ingress"));
    let chosen = json!({"nodegate.io/haproxy-nodes": "role in (ingress, edge), !spare"});
    lab.sim.apply(lab.service("web", port, &chosen)).unwrap();
    lab.sim.apply(lab.distinct(lab.service("all", all, &json!({}))).await).unwrap();
    lab.start(&[port, all]).await;
    let client = [127, 0, 0, 1];
    let nodes = |indices: &[usize]| indices.iter().map(|index| node_address(*index)).collect::<BTreeSet<_>>();
    assert_eq!(reached_by(&lab, client, port), nodes(&[0]), "{}", lab.log());
    assert_eq!(reached_by(&lab, client, all), nodes(&[0, 1, 2]));
    lab.sim.label(&node_name(2), "role", Some("edge"));
    lab.until("the labelled one serves", async || reached_by(&lab, client, port) == nodes(&[0, 2])).await;
    // Only these nodes are the Service's last resort, too.
    for index in [0, 2] {
        lab.drain(&format!("nodegate_default_web_{port}"), index).await;
    }
    assert_eq!(reached_by(&lab, client, port), nodes(&[0, 2]));
    assert_eq!(reached_by(&lab, client, all), nodes(&[1]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_have_one_port_on_two_addresses_and_a_busy_port_is_left_out() {
    let port = ports::free();
    let mut lab = Lab::new(1).await;
    lab.arguments = vec!["--bind=127.0.0.1,web=127.0.0.2".to_owned()];
    lab.sim.apply(lab.service("plain", port, &json!({}))).unwrap();
    let by_field = load_balancer(&lab, "web", port, &json!({"loadBalancerIP": "127.0.0.2"}));
    lab.sim.apply(lab.distinct(by_field).await).unwrap();
    let nowhere = load_balancer(&lab, "nowhere", port, &json!({"loadBalancerIP": "127.0.0.3"}));
    lab.sim.apply(lab.distinct(nowhere).await).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = lab.service("busy", taken.local_addr().unwrap().port(), &json!({}));
    lab.sim.apply(lab.distinct(busy).await).unwrap();
    lab.start(&[port]).await;
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    lab.until("the other address answers", async || get_from(there).is_ok()).await;
    for kind in ["address", "busy"] {
        lab.until_metric(&format!("nodegate_haproxy_problems{{kind=\"{kind}\"}}"), 1.0).await;
    }
    drop(taken);
    lab.until_metric("nodegate_haproxy_frontends", 3.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_leads_to_the_chosen_nodes_and_asks_for_the_named_checks() {
    let (router, plain) = (ports::free(), ports::free());
    let mut lab = Lab::new(3).await;
    let asked = Arc::<Mutex<BTreeSet<_>>>::default();
    let seen = asked.clone();
    lab.check_port = serve_requests(move |at, request| {
        seen.lock().unwrap().insert((at, request.split(' ').nth(1).unwrap_or_default().to_owned()));
        "200 OK"
    })
    .await;
    lab.sim.label(&node_name(1), "role", Some("infra"));
    let forwards =
        format!("router={router}:{0}@role=infra?node_ready,okd_router_1936;plain={plain}:{0}", lab.node_port);
    lab.arguments = vec![format!("--forward={forwards}")];
    // A Service can't have a Forward's port.
    lab.sim.apply(lab.service("thief", plain, &json!({}))).unwrap();
    lab.start(&[router, plain]).await;
    assert_eq!((lab.reached(router), lab.reached(plain)), (vec![1], vec![0, 1, 2]));
    let path = "/health?check=node_ready,okd_router_1936&drain=404".to_owned();
    let is_asked = |node| asked.lock().unwrap().contains(&(node_address(node), path.clone()));
    lab.until("the named checks are asked for", async || is_asked(1)).await;
    assert!(!is_asked(0), "of the chosen nodes alone");
    lab.until_metric("nodegate_haproxy_problems{kind=\"conflict\"}", 1.0).await;
    lab.drain("nodegate_forward_plain", 0).await;
    assert_eq!(lab.reached(plain), [1, 2]);
    assert!(lab.explain().contains("forward router"), "{}", lab.explain());
    assert!(get(router).is_ok());
}

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
        sizes.push(lab.resident() >> 10);
    }
    assert!(sizes[1] < sizes[0] + 16, "{sizes:?} MiB");
}
