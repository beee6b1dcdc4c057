//! Pods on the node, with and without the hook, behind two balancers; and clients that count what is lost.

use crate::daemonset::Installed;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Prober, Saw, exchange};
use nodegate_testbed::real_cluster::{REAL_NODE_IP, RealCluster, is_ending, repository_file, until_so};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const REQUESTS_A_SECOND: u32 = 25;
const CLIENTS: u32 = 4;
const A_REQUEST: Duration = Duration::from_secs(5);
/// Each asks once a second for each way; the acknowledgement comes after four seconds.
const BALANCERS: [&str; 2] = ["lb1", "lb2"];
pub(crate) const HOOK: &str = r#"httpGet: {host: 127.0.0.1, port: 25001, path: "/wait?timeout=30&settle=2"}"#;
/// The namespace of the pods, and the configuration of their program.
pub(crate) const POOL: &str = include_str!("objects/pool.yaml");

/// A pod on the host's network that answers at a port, and the way to it: the name of HAProxy's backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    port: u16,
}

pub(crate) const PLAIN: Way = Way { name: "plain", port: 8081 };
pub(crate) const HELD: Way = Way { name: "held", port: 8082 };
pub(crate) const WAYS: [Way; 2] = [PLAIN, HELD];

impl Way {
    pub(crate) fn address(self) -> SocketAddr {
        SocketAddr::new(REAL_NODE_IP.parse().unwrap(), self.port)
    }
}

/// The namespace `pool` with an application that answers. Dropping it removes it.
pub(crate) struct Pods<'a>(pub(crate) &'a RealCluster);

impl<'a> Pods<'a> {
    pub(crate) fn prepare(cluster: &'a RealCluster) -> Self {
        assert!(repository_file("docs/drains.md").contains(HOOK), "the documents have another hook");
        cluster.node_script(&["image", "haproxy", "haproxy", "-db", "-f", "/configuration/haproxy.cfg"]);
        cluster.apply(POOL);
        Self(cluster)
    }

    /// Starts the pod of this way, and waits until it answers.
    pub(crate) fn start(&self, way: Way) {
        let (name, port) = (way.name, way.port.to_string());
        let hook = format!("{{preStop: {{{HOOK}}}}}");
        let pod = include_str!("objects/pod.yaml").replace("$name", name).replace("$port", &port);
        self.0.apply(&pod.replace("$lifecycle", if way == HELD { &hook } else { "{}" }));
        self.0.wait_pod("pool", name);
        until_so(|| listens(way.address()), || format!("{name} does not answer"));
    }

    /// Deletes pods as `kubectl delete` does, and does not wait.
    pub(crate) fn delete(&self, names: &[&str]) {
        let delete = ["--namespace=pool", "delete", "pod", "--wait=false", "--ignore-not-found"];
        self.0.kubectl.must(&[&delete, names].concat());
    }

    pub(crate) fn is_gone(&self, name: &str) -> bool {
        let about = ["--namespace=pool", "get", "pod", name, "--ignore-not-found", "--output=name"];
        self.0.kubectl.must(&about).trim().is_empty()
    }

    /// Returns true if each pod is gone or was asked to end: deleted or evicted.
    pub(crate) fn are_ending(&self) -> bool {
        let pods = self.0.api.get("/api/v1/namespaces/pool/pods").unwrap_or_default();
        pods["items"].as_array().is_some_and(|pods| pods.iter().all(is_ending))
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.kubectl.run(&["delete", "namespace", "pool", "--timeout=5m"]) {
            eprintln!("the pods can't be removed: {error}");
        }
    }
}

/// Returns true if a program on the node takes connections there.
pub(crate) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

/// Returns `/drain.json`, which does not count as a probe.
pub(crate) fn drain(agent: SocketAddr) -> Value {
    http::get(agent, "/drain.json").map(|reply| reply.json()).unwrap_or_default()
}

/// Returns the value of a series of a program's metrics, 0 without it.
pub(crate) fn metric(program: SocketAddr, series: &str) -> usize {
    let page = http::get(program, "/metrics").map(|page| page.body).unwrap_or_default();
    page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or_default()
}

/// Sends a request on a connection of its own. The answer says where it is from.
pub(crate) fn new_connection(to: SocketAddr) -> Saw {
    exchange(to, "GET / HTTP/1.0\r\nhost: x\r\n\r\n", A_REQUEST, |text| {
        let reply = ProbeReply::parse(text)?;
        let arrived = reply.status == 200;
        Some(if arrived { Saw::Answer(200, reply.body) } else { Saw::Failed(reply.status.to_string()) })
    })
}

/// Two balancers before the pods and the rest of the pool, and the clients of each.
pub(crate) struct Scenario<'a> {
    pub(crate) pods: Pods<'a>,
    pub(crate) agent: SocketAddr,
    clients: Vec<(Way, Prober)>,
    _balancers: Vec<Haproxy>,
    _installed: Installed<'a>,
}

impl<'a> Scenario<'a> {
    pub(crate) fn start(cluster: &'a RealCluster) -> Self {
        let installed = Installed::by_manifests(cluster);
        let agent = installed.address;
        let pods = Pods::prepare(cluster);
        for way in WAYS {
            pods.start(way);
        }
        let (mut balancers, mut clients) = (Vec::new(), Vec::new());
        for name in BALANCERS {
            let [plain, held, elsewhere] =
                [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], ports::free())));
            let text = include_str!("objects/balancer.cfg").replace("$name", name);
            let text = text.replace("$plain", &plain.to_string()).replace("$held", &held.to_string());
            let text = text.replace("$elsewhere", &elsewhere.to_string());
            balancers.push(Haproxy::with(&cluster.files.path().join(name), &text));
            for (way, at) in [(PLAIN, plain), (HELD, held)] {
                clients.push((way, Prober::start(at, new_connection, REQUESTS_A_SECOND, CLIENTS)));
            }
        }
        let scenario = Self { pods, agent, clients, _balancers: balancers, _installed: installed };
        scenario.wait_in_service();
        scenario
    }

    /// Removes the pods that have ended, and starts them again.
    pub(crate) fn start_again(&self) {
        self.pods.delete(&WAYS.map(|way| way.name));
        for way in WAYS {
            until_so(|| self.pods.is_gone(way.name), || format!("the pod {} stays", way.name));
            self.pods.start(way);
        }
    }

    /// Waits until the agent knows that all balancers send new requests to the node, and they do.
    pub(crate) fn wait_in_service(&self) {
        let probers = (BALANCERS.len() * WAYS.len()) as u64;
        let knows = || {
            let drain = drain(self.agent);
            drain["acknowledged_ready"] == true && drain["probers"].as_u64() >= Some(probers)
        };
        until_so(knows, || drain(self.agent).to_string());
        let since = Instant::now();
        thread::sleep(Duration::from_secs(2));
        for way in WAYS {
            let requests = self.requests(way, since);
            assert!(requests.from_the_pod > 0 && requests.lost == 0, "{}: {requests:?}", way.name);
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
