//! The clients that the agent answers (`--allow-from`, `--metrics-addr`), and the RBAC rules that it can do with.

use nodegate_kube_sim::{Effect, FaultScope, Rule};
use nodegate_testbed::http::{ask, connect};
use nodegate_testbed::network::node_network::NodeNetwork;
use nodegate_testbed::network::ports;
use nodegate_testbed::scenario::TOKEN;
use nodegate_testbed::{Agent, NODE, Scenario, programs, until};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

const NODE_V4: &str = "10.77.0.2";
const NODE_V6: &str = "fd77::2";

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn get(to: SocketAddr, path: &str) -> String {
    ask(to, format!("GET {path} HTTP/1.0\r\n\r\n"))
}

#[test]
fn only_clients_in_allow_from_are_answered() {
    let net = NodeNetwork::start();
    let agent_port = ports::free();
    let agent = Agent::alone(&[
        "--listen-address=::",
        &format!("--agent-check-port={agent_port}"),
        "--allow-from=10.77.0.0/24, 192.0.2.1, fd77::1",
    ]);
    let port = agent.address().port();
    let everywhere = [NODE_V4, NODE_V6].map(|ip| (address(ip, port), address(ip, agent_port)));
    for (http, haproxy) in everywhere {
        let (health, line) = net.router.act(|| (get(http, "/health"), ask(haproxy, "")));
        assert!(health.starts_with("HTTP/1.0 200 ") && line == "up ready\n", "{http}: {health} {line}");

        // One hop further away: the agent closes the connection without a byte, also if the client sends first.
        let answers = net.resolver.act(|| [get(http, "/livez"), ask(http, ""), ask(haproxy, "")]);
        assert_eq!(answers, ["", "", ""], "{http}");
    }

    // Clients on the node itself: the kubelet, which probes the node's address, and other local processes.
    for ip in [NODE_V4, NODE_V6, "127.0.0.1", "127.0.0.2", "::1"] {
        assert!(get(address(ip, port), "/livez").ends_with("ok"), "{ip}");
        assert_eq!(ask(address(ip, agent_port), ""), "up ready\n", "{ip}");
    }
    assert_eq!(agent.metric("nodegate_connections_denied_total"), Some(6.0));
    until("all connections to be closed", || (agent.metric("nodegate_connections")? <= 1.0).then_some(()));
}

#[test]
fn metrics_addr_alone_serves_metrics_and_status() {
    let agent = Agent::alone(&["--metrics-addr=127.0.0.1:0"]);
    let (http, metrics) = (agent.address(), agent.metrics_address());
    assert_ne!(http, metrics);
    for path in ["/metrics", "/status.json", "/"] {
        let refused = get(http, path);
        assert!(refused.starts_with("HTTP/1.0 404 "), "{path}: {refused}");
        assert!(refused.contains(&metrics.to_string()) && !refused.contains("n1"), "{path}: {refused}");
        assert!(get(metrics, path).starts_with("HTTP/1.0 200 "), "{path}");
    }
    // HAProxy's plain check and all requests about the node and the agent get an answer at both addresses.
    for request in
        ["OPTIONS / HTTP/1.0", "GET /health HTTP/1.0", "GET /nodecheck HTTP/1.0", "GET /livez HTTP/1.0"]
    {
        for address in [http, metrics] {
            let answer = ask(address, format!("{request}\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.0 200 "), "{address} {request}: {answer}");
        }
    }
    assert!(get(http, "/bogus").contains("404") && !get(http, "/bogus").contains("/metrics"));
    // The agent counts the refused request under its own path.
    let counts = get(metrics, "/metrics");
    assert!(counts.contains("nodegate_http_requests_total{path=\"/metrics\",code=\"404\"} 1\n"), "{counts}");
}

#[test]
fn metrics_addr_ignores_allow_from_and_has_its_own_connection_limit() {
    let net = NodeNetwork::start();
    let port = ports::free();
    let at = format!("--metrics-addr={NODE_V4}:{port}");
    // Its descriptors are enough for eight connections to each port.
    let mut command = Command::new("prlimit");
    command.arg("--nofile=48:48").arg(programs::agent());
    command.args(["--listen-address=::", "--allow-from=192.0.2.1", &at]);
    let agent = Agent::launch_alone(command);
    let (http, metrics) = (address(NODE_V4, agent.address().port()), address(NODE_V4, port));
    let (health, scrape) = net.router.act(|| (get(http, "/health"), get(metrics, "/metrics")));
    assert!(health.is_empty() && scrape.contains("nodegate_verdict"), "{health} {scrape}");

    let mut oldest = connect(metrics).unwrap();
    let idle: Vec<TcpStream> = (0..20).map(|_| connect(metrics).unwrap()).collect();
    assert_eq!(oldest.read(&mut [0]).unwrap_or(0), 0, "the oldest of too many is closed");
    assert!(get(http, "/livez").ends_with("ok"), "the other port has connections of its own");
    drop(idle);
}

/// Shows that RBAC rules may name the Node, as docs/security.md says for clusters with few, fixed nodes.
#[test]
fn rbac_rules_that_name_the_node_are_enough() {
    let cluster = Scenario::start();
    let verbs = |verbs, group, resource| Rule::allow(verbs, group, &[resource]).named(NODE);
    let rules = vec![
        verbs(&["get", "list", "watch"], "", "nodes"),
        verbs(&["list", "watch"], "coordination.k8s.io", "leases").in_namespace("kube-node-lease"),
    ];
    cluster.sim.service_account(TOKEN, "nodegate", "nodegate", rules);
    let agent = cluster.ready_agent(&["--stale-after=4s"]);
    // An unresponsive watch makes the agent send a consistency check, which needs the rules, too.
    cluster.sim.half_open();
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    cluster.sim.heal();
    assert_eq!(agent.logged("orbidden"), 0, "{}", agent.log_text());
}

#[test]
fn without_rights_for_slices_and_leases_the_agent_goes_on_and_says_so_once() {
    let cluster = Scenario::start();
    cluster.sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    let agent = cluster.ready_agent(&["--stale-after=4s", "--watch-service=default/web"]);
    agent.logs_once("manifests/services.yaml");
    let check = agent.get("/health?check=service:default/web");
    assert!(check.status == 200 && check.is_stale(), "{check:?}");
    assert_eq!(agent.get("/services/default/web").status, 200);
    agent.logs_once("not allowed to watch the node's Lease");
}
