//! Two balancers with nodegate-haproxy, a real HAProxy behind one of them, and a Prometheus that scrapes
//! both: alerts fire on their faults, and every query of the dashboard has a result.

use super::api::Prometheus;
use super::component::Component;
use super::dashboard::{Dashboard, label_values};
use super::rules;
use super::scrape::{Pod, job};
use nodegate_testbed::network::ports::{self, Loopback};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{nodegate_haproxy, system};
use nodegate_testbed::{Cluster, NODE, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const NODES: [&str; 2] = ["worker-1", "worker-2"];
const INTERVAL: &str = "250ms";

struct Site {
    // Dropped before HAProxy, which would otherwise end first.
    balancers: Vec<Program>,
    _haproxy: Program,
    prometheus: Prometheus,
    cluster: Cluster,
    config: PathBuf,
    component: Component,
    _dir: TempDir,
}

impl Site {
    fn start() -> Self {
        let (dir, net, component) = (tempfile::tempdir().unwrap(), Loopback::new(), Component::haproxy());
        let cluster = Cluster::with(|builder| builder.nodes(NODES));
        cluster.sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        for (node, number) in NODES.into_iter().zip(11..) {
            // No server listens there; the address is reserved for this test.
            let address = json!([{"type": "InternalIP", "address": net.address(number).to_string()}]);
            assert!(
                cluster.sim.edit_node(node, "test", |object| object["status"]["addresses"] = address.clone())
            );
        }
        assert!(cluster.sim.delete_node(NODE));
        // Two Services that want one port.
        let port = ports::free();
        cluster.sim.apply(service("web", port, 30_001)).unwrap();
        cluster.sim.apply(service("young", port, 30_002)).unwrap();
        let config = dir.path().join("lb1.cfg");
        let balancers = ["lb1", "lb2"].iter().zip(1..).map(|(name, number)| {
            let listen = SocketAddr::new(net.address(number), 25003);
            Program::start(&mut program(dir.path(), name, listen))
        });
        let balancers = balancers.collect();
        until("a configuration", || config.exists().then_some(()));
        let haproxy = Program::start(
            system("haproxy").arg("-W").arg("-S").arg(dir.path().join("lb1.sock")).arg("-f").arg(&config),
        );
        let prometheus = prometheus(dir.path(), &component, net);
        Self { balancers, _haproxy: haproxy, prometheus, cluster, config, component, _dir: dir }
    }

    fn fires(&self, alert: &str, balancer: &str) {
        self.prometheus.wait_alert(alert, "balancer", balancer);
        println!("{alert} {balancer}");
    }
}

/// Returns the program for a HAProxy with this name. Only the first one runs.
fn program(dir: &Path, name: &str, listen: SocketAddr) -> Command {
    let mut command = Command::new(nodegate_haproxy());
    command.env("KUBECONFIG", dir.join("kubeconfig"));
    command.arg("--config").arg(dir.join(format!("{name}.cfg")));
    command.arg("--master-socket").arg(dir.join(format!("{name}.sock")));
    command.arg(format!("--listen={listen}")).arg(format!("--bind={}", listen.ip())).arg("--max-removal=100");
    command
}

fn service(name: &str, port: u16, node_port: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": port, "nodePort": node_port, "protocol": "TCP"}]},
    })
}

fn prometheus(dir: &Path, component: &Component, net: Loopback) -> Prometheus {
    let pod = |name: &str, number| Pod {
        name: format!("nodegate-haproxy-{name}"),
        node: name.to_owned(),
        ip: net.address(number).to_string(),
        container: "nodegate-haproxy".to_owned(),
        labels: component.pod_labels.clone(),
    };
    let job = job(&component.pod_monitor, &[pod("lb1", 1), pod("lb2", 2)], INTERVAL);
    let config = json!({
        "global": {"evaluation_interval": INTERVAL},
        "rule_files": ["nodegate.rules.yaml"],
        "scrape_configs": [job],
    });
    std::fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
    rules::write(&rules::shortened(&component.rules), &dir.join("nodegate.rules.yaml"));
    Prometheus::start(dir, SocketAddr::new(net.address(9), 9090))
}

/// Answers HAProxy's checks on a node as its agent does.
fn answer_on(node: &str) {
    let listener = TcpListener::bind((node, 25001)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn nodegate_haproxys_alerts_fire_on_their_faults_and_every_query_has_a_result() {
    let begun = unix_seconds();
    let mut site = Site::start();
    let sim = &site.cluster.sim;
    site.prometheus.wait("nodegate_haproxy_nodes{kind=\"ready\"} == 2", |all| all.len() == 2);
    // No HAProxy runs at the second one, and no agent on the nodes.
    site.fires("NodegateHaproxyNotApplied", "lb2");
    site.fires("NodegateHaproxyNoNodePasses", "lb1");
    answer_on(sim.get("nodes", "", NODES[1]).unwrap()["status"]["addresses"][0]["address"].as_str().unwrap());
    site.prometheus.wait("nodegate_haproxy_nodes_passing == 1", |all| !all.is_empty());
    for node in NODES {
        assert!(sim.cordon(node));
    }
    let out = site.prometheus.wait("nodegate_haproxy_node_out{balancer=\"lb1\"}", |all| all.len() == 2);
    let nodes: BTreeSet<_> =
        out.iter().map(|series| (series.label("node"), series.label("reason"))).collect();
    assert_eq!(nodes, NODES.into_iter().map(|node| (node, "Unschedulable")).collect());
    site.fires("NodegateHaproxyNoNodeReady", "lb1");
    assert!(sim.uncordon(NODES[0]));
    site.prometheus.wait("nodegate_haproxy_reloads_total > 1", |all| !all.is_empty());
    let text = std::fs::read_to_string(&site.config).unwrap();
    std::fs::write(&site.config, format!("{text}# somebody was here\n")).unwrap();
    sim.apply(service("more", ports::free(), 30_003)).unwrap();
    site.fires("NodegateHaproxyFileChanged", "lb1");
    site.cluster.wait(sim.kill());
    site.fires("NodegateHaproxyNotWatching", "lb1");
    drop(site.balancers.remove(0));
    site.fires("NodegateHaproxyDown", "lb1");
    let dashboard = Dashboard::read(&site.component.dashboard);
    for (name, label, series) in &dashboard.variables {
        // No label names the cluster.
        let expected: &[&str] = if name == "cluster" { &[] } else { &["lb1", "lb2"] };
        let expected = expected.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(label_values(&site.prometheus, label, series), expected, "{name}");
    }
    for query in &dashboard.queries {
        let seen = query.run(&site.prometheus, begun, unix_seconds() + 1);
        println!("{:<28} {:>3} series, up to {:.3}", query.panel, seen.series, seen.largest);
    }
}
