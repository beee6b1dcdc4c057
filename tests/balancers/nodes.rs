//! Three nodes with an agent and a service on each, a router between them with the API server and most balancers, and a
//! client behind it: each a network namespace with the address of the documents.

use crate::backend::Backend;
use nodegate_kube_sim::Sim;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::{Agent, Scenario, programs, until};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
pub(crate) const SERVICE_PORT: u16 = 30443;
pub(crate) const HTTP_PORT: u16 = 25001;
/// The address of a balancer before the nodes.
pub(crate) const FRONTEND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)), 443);

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Short, to make outages short; the kubelets renew their Leases every second to match.
const STALE_AFTER: &str = "4s";
/// The requests on each node before a test starts.
const WARM: u64 = 10;

pub(crate) struct Lan {
    pub(crate) nodes: Vec<Namespace>,
    pub(crate) router: Namespace,
    pub(crate) client: Namespace,
}

impl Lan {
    pub(crate) fn new() -> Self {
        let [router, client] = ["router", "client"].map(Namespace::new);
        // Routes are chosen by the ports, too, because all connections come from one client.
        router.shell(&format!(
            "ip link add lan type bridge; ip addr add 10.0.0.1/24 dev lan; ip link set lan up
             sysctl -qw net.ipv4.ip_forward=1 net.ipv4.fib_multipath_hash_policy=1
             ip link add clients type veth peer name eth0 netns {}
             ip addr add 10.0.1.1/24 dev clients; ip link set clients up",
            client.name()
        ));
        client.shell(
            "ip addr add 10.0.1.2/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.1.1",
        );
        let mut lan = Self { nodes: Vec::new(), router, client };
        let nodes = NODES.iter().enumerate().map(|(index, name)| lan.machine(name, node_address(index)));
        lan.nodes = nodes.collect();
        lan
    }

    pub(crate) fn machine(&self, name: &str, address: IpAddr) -> Namespace {
        let machine = Namespace::new(name);
        let peer = machine.name();
        self.router.shell(&format!(
            "ip link add {name} type veth peer name eth0 netns {peer}; ip link set {name} master lan up"
        ));
        machine.shell(&format!(
            "ip addr add {address}/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.0.1"
        ));
        machine
    }

    /// Returns the machine of a balancer before the nodes, which has [`FRONTEND`]'s address.
    pub(crate) fn front(&self) -> &Namespace {
        self.router.run("ip addr replace 10.0.0.10/24 dev lan");
        &self.router
    }
}

pub(crate) fn node_address(index: usize) -> IpAddr {
    [10, 0, 0, 11 + u8::try_from(index).unwrap()].into()
}

pub(crate) struct Nodes {
    pub(crate) cluster: Scenario,
    pub(crate) agents: Vec<Option<Agent>>,
    pub(crate) backends: Vec<Backend>,
    agent_args: &'static [&'static str],
    /// Dropped after the agents and the backends.
    pub(crate) lan: Arc<Lan>,
}

impl Nodes {
    pub(crate) fn start(agent_args: &'static [&'static str]) -> Self {
        let lan = Arc::new(Lan::new());
        let renewal = Duration::from_secs(1);
        let cluster = lan.router.act(|| {
            let builder = Sim::builder().tls(true).nodes(NODES).kubelets(true).lease_interval(renewal);
            Scenario::of(builder.listen(([10, 0, 0, 1], 0).into()))
        });
        let (agents, backends) = (Vec::new(), Vec::new());
        let mut nodes = Self { cluster, agents, backends, agent_args, lan };
        for index in 0..NODES.len() {
            nodes.agents.push(Some(nodes.new_agent(index)));
            nodes.backends.push(nodes.new_backend(index));
        }
        nodes.each_agent(|agent| drop(agent.wait_ready()));
        nodes
    }

    pub(crate) fn dir(&self) -> &Path {
        self.cluster.dir.path()
    }

    pub(crate) fn configuration(&self, name: &str) -> PathBuf {
        configuration(self.dir(), name)
    }

    pub(crate) fn new_agent(&self, index: usize) -> Agent {
        let mut command = self.lan.nodes[index].command(programs::agent());
        command.env("NODE_NAME", NODES[index]).env("KUBECONFIG", self.cluster.kubeconfig());
        // Also at an address that moves.
        command.env("NODEGATE_LISTEN_ADDRESS", "0.0.0.0").env("NODEGATE_AGENT_CHECK_PORT", "25002");
        command.arg(format!("--listen-port={HTTP_PORT}"));
        command.env("NODEGATE_STALE_AFTER", STALE_AFTER).args(self.agent_args);
        Agent::launch(command)
    }

    fn new_backend(&self, index: usize) -> Backend {
        self.lan.nodes[index].act(|| Backend::start(NODES[index], SERVICE_PORT))
    }

    pub(crate) fn agent(&self, index: usize) -> &Agent {
        self.agents[index].as_ref().unwrap()
    }

    /// Probes a node's agent on the node.
    pub(crate) fn ask_agent(&self, index: usize, ask: impl FnOnce(&Agent) + Send) {
        self.lan.nodes[index].act(|| ask(self.agent(index)));
    }

    pub(crate) fn each_agent(&self, ask: impl Fn(&Agent) + Sync) {
        (0..NODES.len()).for_each(|index| self.ask_agent(index, &ask));
    }

    pub(crate) fn revive(&mut self, index: usize) {
        self.backends[index] = self.new_backend(index);
    }

    pub(crate) fn wait_for_traffic_on(&self, indices: &[usize]) {
        let count = |index: &usize| self.backends[*index].connections();
        let before: Vec<u64> = indices.iter().map(count).collect();
        until("traffic on the nodes", || {
            let mut pairs = indices.iter().zip(&before);
            pairs.all(|(index, before)| count(index) >= before + WARM).then_some(())
        });
    }
}

/// Copies a documented configuration, or one of these tests, to a directory, where its sockets and state files are, too.
pub(crate) fn configuration(dir: &Path, name: &str) -> PathBuf {
    let folder = if name.contains('/') { "docs/load-balancers" } else { "tests/balancers" };
    let mut text = fs::read_to_string(format!("{ROOT}/{folder}/{name}")).unwrap();
    for elsewhere in ["/run/nginx/", "/run/haproxy/", "/var/lib/haproxy/"] {
        text = text.replace(elsewhere, &format!("{}/", dir.display()));
    }
    let path = dir.join(Path::new(name).file_name().unwrap());
    fs::write(&path, text).unwrap();
    path
}

pub(crate) fn documented(program: &str) -> Vec<String> {
    let files = fs::read_dir(format!("{ROOT}/docs/load-balancers/{program}")).unwrap();
    let mut names: Vec<String> =
        files.map(|file| format!("{program}/{}", file.unwrap().file_name().display())).collect();
    names.sort();
    assert!(!names.is_empty());
    names
}
