//! A large cluster.

use crate::Row;
use crate::lab::{Lab, node, node_name, service};
use nodegate_haproxy::plan::desired::Desired;
use nodegate_haproxy::plan::facts::{Facts, Family, NodeState, ObservedNode, ObservedService, PortFacts};
use nodegate_haproxy::plan::planner::plan;
use nodegate_haproxy::plan::policy::PlanPolicy;
use nodegate_haproxy::plan::render::{DEFAULT_HEAD, Template, render};
use nodegate_testbed::network::ports;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn facts(nodes: usize, services: usize) -> Facts {
    let mut facts = Facts::default();
    for index in 0..nodes {
        let name = node_name(index);
        let [high, low] = u16::try_from(index).unwrap().to_be_bytes();
        let addresses = vec![("InternalIP".to_owned(), [10, 0, high, low].into())];
        let node = ObservedNode {
            name: name.clone(),
            state: NodeState::Ready,
            addresses,
            ..ObservedNode::default()
        };
        facts.nodes.insert(name, Arc::new(node));
    }
    for index in 0..services {
        let name = format!("service-{index}");
        let port = 10_000 + u16::try_from(index).unwrap();
        let port = PortFacts { name: None, port, node_port: 30_000, protocol: "TCP".to_owned() };
        let service = ObservedService {
            namespace: "default".to_owned(),
            name: name.clone(),
            load_balancer: true,
            families: vec![Family::V4],
            ports: vec![port],
            ..ObservedService::default()
        };
        facts.services.insert(("default".to_owned(), name), Arc::new(service));
    }
    facts
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed())
}

pub(crate) async fn scale(nodes: usize, services: usize) -> Vec<Row> {
    let facts = facts(nodes, services);
    let policy = PlanPolicy::default();
    let (desired, planning): (Desired, _) = timed(|| plan(&facts, &policy));
    let head = Template::Head(DEFAULT_HEAD.to_owned());
    let (text, rendering) = timed(|| render(&head, &desired, &policy.check, None).unwrap());
    let size = text.len() >> 20;
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    let mut rows = vec![Row {
        what: "500 nodes x 200 Services: plan, render",
        result: format!(
            "{planning:.0?}, {rendering:.0?}; {} servers, {size} MiB ({build})",
            desired.server_count()
        ),
    }];
    drop((text, desired));
    rows.extend(rolling_restart(nodes, services).await);
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_depend_on_the_size_of_nodes() {
    memory().await;
}

pub(crate) async fn memory() -> Row {
    let mut sizes = Vec::new();
    for bytes in [4_000, 40_000] {
        let mut lab = Lab::new(0).await;
        for index in 0..300 {
            let mut node = node(index);
            node["status"]["images"] = json!([{"names": ["x".repeat(bytes)], "sizeBytes": 1}]);
            lab.sim.apply(node).unwrap();
        }
        lab.sim.apply(lab.service("web", ports::free(), &json!({}))).unwrap();
        lab.start_program(&[]);
        lab.until("the file is written", async || lab.config.exists()).await;
        lab.until("all is applied", async || {
            lab.metric("nodegate_haproxy_applies_total{kind=\"not-running\"}").is_some()
        })
        .await;
        sizes.push(lab.memory().0 >> 10);
    }
    assert!(sizes[1] < sizes[0] + 16, "{sizes:?} MiB");
    Row {
        what: "300 nodes of 4 kB, and of 40 kB each",
        result: format!("{} MiB, {} MiB resident", sizes[0], sizes[1]),
    }
}

async fn rolling_restart(nodes: usize, services: usize) -> Vec<Row> {
    let mut lab = Lab::new(0).await;
    for index in 0..nodes {
        lab.sim.apply(node(index)).unwrap();
    }
    let base = 20_000;
    for index in 0..services {
        let port = base + u16::try_from(index).unwrap();
        lab.sim.apply(service(&format!("service-{index}"), port, lab.node_port, &json!({}))).unwrap();
    }
    let began = Instant::now();
    lab.start(&[base]).await;
    let started = began.elapsed();
    let before = lab.processes_now().await;
    let traffic = crate::traffic::Traffic::start(base);
    let (memory, _) = lab.memory();
    let began = Instant::now();
    let backend = format!("nodegate_default_service-0_{base}");
    for wave in (0..nodes).collect::<Vec<_>>().chunks(25) {
        for index in wave {
            lab.sim.cordon(&node_name(*index));
        }
        let last = node_name(wave[wave.len() - 1]);
        lab.until("the wave drains", async || lab.is_draining(&backend, &last).await).await;
        for index in wave {
            lab.sim.set_ready(&node_name(*index), "False", "KubeletNotReady");
        }
        for index in wave {
            lab.sim.set_ready(&node_name(*index), "True", "KubeletReady");
            lab.sim.uncordon(&node_name(*index));
        }
        lab.until("the wave is back", async || lab.is_admin_ready(&backend, &last).await).await;
    }
    let took = began.elapsed();
    lab.until("all is applied", async || lab.metric("nodegate_haproxy_pending") == Some(0.0)).await;
    let after = lab.processes_now().await;
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", lab.log());
    assert_eq!(before, after, "no reload\n{}", lab.log());
    let (resident, peak) = lab.memory();
    vec![
        Row {
            what: "  start: list, render, haproxy -c, load",
            result: format!("{started:.1?} with HAProxy's own start; then {} MiB resident", memory >> 10),
        },
        Row {
            what: "  rolling restart of all nodes",
            result: format!(
                "{took:.1?}: {} reloads, {good} requests, 0 lost; {} MiB resident, peak {} MiB",
                after.reloads - before.reloads,
                resident >> 10,
                peak >> 10
            ),
        },
    ]
}
