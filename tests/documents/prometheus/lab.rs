//! Three nodes with an agent each, load balancers that ask them, and a Prometheus that scrapes them as the
//! `PodMonitor` says.

use super::api::Prometheus;
use super::component::Component;
use super::scrape::{Pod, job};
use super::{dashboard, rules};
use nodegate_testbed::agent::Agent;
use nodegate_testbed::cluster::{Cluster, agent_rules};
use nodegate_testbed::stub::{Stub, answer};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
/// The check of our own that runs on the last node.
pub(crate) const CHECK: &str = "http:app";
/// `worker-1`'s agent has an account of its own, so that a fault can be for it alone.
pub(crate) const FIRST_USER: &str = "system:serviceaccount:nodegate:first";
const FIRST_TOKEN: &str = "first-token";

/// Scrapes and evaluates; the shortened alerts wait for seconds.
const INTERVAL: &str = "250ms";

pub(crate) struct Lab {
    pub(crate) prometheus: Prometheus,
    pub(crate) agents: Vec<Agent>,
    pub(crate) cluster: Cluster,
    /// What the check of our own asks.
    pub(crate) app: Stub,
    pub(crate) component: Component,
    pub(crate) begun: Instant,
    balancer: Balancer,
    _dir: TempDir,
}

impl Lab {
    pub(crate) fn start() -> Self {
        let begun = Instant::now();
        let dir = tempfile::tempdir().unwrap();
        let component = Component::render();
        let cluster = Cluster::with(|builder| {
            builder.nodes(NODES).kubelets(true).lease_interval(Duration::from_secs(1))
        });
        let app = Stub::start(answer("200 OK", ""));
        let net = Net::new();
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
        let balancer = Balancer::start(agents.iter().map(Agent::address).collect());
        Self { prometheus, agents, cluster, app, component, begun, balancer, _dir: dir }
    }

    /// Ends the last node's agent.
    pub(crate) fn kill_last(&mut self) {
        let last = self.agents.pop().unwrap();
        self.balancer.forget_last();
        drop(last);
    }

    /// Every query of the dashboard.
    pub(crate) fn dashboard(&self) -> dashboard::Dashboard {
        dashboard::Dashboard::read(&self.component.dashboard)
    }
}

fn agent(index: usize, cluster: &Cluster, app: &Stub, net: Net) -> Agent {
    let mut args = vec![
        format!("--listen-address={}", net.address(u8::try_from(index).unwrap() + 1)),
        // The `PodMonitor`'s.
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
        args.push(format!("--check={CHECK}:interval=300ms,fall=1"));
        args.push(format!("--checks={CHECK}"));
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Agent::start(NODES[index], &kubeconfig, &args)
}

/// Addresses of this process alone; 127.0.0.0/8 is all loopback.
#[derive(Clone, Copy)]
struct Net(u32);

impl Net {
    fn new() -> Self {
        Self(std::process::id())
    }

    fn address(self, last: u8) -> IpAddr {
        let [_, _, high, low] = self.0.to_be_bytes();
        // Never 127.0: there is what else runs here.
        Ipv4Addr::new(127, high | 0x80, low, last).into()
    }
}

/// Asks each agent for the node's health, again and again.
struct Balancer {
    state: Arc<BalancerState>,
    thread: Option<JoinHandle<()>>,
}

struct BalancerState {
    ended: AtomicBool,
    without_last: AtomicBool,
}

impl Balancer {
    fn start(agents: Vec<SocketAddr>) -> Self {
        let state =
            Arc::new(BalancerState { ended: AtomicBool::new(false), without_last: AtomicBool::new(false) });
        let seen = state.clone();
        let thread = std::thread::spawn(move || {
            while !seen.ended.load(Ordering::SeqCst) {
                let few = agents.len() - usize::from(seen.without_last.load(Ordering::SeqCst));
                for agent in &agents[..few] {
                    // An agent that is gone is part of the story.
                    let _ = ask(*agent);
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { state, thread: Some(thread) }
    }

    fn forget_last(&self) {
        self.state.without_last.store(true, Ordering::SeqCst);
    }
}

fn ask(agent: SocketAddr) -> std::io::Result<()> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(agent)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    stream.read_to_end(&mut Vec::new()).map(drop)
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
