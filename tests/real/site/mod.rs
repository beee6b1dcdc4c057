//! Pods on the node, with and without the hook, behind two balancers that the agent tells; and clients that
//! count what is lost.

mod pods;

pub(crate) use pods::{HOOK, Pods, WAYS, Way, listens};

use crate::daemonset::Installed;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Prober, Saw, exchange};
use nodegate_testbed::real_cluster::{DEADLINE, REAL_NODE, RealCluster};
use nodegate_testbed::waiting::until_within;
use serde_json::Value;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Requests a second on each way through each balancer.
const REQUESTS_A_SECOND: u32 = 25;
const CLIENTS: u32 = 4;
/// The time after which a client gives up.
const A_REQUEST: Duration = Duration::from_secs(5);
/// Each asks once a second for each way; the acknowledgement comes after four seconds.
const BALANCERS: [&str; 2] = ["lb1", "lb2"];

/// Returns `/drain.json`, which does not count as a probe.
pub(crate) fn drain(agent: SocketAddr) -> Value {
    http::get(agent, "/drain.json").map(|reply| reply.json()).unwrap_or_default()
}

fn ask(to: SocketAddr) -> Saw {
    exchange(to, "GET / HTTP/1.0\r\nhost: x\r\n\r\n", A_REQUEST, |text| {
        let reply = ProbeReply::parse(text)?;
        let arrived = reply.status == 200;
        Some(if arrived { Saw::Answer(200, reply.body) } else { Saw::Failed(reply.status.to_string()) })
    })
}

/// Two balancers before the pods and the rest of the pool, and the clients of each.
pub(crate) struct Site<'a> {
    pub(crate) pods: Pods<'a>,
    pub(crate) agent: SocketAddr,
    ways: &'static [Way],
    clients: Vec<(Way, Prober)>,
    _balancers: Vec<Haproxy>,
    _installed: Installed<'a>,
}

impl<'a> Site<'a> {
    pub(crate) fn start(cluster: &'a RealCluster, ways: &'static [Way]) -> Self {
        let installed = Installed::by_manifests(cluster);
        let agent = installed.address;
        let pods = Pods::prepare(cluster);
        pods.start_again(ways);
        let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let mut balancers = vec![rest_of_the_pool(cluster, elsewhere)];
        let mut clients = Vec::new();
        for name in BALANCERS {
            let listen = |way: &Way| (*way, SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free())));
            let listeners: Vec<_> = ways.iter().map(listen).collect();
            balancers.push(balancer(cluster, name, agent, elsewhere, &listeners));
            let client = |(way, at)| (way, Prober::start(at, ask, REQUESTS_A_SECOND, CLIENTS));
            clients.extend(listeners.into_iter().map(client));
        }
        let site = Self { pods, agent, ways, clients, _balancers: balancers, _installed: installed };
        site.wait_in_service();
        site
    }

    /// Removes the pods that have ended, and starts them again.
    pub(crate) fn start_again(&self) {
        self.pods.start_again(self.ways);
    }

    /// Waits until the agent knows that all balancers send new requests to the node, and they do.
    pub(crate) fn wait_in_service(&self) {
        let probers = BALANCERS.len() * self.ways.len();
        let knows = || {
            let drain = drain(self.agent);
            let all = drain["probers"].as_u64() >= Some(probers as u64);
            (drain["acknowledged_ready"] == true && all).then_some(())
        };
        until_within(DEADLINE, knows, || drain(self.agent).to_string());
        let since = Instant::now();
        thread::sleep(Duration::from_secs(2));
        for &way in self.ways {
            let requests = self.requests(way, since);
            assert!(requests.from_the_pod > 0 && requests.lost == 0, "{}: {requests:?}", way.name());
        }
    }

    /// Counts the requests on a way, through both balancers, that have ended since then.
    pub(crate) fn requests(&self, way: Way, since: Instant) -> Requests {
        let mut requests = Requests::default();
        for (_, clients) in self.clients.iter().filter(|(of, _)| *of == way) {
            for request in clients.answered_since(since) {
                requests.all += 1;
                match &request.saw {
                    Saw::Failed(_) => {
                        requests.lost += 1;
                        requests.last_lost = requests.last_lost.max(Some(request.answered));
                    }
                    Saw::Answer(_, from) => requests.from_the_pod += u32::from(from == "from the pod"),
                }
            }
        }
        requests
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    pub(crate) all: u32,
    pub(crate) lost: u32,
    pub(crate) last_lost: Option<Instant>,
    pub(crate) from_the_pod: u32,
}

fn haproxy(cluster: &RealCluster, name: &str, text: &str) -> Haproxy {
    let directory = cluster.files.path().join(name);
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("haproxy.cfg");
    let socket = directory.join("nodegate.sock");
    let head = format!(
        "global\n  stats socket {} level admin\n  node {name}\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 10s\n  \
         timeout server 10s\n",
        socket.display()
    );
    fs::write(&file, head + text).unwrap();
    Haproxy::start(&file)
}

/// A server that no shutdown of the node ends. A balancer without it would lose requests after it has acted.
fn rest_of_the_pool(cluster: &RealCluster, address: SocketAddr) -> Haproxy {
    haproxy(
        cluster,
        "elsewhere",
        &format!(
            "frontend all\n  bind {address}\n  http-request return status 200 content-type text/plain string elsewhere\n"
        ),
    )
}

/// A balancer that does not retry a failed request, and whose only check is the agent's answer.
fn balancer(
    cluster: &RealCluster,
    name: &str,
    agent: SocketAddr,
    elsewhere: SocketAddr,
    ways: &[(Way, SocketAddr)],
) -> Haproxy {
    let mut text = format!(
        "  retries 0\n  timeout check 1s\n  option httpchk GET /health\n  http-check send-state\n  \
         default-server inter 1s fall 3 rise 2 addr {} port {}\n",
        agent.ip(),
        agent.port()
    );
    for (way, address) in ways {
        let (name, server) = (way.name(), way.address());
        let servers = format!("server {REAL_NODE} {server} check\n  server elsewhere {elsewhere}");
        writeln!(text, "listen {name}\n  bind {address}\n  {servers}").unwrap();
    }
    haproxy(cluster, name, &text)
}
