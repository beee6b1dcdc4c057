//! Strangers: a program in a cgroup with the limits of its manifest, a load balancer that probes it, the kubelet, and an
//! attacker. No probe may fail or get a late answer, and the program must not end.

// `make faults` plays the whole table against an optimised agent; as tests, some rows take some seconds.

mod attacks;
mod balancer;
mod group;

use attacks::{Attack, From, KINDS, Kind};
use balancer::{Balancer, Seen};
use group::Group;
use nodegate_testbed::network::namespaces::{Namespace, SERVER_AND_CLIENTS};
use nodegate_testbed::process::{Program, descriptors, memory};
use nodegate_testbed::{NODE, programs, until};
use std::net::SocketAddr;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, thread};

/// `limits` of manifests/install.yaml: 64Mi, 100m.
const MEMORY: u64 = 64 << 20;
const MILLICPU: u64 = 100;
const MILLICPU_OF_DEBUG: u64 = 500;

/// The bounds under attack: half of the memory, an answer within a second, the limit of connections and some more.
const MOST_MEMORY_KIB: u64 = 32 * 1024;
const SLOWEST: Duration = Duration::from_secs(1);
const MOST_DESCRIPTORS: usize = 512 + 128;

/// The time after which a balancer is known that probes five times a second.
const KNOWN: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(5);

/// The strangers' networks are beside the balancers'.
const SERVER: [&str; 2] = ["10.8.0.1", "fd08::1"];
const BALANCER: [&str; 2] = ["10.9.255.1", "fd09::1"];

struct Port {
    name: &'static str,
    number: u16,
    /// The program beside the agent that has the port, and its arguments. `DIR` is a directory of its own.
    program: &'static str,
    arguments: &'static [&'static str],
    /// The path of the balancer's probes, empty for an agent-check. Only the node itself is known to some programs.
    probes: Option<&'static str>,
}

const AGENT: Port =
    Port { name: "Probes", number: 25_001, program: "nodegate", arguments: &[], probes: Some("/health") };
const PORTS: [Port; 5] = [
    AGENT,
    Port { name: "AgentCheck", number: 25_002, probes: Some(""), ..AGENT },
    Port {
        name: "Metrics",
        number: 25_004,
        arguments: &["--metrics-addr=[::]:25004"],
        probes: None,
        ..AGENT
    },
    Port {
        name: "Haproxy",
        number: 25_003,
        program: "nodegate-haproxy",
        arguments: &["--haproxy=none", "--config=DIR/haproxy.cfg", "--listen=[::]:25003"],
        probes: None,
    },
    Port { name: "Gate", number: 25_006, program: "nodegate-eviction-gate", arguments: &[], probes: None },
];

/// The place of the play: a network, a program in it, and a balancer that has probed it for a while.
struct Scenario {
    balancer: Balancer,
    program: Program,
    group: Group,
    port: u16,
    is_optimised: bool,
    _cluster: nodegate_testbed::Scenario,
    network: Namespace,
}

struct Row {
    name: String,
    seen: Seen,
    /// The same of another such program at the same time, which was not attacked.
    beside: Option<Seen>,
    rate: f64,
    /// Before the attack, and the most during it.
    memory_kib: [u64; 2],
    group_kib: u64,
    descriptors: usize,
    has_ended: bool,
}

impl Scenario {
    /// One that is not optimised gets more CPU, and knows the balancer by `--balancers`.
    fn start(port: &Port, is_optimised: bool, is_v6: bool) -> Self {
        let network = Namespace::new("strangers");
        network.shell(SERVER_AND_CLIENTS);
        let _stay = network.stay();
        let cluster = nodegate_testbed::Scenario::start();
        let group = Group::new(MEMORY, if is_optimised { MILLICPU } else { MILLICPU_OF_DEBUG });
        let mut command = group.command(&programs::agent().with_file_name(port.program));
        let directory = cluster.dir.path().to_str().unwrap();
        command.args(port.arguments.iter().map(|argument| argument.replace("DIR", directory)));
        command.env("NODE_NAME", NODE).env("KUBECONFIG", cluster.kubeconfig());
        let [server, balancer] = [SERVER, BALANCER].map(|both| both[usize::from(is_v6)]);
        if !is_optimised {
            command.env("NODEGATE_BALANCERS", balancer);
        }
        let program = Program::start(&mut command);
        let server = SocketAddr::new(server.parse().unwrap(), port.number);
        let kubelet = if port.probes == Some("") { (server.ip(), AGENT.number).into() } else { server };
        let balancer = match port.probes {
            Some(path) => Balancer::start(balancer.parse().unwrap(), server, path, kubelet),
            None => Balancer::start(server.ip(), server, "/livez", kubelet),
        };
        until("the program to answer", || {
            balancer.wait(1);
            balancer.take().failed.is_empty().then_some(())
        });
        Self { balancer, program, group, port: port.number, is_optimised, _cluster: cluster, network }
    }

    fn has_ended(&self) -> bool {
        !Path::new(&format!("/proc/{}/exe", self.program.pid())).exists()
    }

    fn play(&self, kind: &'static Kind, from: From, duration: Duration, beside: Option<&Self>) -> Row {
        let _stay = self.network.stay();
        self.balancer.take();
        beside.map(|beside| beside.balancer.take());
        let server = SERVER[usize::from(from.is_v6())].parse().unwrap();
        let (pid, is_optimised) = (self.program.pid(), self.is_optimised);
        // A program that is not optimised has a large file behind its memory.
        let used = || {
            let used = memory(pid);
            if is_optimised { used.resident } else { used.anonymous }
        };
        let before_kib = used();
        let attack = Attack::start(kind, from, SocketAddr::new(server, self.port));
        let began = Instant::now();
        let (mut most_kib, mut most) = (0, 0);
        while began.elapsed() < duration && !self.has_ended() {
            // A program that has ended meanwhile has neither.
            let Ok((used, open)) = catch_unwind(|| (used(), descriptors(pid))) else { continue };
            (most_kib, most) = (most_kib.max(used), most.max(open));
            thread::sleep(Duration::from_millis(50));
        }
        Row {
            name: format!("{}, {from}", kind.name),
            rate: attack.rate(),
            seen: self.balancer.take(),
            beside: beside.map(|beside| beside.balancer.take()),
            memory_kib: [before_kib, most_kib],
            group_kib: self.group.peak() / 1024,
            descriptors: most,
            has_ended: self.has_ended(),
        }
    }
}

impl Row {
    fn mistake(&self) -> Option<String> {
        if self.has_ended {
            return Some("the program was killed".to_owned());
        }
        if let Some(failed) = self.seen.failed.first() {
            return Some(format!("{} probes failed, the first with {failed}", self.seen.failed.len()));
        }
        if self.descriptors > MOST_DESCRIPTORS {
            return Some(format!("{} descriptors", self.descriptors));
        }
        let [_, most] = self.memory_kib;
        (most > MOST_MEMORY_KIB).then(|| format!("{most} KiB"))
    }

    /// Prints the row, and returns true if all held and no probe was slow.
    fn print(&self) -> bool {
        println!("{}", self.line());
        if let Some(mistake) = self.mistake() {
            println!("  did not hold: {mistake}");
        }
        // The machine delays both programs.
        let bound = SLOWEST + self.beside.as_ref().map(Seen::slowest).unwrap_or_default();
        self.mistake().is_none() && self.seen.slowest() < bound
    }

    fn line(&self) -> String {
        let Self { name, seen, beside, rate, memory_kib, group_kib, descriptors, .. } = self;
        let [new, kept, kubelet] = seen.slowest.map(|slowest| slowest.as_secs_f64());
        let beside = beside.as_ref().map(Seen::slowest).unwrap_or_default().as_secs_f64();
        let [before, memory, group] =
            [memory_kib[0], memory_kib[1], *group_kib].map(|kib| kib.div_ceil(1024));
        let (probes, failed) = (seen.probes, seen.failed.len());
        format!(
            "| {name} | {rate:.0} | {probes} | {failed} | {new:.2} | {kept:.2} | {kubelet:.2} | {beside:.2} | {before} | {memory} | {group} | {descriptors} |"
        )
    }
}

fn assert_harmless(kinds: &[&str], from: From) {
    let scenario = Scenario::start(&AGENT, false, from.is_v6());
    for kind in KINDS.iter().filter(|kind| kinds.contains(&kind.name)) {
        let row = scenario.play(kind, from, SHORT, None);
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

/// `STRANGERS_SECONDS` is the length of an attack; `STRANGERS_PORT` and `STRANGERS` select ports and rows by a part of
/// their names.
#[test]
#[ignore = "make faults"]
fn table() {
    let set = |name| env::var(name).ok().filter(|text| !text.is_empty());
    let duration =
        Duration::from_secs(set("STRANGERS_SECONDS").map_or(8, |seconds| seconds.parse().unwrap()));
    let (wanted, port) = (set("STRANGERS").unwrap_or_default(), set("STRANGERS_PORT").unwrap_or_default());
    let mut all_held = true;
    for port in PORTS.iter().filter(|one| one.name.contains(&port)) {
        println!(
            "\n| {}: attack, addresses | opened/s | probes | failed | slowest, s: new | kept | kubelet | of another agent | resident before, MiB | during | cgroup so far | descriptors |",
            port.name
        );
        println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
        for families in
            [&[From::V4(1), From::V4(130), From::V4(400)][..], &[From::Networks(130), From::Beside]]
        {
            let rows = KINDS.iter().flat_map(|kind| families.iter().map(move |from| (kind, *from)));
            let rows = rows.filter(|(kind, from)| format!("{}, {from},", kind.name).contains(&wanted));
            let start = || {
                let scenario = Scenario::start(port, true, families[0].is_v6());
                thread::sleep(KNOWN);
                scenario
            };
            let (mut scenario, mut beside) = (None, None);
            for (kind, from) in rows {
                // One program for all rows: an attack finds no less room than the one before.
                scenario.take_if(|scenario: &mut Scenario| scenario.has_ended());
                let beside = beside.get_or_insert_with(start);
                all_held &=
                    scenario.get_or_insert_with(start).play(kind, from, duration, Some(beside)).print();
                thread::sleep(Duration::from_secs(1));
            }
        }
    }
    assert!(all_held, "not all held");
}
