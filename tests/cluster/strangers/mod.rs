//! Strangers: the agent in a cgroup with the limits of the manifests, a load balancer that asks it, and somebody who means it
//! harm. No probe may fail, nor be answered late, and the agent must not end.
//!
//! `make faults` lets each attack go on for a minute against an optimised agent; as tests they take some seconds.

mod attacks;
mod balancer;
mod group;

use attacks::{Attack, Stranger};
use balancer::{Balancer, Seen};
use group::Group;
use nodegate_testbed::process::{allow_descriptors, memory};
use nodegate_testbed::{Agent, Cluster, programs, until};
use std::env;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// `limits` of manifests/base: 64Mi, 100m.
const MEMORY: u64 = 64 << 20;
const MILLICPU: u64 = 100;
/// An agent that is not optimised takes more time to start alone.
const MILLICPU_OF_DEBUG: u64 = 500;

/// What is allowed under attack: half of the limit, and an answer within a second.
const MOST_MEMORY_KIB: u64 = 32 * 1024;
const SLOWEST: Duration = Duration::from_secs(1);

/// How many descriptors the strangers need.
const DESCRIPTORS: u64 = 8192;

/// An attack: what it is, how many strangers, and what each does.
#[derive(Clone, Copy)]
struct Story {
    attack: &'static str,
    strangers: u8,
    act: fn(&Stranger),
}

/// What the machine adds by itself.
const NOBODY: Story = Story { attack: "nobody, for comparison", strangers: 0, act: |_| {} };
const NEVER_READ: Story = Story {
    attack: "600 readers that do not read, at 8 addresses",
    strangers: 8,
    act: |stranger| attacks::never_reads(stranger, 75),
};
const LONG_NAMES: Story =
    Story { attack: "128 long names at each of 8 addresses", strangers: 8, act: attacks::has_long_names };
const HEADS: Story = Story {
    attack: "pipelined HEADs for everything, on 4 connections",
    strangers: 4,
    act: attacks::pipelines_heads,
};
const BUSY: Story = Story {
    attack: "1,023 busy kept connections",
    strangers: 1,
    act: |stranger| attacks::keeps_busy(stranger, 1023),
};
const QUESTIONS: Story = Story {
    attack: "new questions on new connections",
    strangers: 8,
    act: |stranger| attacks::asks_new_questions(stranger, 25),
};
const CONNECTIONS: Story = Story {
    attack: "one question on new connections",
    strangers: 8,
    act: |stranger| attacks::connects_anew(stranger, 50),
};

const STORIES: [Story; 7] = [NOBODY, NEVER_READ, LONG_NAMES, HEADS, BUSY, QUESTIONS, CONNECTIONS];

/// What came of one.
struct Row {
    seen: Seen,
    rate: f64,
    /// Anonymous memory of the agent, the most that was seen.
    memory_kib: u64,
    /// Of its group, with the program itself and what the kernel holds.
    group_kib: u64,
    told: String,
}

impl Story {
    fn tell(self, agent: &Path, millicpu: u64, duration: Duration) -> Row {
        allow_descriptors(DESCRIPTORS);
        let cluster = Cluster::start();
        let group = Group::new(MEMORY, millicpu);
        let command = group.command(agent, &["--startup-grace=60s"]);
        let agent = cluster.launch(command);
        agent.wait_ready();
        let balancer = Balancer::start(agent.address());
        balancer.wait(3);
        let attack = Attack::start(agent.address(), self.strangers, self.act);
        let began = Instant::now();
        let mut memory_kib = 0;
        while began.elapsed() < duration {
            memory_kib = memory_kib.max(memory(agent.pid()).anonymous);
            thread::sleep(Duration::from_millis(100));
        }
        let rate = attack.rate();
        let seen = balancer.end();
        drop(attack);
        let told = told(&agent);
        Row { seen, rate, memory_kib, group_kib: group.peak() / 1024, told }
    }
}

fn told(agent: &Agent) -> String {
    let drain =
        &until("/status.json", || Some(agent.get("/status.json")).filter(|reply| reply.status == 200)).json()
            ["drain"];
    match (&drain["told"], drain["not_known"].as_str()) {
        (_, Some(_)) => "not known".to_owned(),
        (told, None) => told.to_string(),
    }
}

impl Row {
    /// Says what did not hold.
    fn mistake(&self) -> Option<String> {
        if let Some(failed) = self.seen.failed.first() {
            return Some(format!("{} probes failed, the first with {failed}", self.seen.failed.len()));
        }
        (self.memory_kib > MOST_MEMORY_KIB).then(|| format!("{} KiB", self.memory_kib))
    }

    fn line(&self, attack: &str) -> String {
        let Self { seen, rate, memory_kib, group_kib, told } = self;
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

fn short(story: Story) {
    let row = story.tell(&programs::agent(), MILLICPU_OF_DEBUG, Duration::from_secs(5));
    eprintln!("{}", row.line(story.attack));
    assert_eq!(row.mistake(), None);
    assert!(row.rate > 0.0 && row.seen.probes >= 10, "{}", row.line(story.attack));
}

#[test]
fn readers_that_do_not_read() {
    short(NEVER_READ);
}

#[test]
fn long_names() {
    short(LONG_NAMES);
}

#[test]
fn pipelined_heads() {
    short(HEADS);
}

#[test]
fn busy_kept_connections() {
    short(BUSY);
}

#[test]
fn new_questions() {
    short(QUESTIONS);
}

#[test]
fn new_connections() {
    short(CONNECTIONS);
}

/// `STRANGERS_AGENT` is an optimised agent, `STRANGERS_SECONDS` how long each attack lasts, `STRANGERS` a part of the names of
/// those wanted.
#[test]
#[ignore = "make faults"]
fn table() {
    let agent = env::var_os("STRANGERS_AGENT").map_or_else(programs::agent, PathBuf::from);
    let seconds = env::var("STRANGERS_SECONDS").ok().filter(|text| !text.is_empty());
    let duration = Duration::from_secs(seconds.map_or(62, |seconds| seconds.parse().unwrap()));
    let wanted = env::var("STRANGERS").unwrap_or_default();
    println!(
        "| attack | requests/s | probes | failed | slowest, s, new | kept | peak, MiB | of its cgroup | told |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut all_held = true;
    for story in STORIES.into_iter().filter(|story| story.attack.contains(&wanted)) {
        let row = story.tell(&agent, MILLICPU, duration);
        println!("{}", row.line(story.attack));
        if let Some(mistake) = row.mistake() {
            println!("  did not hold: {mistake}");
            all_held = false;
        }
        all_held &= row.seen.slowest.iter().all(|slowest| *slowest < SLOWEST);
    }
    assert!(all_held, "not all held");
}
