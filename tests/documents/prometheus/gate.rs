//! The eviction gate on a simulated cluster, and a Prometheus that scrapes it: every alert fires on its fault,
//! and every query of the dashboard has a result.

use super::api::Prometheus;
use super::component::{Component, gate_objects};
use super::dashboard::{Dashboard, label_values};
use super::rules;
use super::scrape::{Pod, job};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_eviction_gate::certificates::issue;
use nodegate_kube_sim::Sim;
use nodegate_testbed::network::ports::Loopback;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::eviction_gate;
use nodegate_testbed::{Cluster, NODE, until};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAME: &str = "nodegate-eviction-gate";
const INTERVAL: &str = "250ms";

/// Applies what the gate needs of its manifests, and the objects that controllers would make.
fn install(sim: &Sim, gate: IpAddr, silent_agent: IpAddr) {
    for mut object in gate_objects() {
        match object["kind"].as_str() {
            Some("Namespace" | "Secret") => {}
            // A busy machine must not let an eviction go by.
            Some("ValidatingWebhookConfiguration") => object["webhooks"][0]["timeoutSeconds"] = json!(60),
            _ => continue,
        }
        sim.apply(object).unwrap();
    }
    let slice = json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {"name": NAME, "namespace": "nodegate", "labels": {"kubernetes.io/service-name": NAME}},
        "endpoints": [{"addresses": [gate], "conditions": {"ready": true}}], "ports": [{"port": 25005}],
    });
    sim.apply(slice).unwrap();
    let addresses = json!([{"type": "InternalIP", "address": silent_agent.to_string()}]);
    assert!(sim.edit_node(NODE, "test", |node| node["status"]["addresses"] = addresses.clone()));
}

fn gate(cluster: &Cluster, dir: &Path, ip: IpAddr) -> Program {
    let mut command = Command::new(eviction_gate());
    command.env("KUBECONFIG", cluster.admin().kubeconfig());
    command.arg(format!("--listen={ip}:25005")).arg(format!("--health-listen={ip}:25006"));
    command
        .arg("--told-unknown-hold=2s")
        .env("NODEGATE_GATE_TEST_TIMES", "self_check=1000,review=30000,shutdown=0");
    // It expires within a week from the start.
    let names = ["nodegate-eviction-gate.nodegate.svc".to_owned()];
    let issued = issue(&names, Duration::from_hours(48), SystemTime::now()).unwrap();
    for (flag, text) in [("--tls-cert-file", &issued.certificate), ("--tls-key-file", &issued.key)] {
        let path = dir.join(flag.trim_start_matches('-'));
        std::fs::write(&path, text).unwrap();
        command.arg(flag).arg(path);
    }
    let mut configuration = cluster.sim.get("validatingwebhookconfigurations", "", NAME).unwrap();
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(STANDARD.encode(issued.ca));
    cluster.sim.apply(configuration).unwrap();
    Program::start(&mut command)
}

fn prometheus(dir: &Path, component: &Component, gate: IpAddr, listen: IpAddr) -> Prometheus {
    let pod = Pod {
        name: format!("{NAME}-1"),
        node: NODE.to_owned(),
        ip: gate.to_string(),
        container: NAME.to_owned(),
        labels: component.pod_labels.clone(),
    };
    let config = json!({
        "global": {"evaluation_interval": INTERVAL},
        "rule_files": ["nodegate.rules.yaml"],
        "scrape_configs": [job(&component.pod_monitor, &[pod], INTERVAL)],
    });
    std::fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
    rules::write(&rules::shortened(&component.rules), &dir.join("nodegate.rules.yaml"));
    Prometheus::start(dir, SocketAddr::new(listen, 9090))
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Drains the node again and again. Its agent does not answer: the gate holds the first eviction for a while,
/// and lets all go on.
fn drain_until_seen(cluster: &Cluster, prometheus: &Prometheus) {
    let mut drains = 0;
    until("rates of all counters", || {
        drains += 1;
        let pod = json!({
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": format!("p{drains}")},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"},
        });
        cluster.sim.apply(pod).unwrap();
        cluster.kubectl(&["drain", NODE, "--force"]);
        let rises =
            |counter| !prometheus.query(&format!("rate(nodegate_gate_{counter}_total[2s]) > 0")).is_empty();
        ["reviews", "unacknowledged", "agent_lookups"].into_iter().all(rises).then_some(())
    });
    println!("{drains} drains");
}

#[test]
fn the_gates_alerts_fire_on_their_faults_and_every_query_has_a_result() {
    let begun = unix_seconds();
    let (dir, net, component) = (tempfile::tempdir().unwrap(), Loopback::new(), Component::gate());
    let cluster = Cluster::start();
    install(&cluster.sim, net.address(1), net.address(2));
    let running = gate(&cluster, dir.path(), net.address(1));
    let prometheus = prometheus(dir.path(), &component, net.address(1), net.address(9));
    let mut fired = BTreeSet::new();
    let mut fires = |alert: &str| {
        let found = prometheus.wait_alert(alert, "cluster", "");
        println!("{alert:<30} {}", found["annotations"]["summary"]);
        fired.insert(alert.to_owned());
    };
    prometheus.wait("nodegate_gate_self_check_passed == 1", |all| all.len() == 1);
    fires("NodegateGateCertificateExpires");
    drain_until_seen(&cluster, &prometheus);
    fires("NodegateGateAgentUnreachable");
    fires("NodegateGateEvictedUnacknowledged");
    assert!(cluster.sim.delete("validatingwebhookconfigurations", "", NAME));
    fires("NodegateGateBypassed");
    drop(running);
    fires("NodegateGateDown");
    let alerts = component.rules.groups.iter().flat_map(|group| &group.rules);
    assert_eq!(fired, alerts.map(|alert| alert.name.clone()).collect());

    let dashboard = Dashboard::read(&component.dashboard);
    for (name, label, series) in &dashboard.variables {
        // No label names the cluster.
        assert_eq!((name.as_str(), label_values(&prometheus, label, series)), ("cluster", BTreeSet::new()));
    }
    for query in &dashboard.queries {
        let seen = query.run(&prometheus, begun, unix_seconds() + 1);
        println!("{:<28} {:>3} series, up to {:.3}", query.panel, seen.series, seen.largest);
    }
}
