//! Two balancers, each with its own program, and an address that keepalived keeps on one of them. The test
//! does a rolling upgrade of all nodes, and then stops one balancer. Each balancer is a network namespace;
//! clients, the API server and the nodes are in another. The test looks at the clients' results.

use crate::Row;
use crate::lab::service;
use crate::servers::{Counts, count_of};
use crate::traffic::Traffic;
use nodegate_haproxy::haproxy::socket::Runtime as Socket;
use nodegate_haproxy::haproxy::state_file::parse;
use nodegate_haproxy::plan::desired::PlannedState;
use nodegate_kube_sim::{NodeShape, Sim, make_node};
use nodegate_testbed::http;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::signal;
use nodegate_testbed::until;
use serde_json::json;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const NODES: usize = 4;
const CHECK_PORT: u16 = 25_001;
const NODE_PORT: u16 = 30_080;
const SHARED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)), 80);

/// Without retries, each request that goes astray is lost.
const HEAD: &str = "defaults\n  timeout connect 1s\n  timeout client 20s\n  timeout server 20s\n  retries 0\n\
    frontend alive\n  mode http\n  bind 127.0.0.1:8404\n  monitor-uri /\n";

const KEEPALIVED: &str = "global_defs {\n  enable_script_security\n  script_user nobody\n}\n\
    vrrp_script haproxy {\n  script \"/usr/bin/curl -fsS -o /dev/null -m 1 http://127.0.0.1:8404/\"\n  \
      interval 1\n  timeout 2\n  fall 1\n  rise 2\n}\n\
    vrrp_instance front {\n  state BACKUP\n  nopreempt\n  interface eth0\n  virtual_router_id 51\n  priority PRIORITY\n  \
      advert_int 1\n  virtual_ipaddress {\n    10.0.0.10/24\n  }\n  track_script {\n    haproxy\n  }\n}\n";

fn address(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 101 + u8::try_from(index).unwrap()).into()
}

fn name(index: usize) -> String {
    format!("node-{index}")
}

/// A node that can be shut down, with health checks and an application.
struct Machine {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The number of requests that it is answering now.
    busy: Arc<AtomicUsize>,
}

impl Machine {
    fn boot(lan: &Namespace, index: usize, served: &Counts) -> Self {
        let (stop, busy) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let listen = |port: u16, counts: Counts, busy: Arc<AtomicUsize>| {
            let listener = lan.act(|| TcpListener::bind((address(index), port)).unwrap());
            listener.set_nonblocking(true).unwrap();
            let stop = stop.clone();
            std::thread::spawn(move || serve(&listener, &stop, &counts, &busy))
        };
        let threads = vec![
            listen(CHECK_PORT, Counts::default(), Arc::default()),
            listen(NODE_PORT, served.clone(), busy.clone()),
        ];
        Self { stop, threads, busy }
    }

    /// Shuts the node down; from now on it refuses connections.
    fn shut_down(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, counts: &Counts, busy: &Arc<AtomicUsize>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        *counts.lock().unwrap().entry(stream.local_addr().unwrap().ip()).or_insert(0) += 1;
        busy.fetch_add(1, Ordering::Relaxed);
        let busy = busy.clone();
        std::thread::spawn(move || {
            answer(stream);
            busy.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut stream: TcpStream) {
    let mut buffer = [0; 2048];
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    if !matches!(stream.read(&mut buffer), Ok(1..)) {
        return;
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut buffer);
}

/// A host with HAProxy, the program and keepalived.
struct Balancer {
    namespace: Namespace,
    socket: Socket,
    children: Vec<Child>,
    log: PathBuf,
}

impl Balancer {
    fn start(index: usize, lan: &Namespace, dir: &Path) -> Self {
        let namespace = Namespace::new(["first", "second"][index]);
        lan.run(&format!("ip link add b{index} type veth peer name eth0 netns {}", namespace.name()));
        lan.run(&format!("ip link set b{index} master lan up"));
        namespace.run(&format!("ip addr add 10.0.0.{}/24 dev eth0", index + 2));
        namespace.run("ip link set eth0 up");
        namespace.shell("echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind");
        let own = dir.join(format!("balancer-{index}"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("head"), HEAD).unwrap();
        let priority = (100 - index).to_string();
        std::fs::write(own.join("keepalived.conf"), KEEPALIVED.replace("PRIORITY", &priority)).unwrap();
        let master = own.join("master.sock");
        let mut balancer = Self {
            namespace,
            socket: Socket::Master(master.clone()),
            children: Vec::new(),
            log: own.join("log"),
        };
        let status = balancer.program(dir, &own).arg("--once").status().unwrap();
        assert!(status.success(), "{}", balancer.said());
        let mut haproxy = balancer.command("haproxy");
        haproxy.arg("-W").arg("-S").arg(&master).arg("-f").arg(own.join("haproxy.cfg"));
        balancer.children.push(haproxy.spawn().unwrap());
        let program = balancer.program(dir, &own).arg("--master-socket").arg(&master).spawn().unwrap();
        balancer.children.push(program);
        let mut keepalived = balancer.command("keepalived");
        keepalived.args(["-n", "-l", "-P", "-f"]).arg(own.join("keepalived.conf"));
        keepalived.arg("-p").arg(own.join("pid")).arg("-r").arg(own.join("vrrp.pid"));
        balancer.children.push(keepalived.spawn().unwrap());
        balancer
    }

    /// Returns a command on this host, whose output goes to the log.
    fn command(&self, program: &str) -> Command {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
        let mut command = self.namespace.command(program);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    fn program(&self, dir: &Path, own: &Path) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_nodegate-haproxy"));
        command.env("KUBECONFIG", dir.join("kubeconfig"));
        command.arg("--config").arg(own.join("haproxy.cfg")).arg("--template").arg(own.join("head"));
        command.args(["--before", "none", "--state-dir"]).arg(own.join("state"));
        command.args(["--bind", "10.0.0.10", "--agent-check-port", "0", "--check-interval", "500ms"]);
        command
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn holds_the_address(&self) -> bool {
        self.namespace.run("ip -4 addr show dev eth0").contains("10.0.0.10/24")
    }

    fn state(&self, runtime: &Runtime, node: &str) -> Option<PlannedState> {
        let said = runtime.block_on(self.socket.ask("show servers state nodegate_nodes")).ok()?;
        parse(&said).get(&("nodegate_nodes".to_owned(), node.to_owned())).map(|line| line.state)
    }

    fn haproxy(&self) -> u32 {
        self.children[0].id()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // On this signal, each program ends its children, too.
            signal(child.id(), "TERM");
            let _ = child.wait();
        }
    }
}

struct Site {
    pair: [Balancer; 2],
    machines: Vec<Option<Machine>>,
    served: Counts,
    sim: Sim,
    lan: Namespace,
    runtime: Runtime,
    _dir: TempDir,
}

impl Site {
    fn start() -> Self {
        let lan = Namespace::new("lan");
        lan.run("ip link add lan type bridge");
        lan.run("ip link set lan up");
        lan.run("ip addr add 10.0.0.1/24 dev lan");
        let dir = tempfile::tempdir().unwrap();
        let (runtime, sim) = lan.act(|| {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            let builder = Sim::builder().tls(true).listen(([10, 0, 0, 1], 0).into());
            let sim = runtime.block_on(builder.start()).unwrap();
            (runtime, sim)
        });
        sim.write_kubeconfig(&dir.path().join("kubeconfig")).unwrap();
        let (served, mut machines) = (Counts::default(), Vec::new());
        for index in 0..NODES {
            lan.run(&format!("ip addr add {}/24 dev lan", address(index)));
            let mut node = make_node(&name(index), index, &NodeShape::default());
            node["status"]["addresses"] = json!([{"type": "InternalIP", "address": address(index)}]);
            sim.apply(node).unwrap();
            machines.push(Some(Machine::boot(&lan, index, &served)));
        }
        sim.apply(service("web", SHARED.port(), NODE_PORT, &json!({}))).unwrap();
        let pair = [0, 1].map(|index| Balancer::start(index, &lan, dir.path()));
        Self { pair, machines, served, sim, lan, runtime, _dir: dir }
    }

    fn said(&self) -> String {
        format!("{}\n---\n{}", self.pair[0].said(), self.pair[1].said())
    }

    /// Returns the balancer that holds the address, once exactly one does.
    fn holder(&self) -> usize {
        until("one with the address", || match [0, 1].map(|index| self.pair[index].holds_the_address()) {
            [true, false] => Some(0),
            [false, true] => Some(1),
            _ => None,
        })
    }

    fn until_both_have(&self, index: usize, state: PlannedState) {
        let have = |balancer: &Balancer| balancer.state(&self.runtime, &name(index)) == Some(state);
        until("both to have the node's state", || self.pair.iter().all(have).then_some(()));
    }

    fn traffic(&self) -> Traffic {
        self.lan.act(|| Traffic::to(SHARED))
    }

    fn until_it_serves(&self, index: usize) {
        let before = count_of(&self.served, address(index));
        until("the node to serve", || (count_of(&self.served, address(index)) > before).then_some(()));
    }

    /// Upgrades a node: cordons it, waits, restarts it and uncordons it.
    fn upgrade(&mut self, index: usize) {
        assert!(self.sim.cordon(&name(index)));
        self.until_both_have(index, PlannedState::Drain);
        let machine = self.machines[index].take().unwrap();
        until("its last request to end", || (machine.busy.load(Ordering::Relaxed) == 0).then_some(()));
        machine.shut_down();
        assert!(self.sim.set_ready(&name(index), "False", "KubeletNotReady"));
        self.until_both_have(index, PlannedState::Maint);
        self.machines[index] = Some(Machine::boot(&self.lan, index, &self.served));
        assert!(self.sim.set_ready(&name(index), "True", "KubeletReady"));
        self.until_both_have(index, PlannedState::Drain);
        assert!(self.sim.uncordon(&name(index)));
        self.until_both_have(index, PlannedState::Ready);
        self.until_it_serves(index);
    }
}

#[test]
fn a_rolling_upgrade_behind_a_pair_loses_nothing() {
    upgraded();
}

pub(crate) fn upgraded() -> Vec<Row> {
    let mut site = Site::start();
    let first = site.holder();
    let answers = || site.lan.act(|| http::get(SHARED, "/").is_ok_and(|reply| reply.status == 200));
    until("the address to answer", || answers().then_some(()));
    let (traffic, began) = (site.traffic(), Instant::now());
    for index in 0..NODES {
        site.upgrade(index);
    }
    let took = began.elapsed();
    let (good, lost) = traffic.end();
    assert_eq!(lost, Vec::<String>::new(), "{}", site.said());
    assert_eq!(site.holder(), first, "{}", site.said());
    assert!(!site.said().contains("ip_nonlocal_bind"), "{}", site.said());
    let result = format!("all {NODES} nodes in {took:.1?}: {good} requests, 0 lost");
    let upgrade = Row { what: "two HAProxys, keepalived: a rolling upgrade", result };
    vec![upgrade, taken_over(&site, first)]
}

/// Kills the HAProxy of the balancer with the address. The other balancer knows about a drain anyway, and
/// loses nothing once it has the address.
fn taken_over(site: &Site, first: usize) -> Row {
    assert!(site.sim.cordon(&name(0)));
    site.until_both_have(0, PlannedState::Drain);
    let traffic = site.traffic();
    until("requests", || (traffic.answered() > 20).then_some(()));
    let before = count_of(&site.served, address(0));
    let killed = Instant::now();
    signal(site.pair[first].haproxy(), "KILL");
    until("the other one to have the address", || site.pair[1 - first].holds_the_address().then_some(()));
    let at_hand = traffic.answered();
    until("requests to be answered again", || (traffic.answered() > at_hand).then_some(()));
    let answered = Instant::now();
    until("more requests", || (traffic.answered() > at_hand + 1000).then_some(()));
    let back = traffic.back_after(killed);
    assert_eq!(traffic.lost_since(answered), 0, "lost after the other one answered\n{}", site.said());
    let (_, lost) = traffic.end();
    assert_eq!(count_of(&site.served, address(0)), before, "the drained node was asked\n{}", site.said());
    // Only the holder of the address can answer requests to it, and keepalived checks HAProxy once a second.
    let result = format!(
        "{} lost in {back:.1?} until keepalived moves the address, 0 lost after that; 0 to the drained node",
        lost.len()
    );
    Row { what: "  the one with the address is killed", result }
}
