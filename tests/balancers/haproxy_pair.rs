//! Two balancers with HAProxy, nodegate-haproxy and keepalived, as examples/haproxy has them. Each is a
//! network namespace; the API server, the nodes and the client are in the network between them. The test
//! takes all nodes out and back, one after the other, without a lost request; then HAProxy fails on the
//! balancer that holds the address.

use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{needs_root, nodegate_haproxy};
use nodegate_testbed::{Cluster, NODE, http, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const TEMPLATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/haproxy.cfg.TEMPLATE");
const KEEPALIVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/haproxy/keepalived.conf");
const ADDRESS: [u8; 4] = [10, 0, 0, 100];
const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
const NODE_PORT: u16 = 30_080;
const HEALTH_PORT: u16 = 25_001;

type Served = Arc<Mutex<BTreeMap<IpAddr, u64>>>;

struct Balancer {
    _keepalived: Program,
    haproxy: Option<Program>,
    _program: Program,
    master: PathBuf,
    config: PathBuf,
    namespace: Namespace,
}

impl Balancer {
    fn start(index: usize, lan: &Namespace, dir: &Path) -> Self {
        let name = format!("lb{}", index + 1);
        let namespace = Namespace::new(&name);
        lan.run(&format!("ip link add {name} type veth peer name eth0 netns {}", namespace.name()));
        lan.run(&format!("ip link set {name} master lan up"));
        namespace.run(&format!("ip addr add 10.0.0.1{}/24 dev eth0", index + 1));
        namespace.run("ip link set eth0 up");
        // As in many networks.
        namespace.run("iptables --append INPUT --destination 224.0.0.0/4 --jump DROP");
        let (config, master) =
            (dir.join(format!("haproxy-{index}.cfg")), dir.join(format!("master-{index}")));
        let mut program = namespace.command(nodegate_haproxy());
        program.env("KUBECONFIG", dir.join("kubeconfig")).arg("--config").arg(&config);
        program.arg("--master-socket").arg(&master).args(["--template", TEMPLATE]);
        program.args(["--check=agent:interval=500ms", "--reload-interval=1s"]);
        let program = Program::start(&mut program);
        until("a configuration", || config.exists().then_some(()));
        let haproxy = Some(haproxy(&namespace, &config, &master));
        let mut keepalived = namespace.command("keepalived");
        keepalived.args(["-n", "-l", "-P", "-f", KEEPALIVED, "-i", &name]);
        keepalived
            .arg("-p")
            .arg(dir.join(format!("pid-{index}")))
            .arg("-r")
            .arg(dir.join(format!("vrrp-{index}")));
        Self {
            _keepalived: Program::start(&mut keepalived),
            haproxy,
            _program: program,
            master,
            config,
            namespace,
        }
    }

    fn holds_the_address(&self) -> bool {
        self.namespace.run("ip -4 addr show dev eth0").contains("10.0.0.100/24")
    }

    /// Returns true if the node's server has the weight 0.
    fn drains(&self, node: &str) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&self.master)?;
            stream.write_all(b"@1 show servers state nodegate_default_web_80\n")?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = ask().unwrap_or_default();
        let line = answer.lines().find(|line| line.split(' ').nth(3) == Some(node));
        line.and_then(|line| line.split(' ').nth(7)) == Some("0")
    }
}

fn haproxy(namespace: &Namespace, config: &Path, master: &Path) -> Program {
    Program::start(namespace.command("haproxy").arg("-W").arg("-S").arg(master).arg("-f").arg(config))
}

/// Runs an HTTP server on all addresses of this namespace, which counts requests by their destination
/// address.
fn serve(port: u16, served: Served) {
    let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let served = served.clone();
            std::thread::spawn(move || {
                let mut request = [0; 2048];
                if !matches!(stream.read(&mut request), Ok(1..)) {
                    return;
                }
                *served.lock().unwrap().entry(stream.local_addr().unwrap().ip()).or_insert(0) += 1;
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
                let _ = stream.write_all(answer.as_bytes());
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read(&mut request);
            });
        }
    });
}

fn address(index: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 21 + u8::try_from(index).unwrap()])
}

fn cluster(lan: &Namespace, dir: &Path) -> Cluster {
    let cluster = lan.act(|| Cluster::with(|builder| builder.listen(([10, 0, 0, 1], 0).into()).nodes(NODES)));
    cluster.sim.write_kubeconfig(&dir.join("kubeconfig")).unwrap();
    assert!(cluster.sim.delete_node(NODE));
    for (index, node) in NODES.into_iter().enumerate() {
        lan.run(&format!("ip addr add {}/24 dev lan", address(index)));
        let addresses = json!([{"type": "InternalIP", "address": address(index)}]);
        let set = |object: &mut Value| object["status"]["addresses"] = addresses.clone();
        assert!(cluster.sim.edit_node(node, "test", set));
    }
    cluster.sim.apply(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": NODE_PORT, "protocol": "TCP"}]},
    }))
    .unwrap();
    cluster
}

fn get(address: SocketAddr) -> Saw {
    match http::get(address, "/") {
        Ok(reply) => Saw::Answer(reply.status, String::new()),
        Err(error) => Saw::Failed(error.to_string()),
    }
}

/// Returns the balancer that holds the address, if exactly one does.
fn holder(balancers: &[Balancer]) -> Option<usize> {
    let mut holders = balancers.iter().enumerate().filter(|(_, balancer)| balancer.holds_the_address());
    let (index, _) = holders.next()?;
    holders.next().is_none().then_some(index)
}

#[test]
fn all_nodes_drain_behind_a_haproxy_pair_without_a_lost_request() {
    needs_root("network namespaces");
    let dir = tempfile::tempdir().unwrap();
    let lan = Namespace::new("lan");
    lan.run("ip link add lan type bridge");
    lan.run("ip link set lan up");
    lan.run("ip addr add 10.0.0.1/24 dev lan");
    let cluster = cluster(&lan, dir.path());
    let served = Served::default();
    lan.act(|| {
        serve(NODE_PORT, served.clone());
        serve(HEALTH_PORT, Served::default());
    });
    let mut balancers = [0, 1].map(|index| Balancer::start(index, &lan, dir.path()));
    let first = until("one balancer with the address", || holder(&balancers));
    let shared = SocketAddr::from((ADDRESS, 80));
    let count = |index: usize| served.lock().unwrap().get(&address(index)).copied().unwrap_or(0);
    let reaches_all = || {
        let before: Vec<u64> = (0..3).map(count).collect();
        until("every node to be reached", || {
            lan.act(|| get(shared));
            (0..3).all(|index| count(index) > before[index]).then_some(())
        });
    };
    reaches_all();

    let mut traffic = lan.act(|| Prober::start(shared, move |_| get(shared), 200, 2));
    for (index, node) in NODES.into_iter().enumerate() {
        assert!(cluster.sim.cordon(node));
        until("both to drain it", || balancers.iter().all(|balancer| balancer.drains(node)).then_some(()));
        let (out, asked) = (count(index), traffic.probes().len());
        until("more requests", || (traffic.probes().len() > asked + 50).then_some(()));
        // One request may have been in flight.
        assert!(count(index) <= out + 2, "{node} was asked while it was drained");
        assert!(cluster.sim.uncordon(node));
        let back = count(index);
        until("it to serve again", || (count(index) > back + 5).then_some(()));
    }
    traffic.stop();
    let lost: Vec<String> = traffic.failed().iter().map(Probe::told).collect();
    assert_eq!(lost, Vec::<String>::new());
    println!("{} requests over {} cordons, 0 lost", traffic.probes().len(), NODES.len());

    // HAProxy fails on the balancer with the address: the other one takes the address over, with all nodes,
    // and keeps it.
    let other = 1 - first;
    drop(balancers[first].haproxy.take());
    until("the address at the other one", || (holder(&balancers) == Some(other)).then_some(()));
    reaches_all();
    let back = &balancers[first];
    let again = haproxy(&back.namespace, &back.config, &back.master);
    balancers[first].haproxy = Some(again);
    until("HAProxy to be back", || UnixStream::connect(&balancers[first].master).ok());
    reaches_all();
    assert_eq!(holder(&balancers), Some(other), "it does not come back by itself");
}
