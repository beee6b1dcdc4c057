//! Strangers: a program in a cgroup with the limits of its manifest, a load balancer that probes it, the kubelet, and an
//! attacker. No probe may fail or get a late answer, and the program must not end.

// `make faults` plays the whole table against an optimised agent; as tests, some rows take some seconds.

mod attacks;
mod balancer;
mod group;

use attacks::{Attack, From, KINDS, Kind};
use balancer::{Balancer, Seen};
use group::Group;
use nodegate_testbed::agent::Agent;
use nodegate_testbed::network::namespaces::{Namespace, Stay};
use nodegate_testbed::process::{descriptors, memory};
use nodegate_testbed::{Cluster, programs};
use std::env;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// `limits` of manifests/install.yaml: 64Mi, 100m.
const MEMORY: u64 = 64 << 20;
const MILLICPU: u64 = 100;
/// The limit for an agent that is not optimised.
const MILLICPU_OF_DEBUG: u64 = 500;

/// The bounds under attack: half of the memory limit, an answer within a second, and the limit of connections with what
/// the agent needs besides.
const MOST_MEMORY_KIB: u64 = 32 * 1024;
const SLOWEST: Duration = Duration::from_secs(1);
const MOST_DESCRIPTORS: usize = 512 + 128;

/// The time after which a balancer is known that probes five times a second.
const KNOWN: Duration = Duration::from_secs(15);
/// The length of an attack in a test.
const SHORT: Duration = Duration::from_secs(5);

/// The strangers' networks are beside the balancers'.
const NETWORK: &str = "\
    ip addr add 10.8.0.1/32 dev lo; ip addr add fd08::1/128 dev lo nodad; ip route add local 10.9.0.0/16 dev lo; \
    ip -6 route add local fd09::/32 dev lo; echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind";

/// The place of the play: a network, an agent in it, and a balancer that has probed it for a while.
struct Scene {
    balancer: Balancer,
    agent: Agent,
    group: Group,
    counts_anonymous: bool,
    _cluster: Cluster,
    _stay: Stay,
    _network: Namespace,
}

/// The result of an attack.
struct Row {
    name: String,
    seen: Seen,
    rate: f64,
    memory_kib: u64,
    group_kib: u64,
    descriptors: usize,
}

impl Scene {
    /// Starts an agent whose balancer probes over IPv6 or IPv4.
    fn start(program: &Path, millicpu: u64, is_v6: bool, known: Option<Duration>) -> Self {
        let network = Namespace::new("strangers");
        network.shell(NETWORK);
        let stay = network.stay();
        let cluster = Cluster::start();
        let group = Group::new(MEMORY, millicpu);
        let mut command = group.command(program);
        command.env("NODEGATE_LISTEN_ADDRESS", "::");
        let balancer: IpAddr = if is_v6 { "fd09::1".parse().unwrap() } else { "10.9.255.1".parse().unwrap() };
        if known.is_none() {
            command.env("NODEGATE_BALANCERS", balancer.to_string());
        }
        let agent = cluster.launch(command);
        agent.wait_ready();
        let balancer = Balancer::start(balancer, Self::port(&agent, is_v6), "/health");
        balancer.wait(3);
        thread::sleep(known.unwrap_or_default());
        let counts_anonymous = known.is_none();
        Self { balancer, agent, group, counts_anonymous, _cluster: cluster, _stay: stay, _network: network }
    }

    fn port(agent: &Agent, is_v6: bool) -> SocketAddr {
        let address = if is_v6 { "fd08::1" } else { "10.8.0.1" };
        SocketAddr::new(address.parse().unwrap(), agent.address().port())
    }

    /// Attacks the agent's port.
    fn play(&mut self, kind: &'static Kind, from: From, duration: Duration) -> Row {
        self.balancer.take();
        let attack = Attack::start(kind, from, Self::port(&self.agent, from.is_v6()));
        let (began, pid) = (Instant::now(), self.agent.pid());
        let (mut memory_kib, mut most) = (0, 0);
        while began.elapsed() < duration && self.agent.is_running() {
            // A program that is not optimised has a large file behind its memory.
            let used = memory(pid);
            memory_kib = memory_kib.max(if self.counts_anonymous { used.anonymous } else { used.resident });
            most = most.max(descriptors(pid));
            thread::sleep(Duration::from_millis(50));
        }
        let (rate, seen) = (attack.rate(), self.balancer.take());
        let name = format!("{}, {from}", kind.name);
        let group_kib = self.group.peak() / 1024;
        Row { name, seen, rate, memory_kib, group_kib, descriptors: most }
    }
}

impl Row {
    /// Returns the failure, if any.
    fn mistake(&self) -> Option<String> {
        if let Some(failed) = self.seen.failed.first() {
            return Some(format!("{} probes failed, the first with {failed}", self.seen.failed.len()));
        }
        if self.descriptors > MOST_DESCRIPTORS {
            return Some(format!("{} descriptors", self.descriptors));
        }
        (self.memory_kib > MOST_MEMORY_KIB).then(|| format!("{} KiB", self.memory_kib))
    }

    /// Prints the row, and returns true if all held and no probe was slow.
    fn print(&self) -> bool {
        println!("{}", self.line());
        if let Some(mistake) = self.mistake() {
            println!("  did not hold: {mistake}");
        }
        self.mistake().is_none() && self.seen.slowest.iter().all(|slowest| *slowest < SLOWEST)
    }

    fn line(&self) -> String {
        let Self { name, seen, rate, memory_kib, group_kib, descriptors } = self;
        let [new, kept, kubelet] = seen.slowest.map(|slowest| slowest.as_secs_f64());
        let [memory, group] = [memory_kib, group_kib].map(|kib| kib.div_ceil(1024));
        let (probes, failed) = (seen.probes, seen.failed.len());
        format!(
            "| {name} | {rate:.0} | {probes} | {failed} | {new:.2} | {kept:.2} | {kubelet:.2} | {memory} | {group} | {descriptors} |"
        )
    }
}

fn assert_harmless(kinds: &[&str], from: From) {
    let mut scene = Scene::start(&programs::agent(), MILLICPU_OF_DEBUG, from.is_v6(), None);
    for kind in KINDS.iter().filter(|kind| kinds.contains(&kind.name)) {
        let row = scene.play(kind, from, SHORT);
        eprintln!("{}", row.line());
        assert_eq!(row.mistake(), None, "{}", row.line());
        assert!(row.rate > 0.0 && row.seen.probes >= 10, "{}", row.line());
    }
}

#[test]
fn one_stranger_does_not_disturb_the_balancer() {
    assert_harmless(&["/wait and 30 kB more", "95 headers", "endless POST"], From::V4(1));
}

#[test]
fn many_strangers_do_not_disturb_the_balancer() {
    assert_harmless(&["pipelines, unread", "a byte of a head now and then"], From::V4(130));
}

#[test]
fn a_stranger_in_the_network_of_the_balancer_does_not_disturb_it() {
    assert_harmless(&["pipelines, unread", "kept"], From::Beside);
}

/// Prints the table. `STRANGERS_AGENT` names an optimised program, `STRANGERS_SECONDS` sets the length of each attack, and
/// `STRANGERS` selects rows by a part of the name.
#[test]
#[ignore = "make faults"]
fn table() {
    let program = env::var_os("STRANGERS_AGENT").map_or_else(programs::agent, PathBuf::from);
    let seconds = env::var("STRANGERS_SECONDS").ok().filter(|text| !text.is_empty());
    let duration = Duration::from_secs(seconds.map_or(8, |seconds| seconds.parse().unwrap()));
    let wanted = env::var("STRANGERS").unwrap_or_default();
    println!(
        "| attack, addresses | opened/s | probes | failed | slowest, s: new | kept | kubelet | resident, MiB | cgroup so far | descriptors |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut all_held = true;
    for families in [&[From::V4(1), From::V4(130), From::V4(400)][..], &[From::Networks(130), From::Beside]] {
        let mut scene: Option<Scene> = None;
        let rows = KINDS.iter().flat_map(|kind| families.iter().map(move |from| (kind, *from)));
        for (kind, from) in rows.filter(|(kind, from)| format!("{}, {from}", kind.name).contains(&wanted)) {
            // One agent for all rows: an attack finds no less room than the one before.
            scene.take_if(|scene| !scene.agent.is_running());
            let scene =
                scene.get_or_insert_with(|| Scene::start(&program, MILLICPU, from.is_v6(), Some(KNOWN)));
            all_held &= scene.play(kind, from, duration).print();
            if !scene.agent.is_running() {
                println!("  the agent was killed");
            }
            thread::sleep(Duration::from_secs(1));
        }
    }
    assert!(all_held, "not all held");
}
