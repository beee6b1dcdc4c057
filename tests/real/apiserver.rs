//! Requests to two real API servers on one etcd: how many fail by the documented configuration, and by others.

use nodegate_testbed::Agent;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::real_cluster::{
    Api, REAL_NODE, RealCluster, ServerRoute, repository_file, seen, until_so,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The ways to the API servers: HAProxy's frontends.
const WAYS: [&str; 3] = ["nodegate", "TCP check", "httpchk /readyz"];
type Lost = [usize; 3];
/// The parts of the cluster with the API servers, and their addresses.
const SERVERS: [(&str, &str); 2] = [("api-a", "10.10.0.1"), ("api-b", "10.10.0.2")];
/// Each request is a process, a handshake and a read of etcd.
const REQUESTS_A_SECOND: u32 = 6;
const CLIENTS: u32 = 3;
const AFTERWARDS: Duration = Duration::from_secs(15);
/// Longer than agent and balancer need to take a server out that says that it shuts down.
const DELAY: &str = "--shutdown-delay-duration=10s";
/// What HAProxy's own ways may lose less than ours by chance: requests in flight when a server dies.
const BY_CHANCE: usize = 2;
const CHECK: &str = "apiserver";

/// A new connection, TLS verified through the balancer, and a read that etcd has to answer.
fn request(api: &Api, to: SocketAddr) -> Saw {
    let mut curl = api.curl();
    curl.args(["--silent", "--show-error", "--max-time", "5", "--output", "/dev/null", "--write-out"]);
    curl.args(["%{http_code}", "--connect-to", &format!("kubernetes.default.svc:6443:{to}")]);
    curl.arg("https://kubernetes.default.svc:6443/api/v1/namespaces/default");
    let output = curl.output().expect("curl is needed");
    match String::from_utf8_lossy(&output.stdout).trim() {
        "200" => Saw::Answer(200, String::new()),
        other => Saw::Failed(format!("{other} {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The two API servers with an agent each, and the balancer with its clients in front of them.
struct Scenario<'a> {
    cluster: &'a RealCluster,
    agents: [Agent; 2],
    balancer: Haproxy,
    /// The address of each way, and its clients.
    ways: [(SocketAddr, Prober); 3],
}

/// The promise: never worse than a check that asks no agent.
#[track_caller]
fn assert_no_worse_than_a_plain_check([ours, plain, _]: Lost) {
    assert!(ours <= plain + BY_CHANCE, "{ours} requests were lost, and {plain} by HAProxy's TCP check");
}

impl<'a> Scenario<'a> {
    fn start(cluster: &'a RealCluster) -> Self {
        cluster.grant_agents();
        let addresses = WAYS.map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free())));
        let balancer = balance(cluster, &addresses);
        let agents = [0, 1].map(|index| start_agent(cluster, index));
        for agent in &agents {
            agent.wait_passes(CHECK);
        }
        let ways = addresses.map(|address| {
            let api = cluster.api.clone();
            (address, Prober::start(address, move |to| request(&api, to), REQUESTS_A_SECOND, CLIENTS))
        });
        Self { cluster, agents, balancer, ways }
    }

    /// Waits until requests arrive by every way, with each server behind it.
    fn wait_arrivals(&self) {
        for (way, (address, _)) in WAYS.into_iter().zip(&self.ways) {
            let arrives = || matches!(request(&self.cluster.api, *address), Saw::Answer(..));
            until_so(arrives, || format!("nothing arrives by {way}"));
        }
        for backend in ["api_servers", "any_api_server", "plain", "readyz"] {
            let stat = || self.balancer.command(&format!("show stat {backend} -1 -1")).unwrap_or_default();
            let all = || self.balancer.up(backend) == SERVERS.len();
            until_so(all, || format!("{backend}: not all servers are up: {}", stat()));
        }
    }

    /// Plays an event, lets requests go on for a while, and reports what was lost by each way.
    fn play(&self, rule: &str, event: impl FnOnce(&Self)) -> Lost {
        self.wait_arrivals();
        let began = Instant::now();
        event(self);
        sleep(AFTERWARDS);
        let (mut lost, mut summary) = ([0; 3], Vec::new());
        for (index, (_, clients)) in self.ways.iter().enumerate() {
            let (way, requests) = (WAYS[index], clients.answered_since(began));
            for request in requests.iter().filter(|request| matches!(request.saw, Saw::Failed(_))) {
                lost[index] += 1;
                eprintln!("{rule}, {way}, after {:.1?}: {}", request.answered - began, request.saw);
            }
            summary.push(format!("{way}: {} of {} lost", lost[index], requests.len()));
        }
        seen(rule, summary.join("; "));
        lost
    }

    fn restart_all(&self) {
        for (part, _) in SERVERS {
            self.cluster.node_script(&["end", part]);
            self.cluster.node_script(&["start", part]);
            self.wait_arrivals();
        }
    }
}

/// Starts the agent of a server, where the documented configuration asks it.
fn start_agent(cluster: &RealCluster, index: usize) -> Agent {
    let (_, address) = SERVERS[index];
    let route = [ServerRoute::A, ServerRoute::B][index];
    let listen = format!("--listen-address={address}");
    let check = format!("--check-settings=apiserver:url=https://{address}:6443");
    let args = [&*listen, "--listen-port=25001", &*check, "--background-checks=apiserver"];
    cluster.agent(REAL_NODE, route, "nodegate", &args)
}

/// The flags of the API servers that start from now on; none when dropped.
struct ServerFlags<'a>(&'a RealCluster);

impl<'a> ServerFlags<'a> {
    fn set(cluster: &'a RealCluster, flags: &str) -> Self {
        fs::write(cluster.directory().join("api-flags"), flags).unwrap();
        let set = Self(cluster);
        set.apply();
        set
    }

    fn apply(&self) {
        for (part, _) in SERVERS {
            self.0.node_script(&["stop", part]);
            self.0.node_script(&["start", part]);
        }
    }
}

impl Drop for ServerFlags<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.directory().join("api-flags"));
        self.apply();
    }
}

/// HAProxy with the documented configuration for two servers, and with its own checks beside it.
fn balance(cluster: &RealCluster, addresses: &[SocketAddr]) -> Haproxy {
    let files = cluster.files.path();
    let documented = repository_file("docs/load-balancers/haproxy/apiserver.cfg");
    let for_two: Vec<&str> = documented.lines().filter(|line| !line.contains("10.0.0.13")).collect();
    let checks = include_str!("objects/api-servers.cfg");
    let ca = cluster.directory().join("pki/ca.crt");
    let text = (for_two.join("\n") + checks)
        .replace("$plain", &addresses[1].to_string())
        .replace("$readyz", &addresses[2].to_string())
        .replace("$ca", ca.to_str().unwrap())
        .replace("10.0.0.10:6443", &addresses[0].to_string())
        .replace("10.0.0.11", SERVERS[0].1)
        .replace("10.0.0.12", SERVERS[1].1)
        .replace("/run/haproxy/", &format!("{}/", files.display()));
    let file = files.join("haproxy.cfg");
    fs::write(&file, text).unwrap();
    Haproxy::start(&file)
}

#[test]
#[ignore = "make real-cluster-test"]
fn rolling_restart_with_a_delay() {
    let cluster = RealCluster::take();
    let _flags = ServerFlags::set(&cluster, DELAY);
    let lost = Scenario::start(&cluster).play("rolling restart, shutdown delay 10 s", Scenario::restart_all);
    assert_eq!(lost[0], 0, "{lost:?}");
}

#[test]
#[ignore = "make real-cluster-test"]
fn killed() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    let lost = scenario.play("one of two killed with SIGKILL, and started again", |scenario| {
        scenario.cluster.node_script(&["stop", "api-b"]);
        sleep(AFTERWARDS);
        scenario.cluster.node_script(&["start", "api-b"]);
    });
    assert_no_worse_than_a_plain_check(lost);
}

/// The plain check never notices: half of its requests wait for an etcd that does not answer.
#[test]
#[ignore = "make real-cluster-test"]
fn cut_off_from_etcd() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    let lost = scenario.play("one of two cut off from etcd for 30 s", |scenario| {
        let cut = scenario.cluster.cut("etcd-b");
        scenario.agents[1].wait_fails_with(CHECK, "etcd");
        sleep(Duration::from_secs(30).saturating_sub(cut.since.elapsed()));
        // It does not say yes between two no's.
        let check = scenario.agents[1].get("/health?check=apiserver");
        assert_eq!(check.status, 503, "{}", check.body);
        cut.mend();
    });
    assert_no_worse_than_a_plain_check(lost);
    assert!(lost[0] < lost[1], "the plain check has noticed it, too? {lost:?}");
}
