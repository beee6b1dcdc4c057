//! What `/services/…` counts, beside what a real kube-proxy counts: the two decide for one balancer.

use nodegate_testbed::real_cluster::{
    DEADLINE, REAL_NODE, REAL_NODE_IP, RealCluster, ServerRoute, repository_file,
};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{Agent, http};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

/// Each Service, and its slices. A slice has an address type, words about its ports (`http` if there is none) and labels,
/// and its endpoints: node, address and conditions.
const SHAPES: [(&str, &[&str]); 30] = [
    ("one", &["IPv4 here|10.200.0.1|ready"]),
    ("elsewhere", &["IPv4 other|10.200.0.1|ready"]),
    ("no-node", &["IPv4 |10.200.0.1|ready"]),
    ("unknown", &["IPv4 here|10.200.0.1|"]),
    ("not-ready", &["IPv4 here|10.200.0.1|not"]),
    ("serving", &["IPv4 here|10.200.0.1|serving"]),
    ("not-serving", &["IPv4 here|10.200.0.1|not-serving"]),
    ("two", &["IPv4 here|10.200.0.1|ready here|10.200.0.2|ready"]),
    ("mixed", &["IPv4 here|10.200.0.1|ready here|10.200.0.2|not other|10.200.0.3|ready"]),
    ("ready-then-not", &["IPv4 here|10.200.0.1|ready here|10.200.0.1|not"]),
    ("not-then-ready", &["IPv4 here|10.200.0.1|not here|10.200.0.1|ready"]),
    ("ready-then-ends", &["IPv4 here|10.200.0.1|ready here|10.200.0.1|serving"]),
    ("ends-then-ready", &["IPv4 here|10.200.0.1|serving here|10.200.0.1|ready"]),
    ("twice", &["IPv4 here|10.200.0.1|ready", "IPv4 here|10.200.0.1|ready"]),
    ("two-slices", &["IPv4 here|10.200.0.1|ready", "IPv4 here|10.200.0.2|ready"]),
    ("here-and-there", &["IPv4 here|10.200.0.1|ready other|10.200.0.1|ready"]),
    ("there-and-here", &["IPv4 other|10.200.0.1|ready here|10.200.0.1|ready"]),
    ("headless", &["IPv4 headless here|10.200.0.1|ready"]),
    // The control plane keeps a slice for each family of a Service.
    ("other-family", &["IPv4 kept", "IPv6 here|fd00::1|ready"]),
    ("both-families", &["IPv4 kept here|10.200.0.1|ready", "IPv6 here|fd00::1|ready here|fd00::2|ready"]),
    ("names", &["FQDN here|pod.example|ready"]),
    ("no-ports", &["IPv4 none here|10.200.0.1|ready"]),
    ("null-port", &["IPv4 null here|10.200.0.1|ready"]),
    ("other-port", &["IPv4 admin here|10.200.0.1|ready"]),
    ("two-ports", &["IPv4 http admin here|10.200.0.1|ready"]),
    ("udp", &["IPv4 udp here|10.200.0.1|ready"]),
    ("many-addresses", &["IPv4 here|10.200.0.1,10.200.0.2|ready"]),
    ("not-managed", &["IPv4 foreign here|10.200.0.1|ready"]),
    ("hints", &["IPv4 here|10.200.0.1|ready-hint"]),
    ("empty", &["IPv4"]),
];

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
    let objects = SHAPES.iter().flat_map(|(name, slices)| {
        let slices = slices.iter().enumerate().map(|(number, shape)| slice(name, number, shape));
        std::iter::once(service(name)).chain(slices)
    });
    cluster.apply(
        &json!({"apiVersion": "v1", "kind": "List", "items": objects.collect::<Vec<_>>()}).to_string(),
    );
    // An agent watches at most sixteen Services.
    let agents = SHAPES.chunks(16).map(|shapes| {
        let watched: Vec<_> =
            shapes.iter().map(|(name, _)| format!("--watch-service=shapes/{name}")).collect();
        let watched: Vec<_> = watched.iter().map(String::as_str).collect();
        cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", &watched)
    });
    let agents: Vec<_> = agents.collect();
    for agent in &agents {
        agent.until_ready();
    }
    for (name, _) in &SHAPES {
        until_within(
            DEADLINE,
            || of_kube_proxy(&cluster, name),
            || format!("kube-proxy does not know {name}"),
        );
    }
    // Both have seen all by now; kube-proxy writes its rules at most once a second.
    let both = || {
        let both = |(number, (name, _)): (usize, &(&'static str, &[&str]))| {
            (*name, of_kube_proxy(&cluster, name), of_agent(&agents[number / 16], name))
        };
        SHAPES.iter().enumerate().map(both).collect::<Vec<_>>()
    };
    let is_same =
        |counts: &[(&str, Option<u64>, Option<u64>)]| counts.iter().all(|(_, proxy, agent)| proxy == agent);
    let mut counts = both();
    for _ in 0..30 {
        if is_same(&counts) {
            break;
        }
        thread::sleep(Duration::from_secs(1));
        counts = both();
    }
    let others: Vec<_> = counts.iter().filter(|(_, proxy, agent)| proxy != agent).collect();
    assert!(others.is_empty(), "Service, kube-proxy, agent: {others:?}");
    let counted = counts.iter().filter(|(_, proxy, _)| *proxy > Some(0)).count();
    cluster.kubectl.must(&["delete", "namespace", "shapes"]);
    seen(
        "endpoints",
        &format!("{} Services, {counted} with endpoints here: all as kube-proxy counts", counts.len()),
    );
}
