//! A long run of the real agent: probes, a change of the Node every second, an outage of the API server every minute.
//! No probe may fail, the right answer must be back in time, and memory, descriptors and threads must not grow.

use crate::setting;
use nodegate_kube_sim::Effect;
use nodegate_testbed::prober::{Probe, Prober, Saw, health, lag};
use nodegate_testbed::scenario::TOKEN;
use nodegate_testbed::{Agent, NODE, Scenario, process};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The longest time until the answers are correct again: a backoff of ten seconds, and up to five more for an
/// attempt that began before the repair.
const BACK_WITHIN: Duration = Duration::from_secs(16);
const SECOND: Duration = Duration::from_secs(1);
const PROBES_A_SECOND: u32 = 250;
const BALANCERS: u32 = 20;
/// The seconds of warm-up, at most half of a run: the first outages and the first burst of connections after
/// a stall of the machine determine the size of the allocator's pools.
const WARM_UP: usize = 300;
/// The allowed growth from the first to the last quarter. An allocator's pools vary by some pages. A leak of
/// a byte per probe is 400 KiB between the two medians of an hour, and one of 1 KiB per event is 2 MiB.
const GROWTH_KIB: u64 = 256;
const GROWTH_PERCENT: u64 = 5;

/// A figure that must not grow: its name, and the most that it may be in the last quarter after this one in the first.
type Rule = (&'static str, fn(u64) -> u64);

/// The figures of [`reading`], in its order.
const RULES: [Rule; 4] = [
    ("resident memory, KiB", of_memory),
    ("anonymous memory, KiB", of_memory),
    // Some probes are in flight when descriptors are counted.
    ("descriptors", |first| first + 6),
    ("threads", |first| first + 1),
];

fn of_memory(first: u64) -> u64 {
    first + GROWTH_KIB.max(first * GROWTH_PERCENT / 100)
}

fn reading(pid: u32) -> [u64; 4] {
    let memory = process::memory(pid);
    let (descriptors, threads) = (process::descriptors(pid), process::threads(pid).len());
    [memory.resident, memory.anonymous, descriptors as u64, threads as u64]
}

/// An outage of the API server: its name, its beginning, and the repair beyond the end of all faults.
struct Outage(&'static str, fn(&mut Soak), fn(&Soak));

/// Those of connections, certificates and credentials; the simulation has the others.
const OUTAGES: [Outage; 7] = [
    Outage("killed", |soak| soak.cluster.kill_api(), |soak| soak.cluster.restart_api()),
    Outage("connections reset", |soak| soak.cluster.sim.reset_connections(), nothing),
    Outage("frozen", |soak| soak.cluster.sim.freeze(), nothing),
    Outage("packets of open connections dropped", |soak| soak.cluster.sim.half_open(), nothing),
    Outage("401, token rotated", rotate_token, write_kubeconfig),
    Outage("storm of 503", refuse, nothing),
    Outage("CA rotated", |soak| soak.cluster.sim.rotate_certificate(true, true).unwrap(), write_kubeconfig),
];

fn nothing(_: &Soak) {}

fn refuse(soak: &mut Soak) {
    soak.cluster.sim.faults().add(Effect::Status { code: 503, retry_after: 1 }.everywhere());
    soak.cluster.sim.reset_connections();
}

fn rotate_token(soak: &mut Soak) {
    let new = format!("token-{}", fastrand::u64(..));
    assert!(soak.cluster.sim.rotate_token(&soak.token, &new));
    soak.cluster.sim.reset_connections();
    soak.token = new;
}

fn write_kubeconfig(soak: &Soak) {
    std::fs::write(soak.cluster.kubeconfig(), soak.cluster.sim.kubeconfig_for(&soak.token)).unwrap();
}

struct Plan {
    length: Duration,
    stale_after: Duration,
    lease_interval: Duration,
    /// The time from the end of an outage to the start of the next one.
    calm: Duration,
    /// The interval of the table's lines, in seconds.
    line_every: usize,
}

struct Soak {
    cluster: Scenario,
    token: String,
    agent: Agent,
    prober: Prober,
    cordoned: bool,
    /// The agent's readings, one a second.
    samples: Vec<[u64; 4]>,
    probes: usize,
    line_every: usize,
}

impl Soak {
    fn start(plan: &Plan) -> Self {
        // A Node with a hundred images has 20 kB.
        let cluster = Scenario::with(|builder| {
            builder.kubelets(true).lease_interval(plan.lease_interval).node_bytes(20_000)
        });
        let agent = cluster.ready_agent(&[&format!("--stale-after={}s", plan.stale_after.as_secs())]);
        Self {
            token: TOKEN.to_owned(),
            prober: Prober::start(agent.address(), health, PROBES_A_SECOND, BALANCERS),
            cluster,
            agent,
            cordoned: false,
            samples: Vec::new(),
            probes: 0,
            line_every: plan.line_every,
        }
    }

    /// Lets some time pass, with an event and a reading each second.
    fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.event();
            std::thread::sleep(SECOND);
            self.samples.push(reading(self.agent.pid()));
            if self.samples.len().is_multiple_of(self.line_every) {
                self.line();
            }
        }
    }

    fn event(&mut self) {
        self.cordoned = !self.cordoned;
        let sim = &self.cluster.sim;
        if self.cordoned {
            sim.cordon(NODE)
        } else {
            sim.uncordon(NODE)
        };
    }

    /// Prints a line with the figures of [`RULES`], and forgets its probes.
    fn line(&mut self) {
        let probes = self.prober.take();
        self.probes += probes.len();
        let failed = probes.iter().filter(|probe| matches!(probe.saw, Saw::Failed(_)));
        assert_eq!(failed.map(Probe::result).collect::<Vec<_>>(), [""; 0], "{}", self.agent.log_text());
        let figures = reading(self.agent.pid());
        println!("{:>6} s: {:>8} probes, {figures:?}", self.samples.len(), probes.len());
    }

    /// Plays an outage, and waits until the right answer is back.
    fn play(&mut self, outage: &Outage, lasts: Duration) {
        let Outage(name, begin, repair) = outage;
        begin(self);
        self.pass(lasts);
        self.event();
        self.cluster.sim.faults().clear();
        self.cluster.sim.heal();
        repair(self);
        let healed = Instant::now();
        let right = if self.cordoned { "503 Unschedulable" } else { "200 fresh" };
        let is_back = |probe: &Probe| probe.sent >= healed && probe.result() == right;
        let back = nodegate_testbed::until_or(
            || self.prober.probes().into_iter().find(is_back),
            || format!("no {right} after {name}\n{}", self.agent.log_text()),
        );
        let took = back.sent - healed;
        // A late probe shows a busy machine, on which the agent is late, too.
        let within = BACK_WITHIN + lag(&self.prober.probes()) * 4;
        println!("{name}, {lasts:.0?}: right again after {took:.1?}");
        assert!(took <= within, "allowed {within:?} after {name}\n{}", self.agent.log_text());
    }

    /// Returns the medians of the first and of the last quarter after the warm-up.
    fn quarters(&self, figure: usize) -> [u64; 2] {
        let settled = &self.samples[WARM_UP.min(self.samples.len() / 2)..];
        let quarter = settled.len() / 4;
        [&settled[..quarter], &settled[settled.len() - quarter..]].map(|some| {
            let mut values: Vec<u64> = some.iter().map(|sample| sample[figure]).collect();
            values.sort_unstable();
            values[values.len() / 2]
        })
    }

    /// Returns the table of growth, and what has grown too much.
    fn growth(&self) -> (String, Vec<&'static str>) {
        let (mut text, mut grown) = (String::new(), Vec::new());
        for (number, (name, most)) in RULES.into_iter().enumerate() {
            let ([first, last], peak) = (self.quarters(number), self.samples.iter().map(|s| s[number]).max());
            let _ = writeln!(
                text,
                "  {name}: {first} in the first quarter, {last} in the last, at most {}; peak {}",
                most(first),
                peak.unwrap_or_default()
            );
            if last > most(first) {
                grown.push(name);
            }
        }
        (text, grown)
    }
}

fn run(plan: &Plan, outages: &[Outage]) -> Soak {
    let (mut soak, began) = (Soak::start(plan), Instant::now());
    for (number, outage) in (0_u32..).zip(outages.iter().cycle()) {
        // Two of three outages last until the cache must be stale, the others end before it may be.
        let share = [0.4, 1.3, 1.8][number as usize % 3];
        soak.play(outage, plan.stale_after.mul_f64(share));
        soak.pass(plan.calm);
        if began.elapsed() >= plan.length {
            break;
        }
    }
    soak.line();
    soak
}

#[test]
fn no_probe_fails_over_outages_and_the_right_answer_is_back_in_time() {
    let plan = Plan {
        length: Duration::from_secs(12),
        stale_after: Duration::from_secs(3),
        lease_interval: Duration::from_secs(1),
        calm: Duration::from_secs(1),
        line_every: 5,
    };
    // Memory settles only in a longer run.
    assert!(run(&plan, &OUTAGES[..3]).probes > 1000);
}

/// Runs `make soak`: `SOAK` is the length.
#[test]
#[ignore = "takes an hour: make soak"]
fn soak() {
    let plan = Plan {
        length: *setting("SOAK", humantime::Duration::from(Duration::from_hours(1))),
        stale_after: Duration::from_secs(15),
        lease_interval: Duration::from_secs(10),
        calm: Duration::from_secs(40),
        line_every: 60,
    };
    let soak = run(&plan, &OUTAGES);
    let (text, grown) = soak.growth();
    println!("{} probes, none failed\n{text}", soak.probes);
    assert!(grown.is_empty(), "grown: {grown:?}\n{text}");
}
