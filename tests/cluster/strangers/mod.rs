//! Strangers: the agent in a cgroup with the limits of the manifests, a load balancer that probes it, and an
//! attacker. No probe may fail or get a late answer, and the agent must not end.
//!
//! `make faults` runs each attack for a minute against an optimised agent; as tests they take some seconds.

mod attacks;
mod balancer;
mod forged;
mod group;
mod target;

use attacks::{Attack, Stranger};
use balancer::{Balancer, Seen};
use forged::SlowBalancer;
use group::Group;
use nodegate_testbed::process::{allow_descriptors, memory};
use nodegate_testbed::{Agent, Cluster, NODE, programs};
use std::env;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use target::{Admin, Port, optimised};

/// `limits` of manifests/install.yaml: 64Mi, 100m.
const MEMORY: u64 = 64 << 20;
const MILLICPU: u64 = 100;
/// The manifests of the other programs set no limit.
const ALL_MILLICPU: u64 = 2000;
/// The limit for an agent that is not optimised, which takes longer to start.
const MILLICPU_OF_DEBUG: u64 = 500;

/// The bounds under attack: half of the memory limit, and an answer within a second.
const MOST_MEMORY_KIB: u64 = 32 * 1024;
const SLOWEST: Duration = Duration::from_secs(1);

/// The number of descriptors that the strangers need.
const DESCRIPTORS: u64 = 8192;

/// The time for which an agent listens before it can know its probers.
const LISTENS_FOR: Duration = Duration::from_secs(92);
/// The longest wait for `told`.
const MOST_UNTIL_TOLD: Duration = Duration::from_secs(10);

/// An attack: its name, the number of strangers, the requests per second of each, if set, and the action.
#[derive(Clone, Copy)]
struct Scenario {
    attack: &'static str,
    strangers: u8,
    rate: u32,
    act: fn(&Stranger, u32),
}

/// The baseline without an attack.
const NO_STRANGERS: Scenario =
    Scenario { attack: "none, for comparison", strangers: 0, rate: 0, act: |_, _| {} };
const NEVER_READ: Scenario = Scenario {
    attack: "600 readers that do not read, at 8 addresses",
    strangers: 8,
    rate: 0,
    act: |stranger, _| attacks::never_reads(stranger, 75),
};
const LONG_NAMES: Scenario = Scenario {
    attack: "128 long names at each of 8 addresses",
    strangers: 8,
    rate: 50,
    act: attacks::has_long_names,
};
const HEADS: Scenario = Scenario {
    attack: "pipelined HEADs for everything, on 4 connections",
    strangers: 4,
    rate: 0,
    act: |stranger, _| attacks::pipelines_heads(stranger),
};
const BUSY: Scenario = Scenario {
    attack: "1,023 busy kept connections",
    strangers: 1,
    rate: 0,
    act: |stranger, _| attacks::keeps_busy(stranger, 1023),
};
const QUESTIONS: Scenario = Scenario {
    attack: "new questions on new connections",
    strangers: 8,
    rate: 25,
    act: attacks::asks_new_questions,
};
const CONNECTIONS: Scenario = Scenario {
    attack: "one question on new connections",
    strangers: 8,
    rate: 50,
    act: attacks::connects_for_each_request,
};
/// An attack beside a balancer that probes once a second.
const FORGED: Scenario =
    Scenario { attack: "forged told", strangers: 1, rate: 25, act: attacks::connects_for_each_request };

const SCENARIOS: [Scenario; 8] =
    [NO_STRANGERS, NEVER_READ, LONG_NAMES, HEADS, BUSY, QUESTIONS, CONNECTIONS, FORGED];

/// The attacks on the ports for the kubelet and Prometheus of the other programs.
const ON_ADMIN_PORTS: [Scenario; 5] = [NEVER_READ, HEADS, BUSY, QUESTIONS, CONNECTIONS];

/// Strangers that keep up their rate, however long the answers take.
const FLOODS: [Scenario; 2] = [
    Scenario {
        attack: "a flood of one question",
        strangers: 8,
        rate: 0,
        act: |stranger, rate| attacks::floods(stranger, rate, false),
    },
    Scenario {
        attack: "a flood of new questions",
        strangers: 8,
        rate: 0,
        act: |stranger, rate| attacks::floods(stranger, rate, true),
    },
];
/// The rates of a flood in connections per second. The run prints the highest one that the agent survives.
const RATES: [u32; 6] = [125, 250, 500, 1000, 2000, 4000];

/// The result of an attack.
struct Row {
    seen: Seen,
    rate: f64,
    /// The peak of the agent's anonymous memory.
    memory_kib: u64,
    /// The peak of its cgroup, with the program itself and the kernel's memory.
    group_kib: u64,
    told: String,
    /// True if `told` was true too early.
    forged: bool,
}

impl Scenario {
    fn tell(self, agent: &Path, millicpu: u64, listens: Duration, duration: Duration) -> Row {
        allow_descriptors(DESCRIPTORS);
        let cluster = Cluster::start();
        let group = Group::new(MEMORY, millicpu);
        let command = group.command(agent, &[]);
        let agent = cluster.launch(command);
        agent.wait_ready();
        let port = Port::of_agent(agent.address());
        let balancer = Balancer::start(port);
        let is_forged = self.attack == FORGED.attack;
        let slow = is_forged.then(|| SlowBalancer::start(agent.address()));
        balancer.wait(3);
        // The attacker starts when the agent knows the balancer.
        thread::sleep(if is_forged { listens } else { listens.saturating_sub(duration) });
        let attack = self.begin(port);
        let memory_kib = peak_memory(agent.pid(), duration);
        let (rate, end) = (attack.rate(), Instant::now());
        let forged = slow.map(|slow| slow.told_after(&agent, &cluster, duration));
        let told = match forged {
            Some((fewest, cordons)) => format!("after {fewest} answers, of {cordons} cordons"),
            None if listens.is_zero() => String::new(),
            None => until_told(&agent, &cluster),
        };
        let seen = balancer.end(end);
        drop(attack);
        let forged = forged.is_some_and(|forged| !forged::holds(forged));
        Row { seen, rate, memory_kib, group_kib: group.peak() / 1024, told, forged }
    }

    /// Attacks the port for the kubelet and Prometheus of another program.
    fn tell_of(self, admin: Admin, duration: Duration) -> Row {
        allow_descriptors(DESCRIPTORS);
        let cluster = Cluster::start();
        let group = Group::new(admin.memory(), ALL_MILLICPU);
        let (program, port) = admin.start(&cluster, &group);
        let kubelet = Balancer::start_kubelet(port);
        kubelet.wait(3);
        let attack = self.begin(port);
        let memory_kib = peak_memory(program.pid(), duration);
        let rate = attack.rate();
        let seen = kubelet.end(Instant::now());
        drop(attack);
        Row { seen, rate, memory_kib, group_kib: group.peak() / 1024, told: String::new(), forged: false }
    }

    fn begin(self, port: Port) -> Attack {
        Attack::start(port, self.strangers, move |stranger| (self.act)(stranger, self.rate))
    }
}

/// Returns the peak of a process's anonymous memory during this time, in KiB.
fn peak_memory(pid: u32, duration: Duration) -> u64 {
    let (began, mut peak) = (Instant::now(), 0);
    while began.elapsed() < duration {
        peak = peak.max(memory(pid).anonymous);
        thread::sleep(Duration::from_millis(100));
    }
    peak
}

/// Cordons the node, and returns a text with the time until `told` is true.
fn until_told(agent: &Agent, cluster: &Cluster) -> String {
    let began = Instant::now();
    cluster.sim.cordon(NODE);
    loop {
        let told = told(agent);
        let took = began.elapsed();
        if told == Some(true) {
            return format!("after {:.1} s", took.as_secs_f64());
        }
        if took > MOST_UNTIL_TOLD {
            return if told.is_some() { "false" } else { "not known" }.to_owned();
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the agent's `told`, or `None` if it is not known or the node is not out.
fn told(agent: &Agent) -> Option<bool> {
    agent.get("/drain.json").json()["told"].as_bool()
}

impl Row {
    /// Returns the failure, if any.
    fn mistake(&self) -> Option<String> {
        if let Some(failed) = self.seen.failed.first() {
            return Some(format!("{} probes failed, the first with {failed}", self.seen.failed.len()));
        }
        if self.forged {
            return Some("told was true before the balancer's third answer".to_owned());
        }
        (self.memory_kib > MOST_MEMORY_KIB).then(|| format!("{} KiB", self.memory_kib))
    }

    /// Returns true if all held and no probe was slow.
    fn held(&self) -> bool {
        self.mistake().is_none() && self.seen.slowest.iter().all(|slowest| *slowest < SLOWEST)
    }

    fn line(&self, attack: &str) -> String {
        let Self { seen, rate, memory_kib, group_kib, told, .. } = self;
        let mib = |kib: u64| kib.div_ceil(1024);
        format!(
            "| {attack} | {rate:.0} | {} | {} | {:.2} | {:.2} | {} | {} | {told} |",
            seen.probes,
            seen.failed.len(),
            seen.slowest[0].as_secs_f64(),
            seen.slowest[1].as_secs_f64(),
            mib(*memory_kib),
            mib(*group_kib),
        )
    }
}

fn short(scenario: Scenario) {
    let row = scenario.tell(&programs::agent(), MILLICPU_OF_DEBUG, Duration::ZERO, Duration::from_secs(5));
    eprintln!("{}", row.line(scenario.attack));
    assert_eq!(row.mistake(), None);
    assert!(row.rate > 0.0 && row.seen.probes >= 10, "{}", row.line(scenario.attack));
}

#[test]
fn strangers_who_read_no_answers_do_not_disturb_the_balancer() {
    short(NEVER_READ);
}

#[test]
fn strangers_with_long_names_do_not_disturb_the_balancer() {
    short(LONG_NAMES);
}

#[test]
fn strangers_who_pipeline_heads_do_not_disturb_the_balancer() {
    short(HEADS);
}

#[test]
fn strangers_with_busy_kept_connections_do_not_disturb_the_balancer() {
    short(BUSY);
}

#[test]
fn strangers_with_ever_new_queries_do_not_disturb_the_balancer() {
    short(QUESTIONS);
}

#[test]
fn strangers_with_ever_new_connections_do_not_disturb_the_balancer() {
    short(CONNECTIONS);
}

#[test]
fn strangers_at_the_ports_of_gate_and_haproxy_do_not_disturb_the_kubelet() {
    for (admin, scenario) in [(Admin::Gate, NEVER_READ), (Admin::Haproxy, BUSY)] {
        let row = scenario.tell_of(admin, Duration::from_secs(5));
        assert_eq!(row.mistake(), None, "{admin:?}: {}", row.line(scenario.attack));
        assert!(row.rate > 0.0 && row.seen.probes >= 10, "{admin:?}: {}", row.line(scenario.attack));
    }
}

/// Prints the table. `STRANGERS_AGENT`, `STRANGERS_GATE` and `STRANGERS_HAPROXY` name optimised programs,
/// `STRANGERS_SECONDS` sets the length of each attack, and `STRANGERS` selects attacks by a part of the name.
#[test]
#[ignore = "make faults"]
fn table() {
    let agent = optimised("AGENT", programs::agent);
    let seconds = env::var("STRANGERS_SECONDS").ok().filter(|text| !text.is_empty());
    let duration = Duration::from_secs(seconds.map_or(62, |seconds| seconds.parse().unwrap()));
    let wanted = env::var("STRANGERS").unwrap_or_default();
    let is_wanted = |scenario: &Scenario| scenario.attack.contains(&wanted);
    println!(
        "| attack | requests/s | probes | failed | slowest, s, new | kept | peak, MiB | of its cgroup | told |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut all_held = true;
    let play = |scenario: Scenario, attack: &str, listens| {
        let row = scenario.tell(&agent, MILLICPU, listens, duration);
        println!("{}", row.line(attack));
        if let Some(mistake) = row.mistake() {
            println!("  did not hold: {mistake}");
        }
        row
    };
    for scenario in SCENARIOS.into_iter().filter(is_wanted) {
        all_held &= play(scenario, scenario.attack, LISTENS_FOR).held();
    }
    for admin in [Admin::Gate, Admin::Haproxy] {
        for scenario in ON_ADMIN_PORTS.into_iter().filter(is_wanted) {
            let row = scenario.tell_of(admin, duration);
            println!("{}", row.line(&format!("{admin:?}: {}", scenario.attack)));
            if let Some(mistake) = row.mistake() {
                println!("  did not hold: {mistake}");
            }
            all_held &= row.held();
        }
    }
    let mut survived = Vec::new();
    for scenario in FLOODS.into_iter().filter(is_wanted) {
        let rows = RATES.into_iter().map(|rate| {
            let rate_of_each = rate / u32::from(scenario.strangers);
            let name = format!("{}, {rate}/s", scenario.attack);
            play(Scenario { rate: rate_of_each, ..scenario }, &name, Duration::ZERO)
        });
        // The rate that the machine has really sent counts: beyond some rate it is busier with the flood than
        // the agent is.
        let rates = rows.take_while(Row::held).map(|row| row.rate);
        survived.push((scenario.attack, rates.fold(0.0, f64::max)));
    }
    for (attack, most) in survived {
        println!("{attack}: survived up to {most:.0} connections a second");
        all_held &= most > 0.0;
    }
    assert!(all_held, "not all held");
}
