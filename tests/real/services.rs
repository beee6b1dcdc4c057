//! What `/services/…` counts, beside what a real kube-proxy counts: the two decide for one balancer.

use nodegate_testbed::real_cluster::{
    REAL_NODE, REAL_NODE_IP, RealCluster, ServerRoute, repository_file, seen, until_so,
};
use nodegate_testbed::{Agent, http};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::net::SocketAddr;

/// Each Service, and its slices. A slice has an address type, words about its ports (`http` if there is none) and labels,
/// and its endpoints: node, address and conditions.
const SHAPES: &str = include_str!("services.txt");

/// Returns the name and the slices of each Service.
fn shapes() -> Vec<(&'static str, Vec<&'static str>)> {
    let rows = SHAPES.lines().filter(|line| !line.starts_with('#'));
    let shape = |row: &'static str| row.split_once(": ").unwrap();
    rows.map(shape).map(|(name, slices)| (name, slices.split(" / ").collect())).collect()
}

fn service(name: &str) -> Value {
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    });
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shapes"}, "spec": spec})
}

fn slice(name: &str, number: usize, shape: &str) -> Value {
    let managed = "endpointslice.kubernetes.io/managed-by";
    let mut labels = json!({"kubernetes.io/service-name": name});
    let (mut ports, mut endpoints) = (Vec::new(), Vec::new());
    let mut words = shape.split(' ');
    let family = words.next().unwrap();
    for word in words {
        match word {
            "http" => ports.push(json!({"name": word, "port": 80})),
            "admin" => ports.push(json!({"name": word, "port": 81})),
            "udp" => ports.push(json!({"name": "http", "port": 80, "protocol": "UDP"})),
            "null" => ports.push(json!({"name": "http"})),
            "none" => {}
            "headless" => labels["service.kubernetes.io/headless"] = "".into(),
            "kept" => labels[managed] = "endpointslice-controller.k8s.io".into(),
            "foreign" => labels[managed] = "controller.example".into(),
            endpoint => endpoints.push(parse(endpoint)),
        }
    }
    if ports.is_empty() && !shape.contains("none") {
        ports.push(json!({"name": "http", "port": 80}));
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family, "ports": ports, "endpoints": endpoints,
        "metadata": {"name": format!("{name}-{number}"), "namespace": "shapes", "labels": labels},
    })
}

fn parse(endpoint: &str) -> Value {
    let [node, addresses, conditions] = endpoint.split('|').collect::<Vec<_>>().try_into().unwrap();
    let conditions_of = match conditions {
        "not" => json!({"ready": false}),
        "serving" => json!({"ready": false, "serving": true, "terminating": true}),
        "not-serving" => json!({"ready": true, "serving": false}),
        "" => json!({}),
        _ => json!({"ready": true}),
    };
    let addresses: Vec<_> = addresses.split(',').collect();
    let mut endpoint = json!({"addresses": addresses, "conditions": conditions_of});
    if !node.is_empty() {
        endpoint["nodeName"] = if node == "here" { REAL_NODE } else { node }.into();
    }
    if conditions == "ready-hint" {
        endpoint["hints"] = json!({"forZones": [{"name": "z2"}]});
    }
    endpoint
}

/// Returns what kube-proxy says to a balancer at the Service's `healthCheckNodePort`.
fn of_kube_proxy(cluster: &RealCluster, name: &str) -> Option<u64> {
    let service = cluster.api.get(&format!("/api/v1/namespaces/shapes/services/{name}")).ok()?;
    let port = u16::try_from(service["spec"]["healthCheckNodePort"].as_u64()?).ok()?;
    let reply = http::get(SocketAddr::new(REAL_NODE_IP.parse().unwrap(), port), "/healthz").ok()?;
    reply.json()["localEndpoints"].as_u64()
}

fn of_agent(agent: &Agent, name: &str) -> Option<u64> {
    agent.get(&format!("/services/shapes/{name}")).json()["localEndpoints"].as_u64()
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_agent_counts_the_endpoints_that_kube_proxy_counts() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    cluster.apply(&repository_file("manifests/services.yaml"));
    cluster.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: shapes}\n");
    let shapes = shapes();
    let objects = shapes.iter().flat_map(|(name, slices)| {
        let slices = slices.iter().enumerate().map(|(number, shape)| slice(name, number, shape));
        std::iter::once(service(name)).chain(slices)
    });
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()}).to_string(),
    );
    // An agent watches at most sixteen Services.
    let agents = shapes.chunks(16).map(|shapes| {
        let watched: Vec<_> =
            shapes.iter().map(|(name, _)| format!("--watch-service=shapes/{name}")).collect();
        let watched: Vec<_> = watched.iter().map(String::as_str).collect();
        cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", &watched)
    });
    let agents: Vec<_> = agents.collect();
    for agent in &agents {
        agent.wait_ready();
    }
    for (name, _) in &shapes {
        until_so(|| of_kube_proxy(&cluster, name).is_some(), || format!("kube-proxy does not know {name}"));
    }
    // kube-proxy writes its rules at most once a second.
    let counts = RefCell::new(Vec::new());
    let count = |(number, (name, _)): (usize, &(&'static str, Vec<&str>))| {
        (*name, of_kube_proxy(&cluster, name), of_agent(&agents[number / 16], name))
    };
    let is_same = || {
        *counts.borrow_mut() = shapes.iter().enumerate().map(count).collect::<Vec<_>>();
        counts.borrow().iter().all(|(_, proxy, agent)| proxy == agent)
    };
    until_so(is_same, || format!("Service, kube-proxy, agent: {:?}", counts.borrow()));
    let counted = counts.borrow().iter().filter(|(_, proxy, _)| *proxy > Some(0)).count();
    cluster.kubectl.must(&["delete", "namespace", "shapes"]);
    let what = format!("{} Services, {counted} with endpoints here: all as kube-proxy counts", shapes.len());
    seen("endpoints", what);
}
