//! Strangers: a program in a cgroup with the limits of its manifest, a load balancer that probes it, and an attacker.
//! No probe may fail or get a late answer, and the program must not end.

// `make faults` runs each attack for a minute against optimised programs; as tests they take some seconds.

mod attacks;
mod balancer;
mod group;

use attacks::{Attack, Stranger};
use balancer::{Balancer, Seen};
use group::Group;
use nodegate_testbed::process::{allow_descriptors, memory};
use nodegate_testbed::{Cluster, programs};
use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// `limits` of manifests/install.yaml: 64Mi, 100m.
const MEMORY: u64 = 64 << 20;
const MILLICPU: u64 = 100;
/// The limit for an agent that is not optimised, which takes longer to start.
const MILLICPU_OF_DEBUG: u64 = 500;

/// The bounds under attack: half of the memory limit, and an answer within a second.
const MOST_MEMORY_KIB: u64 = 32 * 1024;
const SLOWEST: Duration = Duration::from_secs(1);

/// The number of descriptors that the strangers need.
const DESCRIPTORS: u64 = 14_000;
/// The length of an attack in a test.
const SHORT: Duration = Duration::from_secs(5);

/// An attack: its name, the number of strangers, and the action of each.
#[derive(Clone, Copy)]
struct Scenario {
    attack: &'static str,
    strangers: u8,
    act: fn(&Stranger),
}

const NEVER_READ: Scenario = Scenario {
    attack: "600 readers that do not read, at 8 addresses",
    strangers: 8,
    act: |stranger| attacks::never_reads(stranger, 75),
};
const LONG_NAMES: Scenario = Scenario {
    attack: "128 long names at each of 8 addresses",
    strangers: 8,
    act: |stranger| attacks::has_long_names(stranger, 50),
};
const HEADS: Scenario = Scenario {
    attack: "pipelined HEADs for everything, on 4 connections",
    strangers: 4,
    act: attacks::pipelines_heads,
};
const BUSY: Scenario = Scenario {
    attack: "1,023 busy kept connections",
    strangers: 1,
    act: |stranger| attacks::keeps_busy(stranger, 1023),
};
const QUERIES: Scenario = Scenario {
    attack: "new queries on new connections",
    strangers: 8,
    act: |stranger| attacks::sends_new_queries(stranger, 25),
};
const SLOW: Scenario = Scenario {
    attack: "600 silent or slow connections at 4 addresses",
    strangers: 4,
    act: |stranger| attacks::sends_slowly(stranger, 150),
};
/// The same against an optimised agent, whose memory limit allows 1,024 connections.
const MANY_SLOW: Scenario = Scenario {
    attack: "10,000 silent or slow connections at 8 addresses",
    strangers: 8,
    act: |stranger| attacks::sends_slowly(stranger, 1250),
};

/// The rows of the table. The first is the baseline.
const SCENARIOS: [Scenario; 7] = [
    Scenario { attack: "no attack, for comparison", strangers: 0, act: |_| {} },
    NEVER_READ,
    LONG_NAMES,
    HEADS,
    BUSY,
    QUERIES,
    MANY_SLOW,
];

/// The result of an attack.
struct Row {
    attack: &'static str,
    seen: Seen,
    rate: f64,
    /// The peak of the program's anonymous memory.
    memory_kib: u64,
    /// The peak of its cgroup, with the program itself and the kernel's memory.
    group_kib: u64,
}

impl Scenario {
    /// Attacks the agent's port.
    fn play(self, agent: &Path, millicpu: u64, duration: Duration) -> Row {
        let cluster = Cluster::start();
        let group = Group::new(MEMORY, millicpu);
        let agent = cluster.launch(group.command(agent));
        agent.wait_ready();
        allow_descriptors(DESCRIPTORS);
        let balancer = Balancer::start(agent.address());
        balancer.wait(3);
        let attack = Attack::start(agent.address(), self.strangers, self.act);
        let (began, mut memory_kib) = (Instant::now(), 0);
        while began.elapsed() < duration {
            memory_kib = memory_kib.max(memory(agent.pid()).anonymous);
            thread::sleep(Duration::from_millis(100));
        }
        let (rate, seen) = (attack.rate(), balancer.end());
        drop(attack);
        Row { attack: self.attack, seen, rate, memory_kib, group_kib: group.peak() / 1024 }
    }
}

impl Row {
    /// Returns the failure, if any.
    fn mistake(&self) -> Option<String> {
        if let Some(failed) = self.seen.failed.first() {
            return Some(format!("{} probes failed, the first with {failed}", self.seen.failed.len()));
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
        let Self { attack, seen, rate, memory_kib, group_kib } = self;
        format!(
            "| {attack} | {rate:.0} | {} | {} | {:.2} | {:.2} | {} | {} |",
            seen.probes,
            seen.failed.len(),
            seen.slowest[0].as_secs_f64(),
            seen.slowest[1].as_secs_f64(),
            memory_kib.div_ceil(1024),
            group_kib.div_ceil(1024),
        )
    }

    fn assert_held(&self) {
        eprintln!("{}", self.line());
        assert_eq!(self.mistake(), None, "{}", self.line());
        assert!(self.rate > 0.0 && self.seen.probes >= 10, "{}", self.line());
    }
}

fn assert_harmless(scenario: Scenario) {
    scenario.play(&programs::agent(), MILLICPU_OF_DEBUG, SHORT).assert_held();
}

#[test]
fn strangers_who_read_no_answers_do_not_disturb_the_balancer() {
    assert_harmless(NEVER_READ);
}

#[test]
fn strangers_with_long_names_do_not_disturb_the_balancer() {
    assert_harmless(LONG_NAMES);
}

#[test]
fn strangers_who_pipeline_heads_do_not_disturb_the_balancer() {
    assert_harmless(HEADS);
}

#[test]
fn strangers_with_busy_kept_connections_do_not_disturb_the_balancer() {
    assert_harmless(BUSY);
}

#[test]
fn strangers_with_ever_new_queries_do_not_disturb_the_balancer() {
    assert_harmless(QUERIES);
}

#[test]
fn strangers_who_send_slowly_or_nothing_do_not_disturb_the_balancer() {
    assert_harmless(SLOW);
}

/// Prints the table. `STRANGERS_AGENT` names an optimised program, `STRANGERS_SECONDS` sets the length of each attack, and `STRANGERS` selects attacks by a part of the name.
#[test]
#[ignore = "make faults"]
fn table() {
    let agent = env::var_os("STRANGERS_AGENT").map_or_else(programs::agent, PathBuf::from);
    let seconds = env::var("STRANGERS_SECONDS").ok().filter(|text| !text.is_empty());
    let duration = Duration::from_secs(seconds.map_or(62, |seconds| seconds.parse().unwrap()));
    let wanted = env::var("STRANGERS").unwrap_or_default();
    let is_wanted = |scenario: &Scenario| scenario.attack.contains(&wanted);
    println!(
        "| attack | requests/s | probes | failed | slowest, s: new | kept | peak, MiB | of its cgroup |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    let mut all_held = true;
    for scenario in SCENARIOS.into_iter().filter(is_wanted) {
        all_held &= scenario.play(&agent, MILLICPU, duration).print();
    }
    assert!(all_held, "not all held");
}
