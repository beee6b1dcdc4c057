//! Three nodes with an agent each, load balancers that probe them, and a Prometheus that scrapes them as the
//! `PodMonitor` says.

use super::api::Prometheus;
use super::component::Component;
use super::scrape::{Pod, job};
use super::{dashboard, rules};
use nodegate_testbed::cluster::agent_rules;
use nodegate_testbed::http;
use nodegate_testbed::network::ports::Loopback;
use nodegate_testbed::prober::{Prober, Saw, health};
use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Agent, Cluster};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
/// The configured check that runs on the last node.
pub(crate) const CHECK: &str = "http:app";
/// The check that a balancer requests on the second node, where its target is closed.
pub(crate) const DEMANDED: &str = "okd_router_1936";
/// The account of `worker-1`'s agent: its own, so that a fault can hit it alone.
pub(crate) const FIRST_USER: &str = "system:serviceaccount:nodegate:first";
const FIRST_TOKEN: &str = "first-token";

/// The interval of scrapes and evaluations; the shortened alerts wait for seconds.
const INTERVAL: &str = "250ms";
const PROBES_A_SECOND: u32 = 20;
/// The pause between two slow probes: four answers then take many times longer than the shortened alert
/// waits.
const SLOW: Duration = Duration::from_secs(3);

pub(crate) struct Fleet {
    pub(crate) prometheus: Prometheus,
    pub(crate) agents: Vec<Agent>,
    pub(crate) cluster: Cluster,
    /// The target of the configured check.
    pub(crate) app: Stub,
    pub(crate) component: Component,
    pub(crate) begun: Instant,
    /// The balancers that probe the agents of these nodes.
    balancers: BTreeMap<&'static str, Prober>,
    /// A balancer of the first node that probes so rarely that it takes long to be told.
    _slow: Prober,
    _dir: TempDir,
}

impl Fleet {
    pub(crate) fn start() -> Self {
        let begun = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let component = Component::render();
        let cluster = Cluster::with(|builder| {
            builder.nodes(NODES).kubelets(true).lease_interval(Duration::from_secs(1))
        });
        let app = Stub::start(answer("200 OK", ""));
        let net = Loopback::new();
        let agents: Vec<Agent> = (0..3).map(|index| agent(index, &cluster, &app, net)).collect();
        for agent in &agents {
            agent.wait_ready();
        }
        let pods =
            NODES.iter().zip(1..).map(|(node, n)| Pod::of(&component, node, &net.address(n).to_string()));
        let config = json!({
            "global": {"evaluation_interval": INTERVAL},
            "rule_files": ["nodegate.rules.yaml"],
            "scrape_configs": [job(&component.pod_monitor, &pods.collect::<Vec<_>>(), INTERVAL)],
        });
        std::fs::write(dir.path().join("prometheus.yml"), config.to_string()).unwrap();
        rules::write(&rules::shortened(&component.rules), &dir.path().join("nodegate.rules.yaml"));
        let prometheus = Prometheus::start(dir.path(), SocketAddr::new(net.address(9), 9090));
        let balancer = |agent: &Agent| Prober::start(agent.address(), health, PROBES_A_SECOND, 1);
        let balancers = NODES.into_iter().zip(agents.iter().map(balancer)).collect();
        let slow = Prober::start(agents[0].address(), slowly, PROBES_A_SECOND, 1);
        Self { prometheus, agents, cluster, app, component, begun, balancers, _slow: slow, _dir: dir }
    }

    /// Ends the last node's agent.
    pub(crate) fn kill_last(&mut self) {
        self.ask_no_more(NODES[2]);
        drop(self.agents.pop());
    }

    /// Starts a prober of the second node whose check fails there and is in no setting; dropping it stops it.
    pub(crate) fn demand(&self) -> Prober {
        Prober::start(self.agents[1].address(), demands, PROBES_A_SECOND, 1)
    }

    /// Stops the balancer of this node.
    pub(crate) fn ask_no_more(&mut self, node: &str) {
        self.balancers.remove(node).unwrap().stop();
    }

    /// Returns every query of the dashboard.
    pub(crate) fn dashboard(&self) -> dashboard::Dashboard {
        dashboard::Dashboard::read(&self.component.dashboard)
    }
}

/// Probes as a balancer with a long interval.
fn slowly(address: SocketAddr) -> Saw {
    std::thread::sleep(SLOW);
    asked(address, "/nodecheck")
}

fn demands(address: SocketAddr) -> Saw {
    asked(address, &format!("/health?check={DEMANDED}"))
}

fn asked(address: SocketAddr, path: &str) -> Saw {
    match http::get(address, path) {
        Ok(reply) => Saw::Answer(reply.status, reply.body),
        Err(error) => Saw::Failed(error.to_string()),
    }
}

fn agent(index: usize, cluster: &Cluster, app: &Stub, net: Loopback) -> Agent {
    let mut args = vec![
        format!("--listen-address={}", net.address(u8::try_from(index).unwrap() + 1)),
        // The port of the `PodMonitor`.
        "--listen-port=25001".to_owned(),
        "--stale-after=3s".to_owned(),
    ];
    let kubeconfig = if index == 0 {
        cluster.sim.service_account(FIRST_TOKEN, "nodegate", "first", agent_rules());
        let path = cluster.dir.path().join("first.kubeconfig");
        std::fs::write(&path, cluster.sim.kubeconfig_for(FIRST_TOKEN)).unwrap();
        path
    } else {
        cluster.kubeconfig()
    };
    if index == 2 {
        args.push(format!("--http-check=app={}", app.url("/")));
        args.push(format!("--check-settings={CHECK}:interval=300ms,fall=1"));
        args.push(format!("--background-checks={CHECK}"));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Agent::start(NODES[index], &kubeconfig, &args)
}
