//! Pods on the node, with and without the hook, behind two balancers that the agent tells; and clients that
//! count what is lost.

use crate::daemonset::Installed;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Prober, Saw, exchange};
use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, REAL_NODE_IP, RealCluster, repository_file};
use nodegate_testbed::waiting::until_within;
use serde_json::Value;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Requests a second on each way through each balancer.
const REQUESTS_A_SECOND: u32 = 25;
const CLIENTS: u32 = 4;
/// The time after which a client gives up.
const A_REQUEST: Duration = Duration::from_secs(5);
/// The two balancers and the two ways ask once a second each; told comes after four seconds.
const PROBERS: u64 = 4;

/// The hook of the documents.
pub(super) const HOOK: &str = r#"httpGet: {host: 127.0.0.1, port: 25001, path: "/wait?timeout=30&settle=2"}"#;

/// A pod on the host's network that answers at a port, and the way to it: the name of HAProxy's backend.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Without a hook.
    Plain,
    /// With the hook of the documents.
    Held,
}

pub(super) const WAYS: [Way; 2] = [Way::Plain, Way::Held];

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Held => "held",
        }
    }

    pub(super) fn address(self) -> SocketAddr {
        let port = match self {
            Self::Plain => 8081,
            Self::Held => 8082,
        };
        SocketAddr::new(REAL_NODE_IP.parse().unwrap(), port)
    }

    fn lifecycle(self) -> String {
        match self {
            Self::Plain => "{}".to_owned(),
            Self::Held => format!("{{preStop: {{{HOOK}}}}}"),
        }
    }
}

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: hooks}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: application, namespace: hooks}
data:
  haproxy.cfg: |
    global
      maxconn 200
    defaults
      mode http
      timeout connect 5s
      timeout client 5s
      timeout server 5s
    frontend all
      bind :\"$PORT\"
      http-request return status 200 content-type text/plain string \"from the pod\"
";

/// The namespace `hooks` with an application that answers. Dropping it removes it.
pub(super) struct Pods<'a>(pub(super) &'a RealCluster);

impl<'a> Pods<'a> {
    pub(super) fn prepare(cluster: &'a RealCluster) -> Self {
        assert!(repository_file("docs/operations.md").contains(HOOK), "the documents have another hook");
        cluster.node_script(&["image", "haproxy", "haproxy", "-db", "-f", "/configuration/haproxy.cfg"]);
        cluster.apply(NAMESPACE);
        Self(cluster)
    }

    /// Starts the pod of this way, and waits until it answers.
    pub(super) fn start(&self, way: Way) {
        self.start_as(way.name(), way, "");
    }

    /// Starts a pod with another name and with more lines in its spec, such as a priority.
    pub(super) fn start_as(&self, name: &str, way: Way, more: &str) {
        self.0.apply(&format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: hooks}}
spec:
  nodeName: {REAL_NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 60
  {more}
  containers:
  - name: application
    image: real-cluster/haproxy:1
    # Its first process takes SIGTERM only as a master.
    command: [/program, -W, -db, -f, /configuration/haproxy.cfg]
    env: [{{name: PORT, value: \"{}\"}}]
    lifecycle: {}
    volumeMounts: [{{name: configuration, mountPath: /configuration}}]
  volumes: [{{name: configuration, configMap: {{name: application}}}}]
",
            way.address().port(),
            way.lifecycle(),
        ));
        self.0.wait_pod("hooks", name);
        until_within(PATIENCE, || listens(way.address()).then_some(()), || format!("{name} does not answer"));
    }

    /// Deletes pods as `kubectl delete` does, and does not wait.
    pub(super) fn delete(&self, names: &[&str]) {
        let delete = ["--namespace=hooks", "delete", "pod", "--wait=false", "--ignore-not-found"];
        self.0.kubectl.must(&[&delete, names].concat());
    }

    pub(super) fn is_gone(&self, name: &str) -> bool {
        let about = ["--namespace=hooks", "get", "pod", name, "--ignore-not-found", "--output=name"];
        self.0.kubectl.must(&about).trim().is_empty()
    }

    /// Removes what has ended, and starts the pods of both ways.
    pub(super) fn start_again(&self) {
        self.delete(&WAYS.map(Way::name));
        for way in WAYS {
            let gone = || self.is_gone(way.name()).then_some(());
            until_within(PATIENCE, gone, || format!("the pod {} stays", way.name()));
            self.start(way);
        }
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.kubectl.run(&["delete", "namespace", "hooks", "--timeout=5m"]) {
            eprintln!("the pods can't be removed: {error}");
        }
    }
}

/// Returns true if a program on the node takes connections there.
pub(super) fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
}

/// Returns `/drain.json`, which does not count as a probe.
pub(super) fn drain(agent: SocketAddr) -> Value {
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
pub(super) struct Site<'a> {
    pub(super) pods: Pods<'a>,
    pub(super) agent: SocketAddr,
    clients: Vec<(Way, Prober)>,
    _balancers: Vec<Haproxy>,
    _installed: Installed<'a>,
}

impl<'a> Site<'a> {
    pub(super) fn start(cluster: &'a RealCluster) -> Self {
        let installed = Installed::by_manifests(cluster);
        let agent = installed.address;
        let pods = Pods::prepare(cluster);
        pods.start_again();
        let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let mut balancers = vec![rest_of_the_pool(cluster, elsewhere)];
        let mut clients = Vec::new();
        for name in ["lb1", "lb2"] {
            let ways = WAYS.map(|way| (way, SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()))));
            balancers.push(balancer(cluster, name, agent, elsewhere, &ways));
            clients.extend(ways.map(|(way, at)| (way, Prober::start(at, ask, REQUESTS_A_SECOND, CLIENTS))));
        }
        let site = Self { pods, agent, clients, _balancers: balancers, _installed: installed };
        site.wait_in_service();
        site
    }

    /// Waits until the agent knows that all balancers send new requests to the node, and they do.
    pub(super) fn wait_in_service(&self) {
        let knows = || {
            let drain = drain(self.agent);
            (drain["told_ready"] == true && drain["probers"].as_u64() >= Some(PROBERS)).then_some(())
        };
        until_within(PATIENCE, knows, || drain(self.agent).to_string());
        let since = Instant::now();
        thread::sleep(Duration::from_secs(2));
        for way in WAYS {
            let requests = self.requests(way, since);
            assert!(requests.from_the_pod > 0 && requests.lost == 0, "{}: {requests:?}", way.name());
        }
    }

    /// Counts the requests on a way, through both balancers, that have ended since then.
    pub(super) fn requests(&self, way: Way, since: Instant) -> Requests {
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
pub(super) struct Requests {
    pub(super) all: u32,
    pub(super) lost: u32,
    pub(super) last_lost: Option<Instant>,
    pub(super) from_the_pod: u32,
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
