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

/// The name of each Service, and its slices: labels, address type, ports, and endpoints (address, node, conditions).
fn shapes() -> Vec<(&'static str, Vec<Value>)> {
    let port = |number: i32| json!([{"name": "http", "port": number, "protocol": "TCP"}]);
    let on = |node: &str, address: &str, conditions: Value| json!({"addresses": [address], "nodeName": node, "conditions": conditions});
    let here = |address: &str, conditions: Value| on(REAL_NODE, address, conditions);
    let ready = || json!({"ready": true});
    let of = |endpoints: Value| json!({"addressType": "IPv4", "ports": port(80), "endpoints": endpoints});
    let v6 = |endpoints: Value| json!({"addressType": "IPv6", "ports": port(80), "endpoints": endpoints});
    // The control plane keeps a slice for each family of a Service.
    let kept = |endpoints: Value| {
        let labels = json!({"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
        json!({"labels": labels, "addressType": "IPv4", "ports": port(80), "endpoints": endpoints})
    };
    let (a, b) = ("10.200.0.1", "10.200.0.2");
    vec![
        ("one", vec![of(json!([here(a, ready())]))]),
        ("elsewhere", vec![of(json!([on("other", a, ready())]))]),
        ("no-node", vec![of(json!([{"addresses": [a], "conditions": ready()}]))]),
        ("unknown", vec![of(json!([here(a, json!({}))]))]),
        ("not-ready", vec![of(json!([here(a, json!({"ready": false}))]))]),
        (
            "serving",
            vec![of(json!([here(a, json!({"ready": false, "serving": true, "terminating": true}))]))],
        ),
        ("not-serving", vec![of(json!([here(a, json!({"ready": true, "serving": false}))]))]),
        ("two", vec![of(json!([here(a, ready()), here(b, ready())]))]),
        (
            "mixed",
            vec![of(json!([
                here(a, ready()),
                here(b, json!({"ready": false})),
                on("other", "10.200.0.3", ready())
            ]))],
        ),
        ("ready-then-not", vec![of(json!([here(a, ready()), here(a, json!({"ready": false}))]))]),
        ("not-then-ready", vec![of(json!([here(a, json!({"ready": false})), here(a, ready())]))]),
        (
            "ready-then-ends",
            vec![of(json!([here(a, ready()), here(a, json!({"ready": false, "terminating": true}))]))],
        ),
        (
            "ends-then-ready",
            vec![of(json!([here(a, json!({"ready": false, "terminating": true})), here(a, ready())]))],
        ),
        ("twice", vec![of(json!([here(a, ready())])), of(json!([here(a, ready())]))]),
        ("two-slices", vec![of(json!([here(a, ready())])), of(json!([here(b, ready())]))]),
        ("here-and-there", vec![of(json!([here(a, ready()), on("other", a, ready())]))]),
        ("there-and-here", vec![of(json!([on("other", a, ready()), here(a, ready())]))]),
        (
            "headless",
            vec![
                json!({"labels": {"service.kubernetes.io/headless": ""}, "addressType": "IPv4", "ports": port(80), "endpoints": [here(a, ready())]}),
            ],
        ),
        ("other-family", vec![kept(json!([])), v6(json!([here("fd00::1", ready())]))]),
        (
            "both-families",
            vec![
                kept(json!([here(a, ready())])),
                v6(json!([here("fd00::1", ready()), here("fd00::2", ready())])),
            ],
        ),
        (
            "names",
            vec![
                json!({"addressType": "FQDN", "ports": port(80), "endpoints": [here("pod.example", ready())]}),
            ],
        ),
        ("no-ports", vec![json!({"addressType": "IPv4", "ports": [], "endpoints": [here(a, ready())]})]),
        (
            "null-port",
            vec![
                json!({"addressType": "IPv4", "ports": [{"name": "http"}], "endpoints": [here(a, ready())]}),
            ],
        ),
        (
            "other-port",
            vec![
                json!({"addressType": "IPv4", "ports": [{"name": "admin", "port": 81}], "endpoints": [here(a, ready())]}),
            ],
        ),
        (
            "two-ports",
            vec![
                json!({"addressType": "IPv4", "ports": [{"name": "http", "port": 80}, {"name": "admin", "port": 81}], "endpoints": [here(a, ready())]}),
            ],
        ),
        (
            "udp",
            vec![
                json!({"addressType": "IPv4", "ports": [{"name": "http", "port": 80, "protocol": "UDP"}], "endpoints": [here(a, ready())]}),
            ],
        ),
        (
            "many-addresses",
            vec![of(json!([{"addresses": [a, b], "nodeName": REAL_NODE, "conditions": ready()}]))],
        ),
        (
            "managed",
            vec![
                json!({"labels": {"endpointslice.kubernetes.io/managed-by": "someone.example"}, "addressType": "IPv4", "ports": port(80), "endpoints": [here(a, ready())]}),
            ],
        ),
        (
            "hints",
            vec![of(
                json!([{"addresses": [a], "nodeName": REAL_NODE, "conditions": ready(), "hints": {"forZones": [{"name": "z2"}]}}]),
            )],
        ),
        ("empty", vec![of(json!([]))]),
    ]
}

fn service(name: &str) -> Value {
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ipFamilies": ["IPv4"],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    });
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shapes"}, "spec": spec})
}

fn slice(name: &str, number: usize, shape: &Value) -> Value {
    let mut labels = shape["labels"].as_object().cloned().unwrap_or_default();
    labels.insert("kubernetes.io/service-name".to_owned(), name.into());
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{name}-{number}"), "namespace": "shapes", "labels": labels},
        "addressType": shape["addressType"], "ports": shape["ports"], "endpoints": shape["endpoints"],
    })
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
    agents.iter().for_each(|agent| drop(agent.until_ready()));
    for (name, _) in &shapes {
        until_within(
            DEADLINE,
            || of_kube_proxy(&cluster, name),
            || format!("kube-proxy does not know {name}"),
        );
    }
    // Both have seen all by now; kube-proxy writes its rules at most once a second.
    let both = || {
        let both = |(number, (name, _)): (usize, &(&'static str, _))| {
            (*name, of_kube_proxy(&cluster, name), of_agent(&agents[number / 16], name))
        };
        shapes.iter().enumerate().map(both).collect::<Vec<_>>()
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
