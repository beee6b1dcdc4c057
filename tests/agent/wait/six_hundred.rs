//! A node that goes down with 600 pods, while strangers hold `/wait`: by the real agent.

use super::listening::Listening;
use nodegate_server::ProberSettings;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::node_network::NodeNetwork;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::process::{allow_descriptors, memory};
use nodegate_testbed::{Agent, Cluster, NODE, programs, until};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// A balancer that the test holds back, so that nothing is told too early.
const SLOW_BALANCER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// The network behind the router stands for that of the node's pods.
const PODS: &str = "10.78.0.0/24";

/// Hooks from the node and from its pods.
const HOOKS: [usize; 2] = [400, 200];
const PODS_WITH_HOOKS: usize = 20;
const STRANGERS: u8 = 64;
const MOST_MEMORY_KIB: u64 = 32 * 1024;

/// Requests in flight, with what has arrived of each answer.
struct Held(Vec<(TcpStream, Vec<u8>)>);

impl Held {
    fn start(count: usize, from: impl Fn(usize) -> Ipv4Addr, to: SocketAddr) -> Self {
        let request = |number| {
            let mut stream = connect(from(number), to);
            stream.write_all(b"GET /wait?timeout=300 HTTP/1.0\r\n\r\n").unwrap();
            stream.set_nonblocking(true).unwrap();
            (stream, Vec::new())
        };
        Self((0..count).map(request).collect())
    }

    /// Counts the answers so far by their statuses.
    fn answered(&mut self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for (stream, received) in &mut self.0 {
            match stream.read_to_end(received) {
                Ok(_) => {
                    let text = String::from_utf8_lossy(received);
                    let reply = ProbeReply::parse(&text).unwrap_or_else(|| panic!("no answer: {text:?}"));
                    *counts.entry(reply.status).or_default() += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
        counts
    }
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.into(), 0).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    TcpStream::from(socket)
}

/// One probe of the slow balancer.
fn probe(to: SocketAddr) {
    let mut stream = connect(SLOW_BALANCER, to);
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

fn saw(to: SocketAddr) -> Saw {
    match http::get(to, "/health?drain=503") {
        Ok(reply) => Saw::Answer(reply.status, String::new()),
        Err(error) => Saw::Failed(error.to_string()),
    }
}

/// An agent that has taken over the probers of one that had listened for minutes.
fn agent(cluster: &Cluster, net: &NodeNetwork) -> (Agent, Prober) {
    let before = Listening::start(ProberSettings::default());
    let port = before.address.port();
    let to = SocketAddr::new(NODE_IP.into(), port);
    let balancer = net.on_router(|| Prober::start(to, saw, 5, 1));
    until("both balancers to go on asking", || {
        net.on_router(|| probe(to));
        std::thread::sleep(Duration::from_millis(200));
        (before.regular() == 2).then_some(())
    });
    let mut command = Command::new(programs::agent());
    command.env("LISTEN_PORT", port.to_string()).env("NODEGATE_LISTEN_ADDRESS", "0.0.0.0");
    let agent = cluster.launch(command);
    agent.wait_ready();
    assert_eq!(agent.logged("took over the probers of the predecessor probers=2"), 1, "{}", agent.log_text());
    before.end();
    (agent, balancer)
}

#[test]
fn six_hundred_hooks_and_sixty_four_strangers() {
    allow_descriptors(4096);
    let net = NodeNetwork::start();
    net.router(&format!("ip addr add {SLOW_BALANCER}/24 dev rt0"));
    let stranger = |number: usize| Ipv4Addr::new(10, 77, 0, 100 + u8::try_from(number).unwrap());
    for number in 0..usize::from(STRANGERS) {
        net.router(&format!("ip addr add {}/24 dev rt0", stranger(number)));
    }
    for number in 0..PODS_WITH_HOOKS {
        net.at_resolver(&format!("ip addr add 10.78.0.{}/24 dev eth0", 101 + number));
    }
    let cluster = Cluster::start();
    assert!(cluster.sim.edit_node(NODE, "test", |node| node["spec"]["podCIDRs"] = json!([PODS])));
    let (agent, balancer) = agent(&cluster, &net);
    let to = |address: Ipv4Addr| SocketAddr::new(IpAddr::V4(address), agent.address().port());

    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let cordoned = Instant::now();
    let mut strangers = net.on_router(|| Held::start(usize::from(STRANGERS), stranger, to(NODE_IP)));
    // Each pod has fewer hooks than its share.
    let pod = |number: usize| Ipv4Addr::new(10, 78, 0, 101 + u8::try_from(number % PODS_WITH_HOOKS).unwrap());
    let mut hooks = Held::start(HOOKS[0], |_| Ipv4Addr::LOCALHOST, to(Ipv4Addr::LOCALHOST));
    hooks.0.extend(net.on_resolver(|| Held::start(HOOKS[1], pod, to(NODE_IP))).0);
    until("the hooks beyond 512 to be refused", || (hooks.answered().get(&429) == Some(&88)).then_some(()));
    until("the strangers beyond 16, too", || (strangers.answered().get(&429) == Some(&48)).then_some(()));
    // The balancer is answered as ever, and the agent remembers who waits in little memory.
    balancer.wait(10);
    let used = memory(agent.pid()).anonymous;
    assert!(used < MOST_MEMORY_KIB, "{used} KiB");
    let early = (hooks.answered(), strangers.answered());
    assert_eq!(early, ([(429, 88)].into(), [(429, 48)].into()), "nobody has been told yet");

    until("all that wait to be answered", || {
        net.on_router(|| probe(to(NODE_IP)));
        std::thread::sleep(Duration::from_millis(50));
        (hooks.answered().get(&200) == Some(&512) && strangers.answered().get(&200) == Some(&16))
            .then_some(())
    });
    let drain = agent.get("/drain.json").json();
    assert_eq!((&drain["told"], &drain["probers"]), (&json!(true), &json!(2)), "{drain}");
    for probe in balancer.answered_since(cordoned) {
        assert_eq!(probe.saw, Saw::Answer(503, String::new()));
    }
    let count =
        |code| agent.metric(&format!("nodegate_http_requests_total{{path=\"/wait\",code=\"{code}\"}}"));
    assert_eq!([count(200), count(429)], [Some(528.0), Some(136.0)]);
    println!("{used} KiB with {} hooks", HOOKS.iter().sum::<usize>());
}

/// A pod whose node is drained, after an agent that shuts down has let it go on.
#[test]
fn an_agent_that_ends_holds_nobody() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let mut hook = Held::start(1, |_| Ipv4Addr::LOCALHOST, agent.address());
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(hook.answered(), BTreeMap::new());
    let (ended, log) = agent.terminate();
    assert!(ended.success(), "{log}");
    assert_eq!(hook.answered(), [(503, 1)].into());
}
