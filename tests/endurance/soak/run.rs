//! A run: one agent, one simulated cluster, events, outages, balancers.

use super::balancers::{AgentPorts, Balancers};
use super::judge::{Judge, allowance};
use super::outage::{Outage, Site};
use super::report::{Reading, Report};
use nodegate_simulation::events::Events;
use nodegate_simulation::truth::Truth;
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest time until the answers are correct again: a backoff of ten seconds, and up to five more for an
/// attempt that began before the repair.
const BACK_WITHIN: Duration = Duration::from_secs(16);
/// The time of correct answers that the agent needs between two outages.
const CALM: Duration = Duration::from_secs(2);
/// More connections than balancers.
const CROWD: usize = 64;
const SECOND: Duration = Duration::from_secs(1);
const PROBES_A_SECOND: u64 = 1000;

/// The plan of a run.
pub(crate) struct Plan {
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) agent: PathBuf,
    /// The value of the oracle, and that of the agent.
    pub(crate) stale_after: (Duration, Duration),
    pub(crate) lease_interval: Duration,
    /// The time from the end of an outage to the start of the next one.
    pub(crate) outage_every: Duration,
    pub(crate) outages: Vec<Outage>,
    pub(crate) row_every: Duration,
}

enum Weather {
    Fair { next: Instant },
    Broken { outage: Outage, began: Instant, until: Instant },
    Healing { outage: Outage, lasted: Duration, began: Instant },
}

/// A run in progress.
struct Soak {
    plan: Plan,
    random: fastrand::Rng,
    events: Events,
    truth: Truth,
    site: Site,
    agent: Agent,
    judge: Arc<Mutex<Judge>>,
    balancers: Balancers,
    report: Report,
    weather: Weather,
    next_outage: usize,
    /// The outages since the last line.
    befell: Vec<String>,
    began: Instant,
}

/// Runs the plan, and returns the report.
pub(crate) fn run(plan: Plan) -> Report {
    let mut soak = Soak::begin(plan);
    soak.go();
    soak.report
}

impl Soak {
    fn begin(plan: Plan) -> Self {
        let cluster = Cluster::with(|builder| {
            // A Node with a hundred images has 20 kB; a kubelet posts its status every 10 s while something
            // changes.
            builder
                .kubelets(true)
                .lease_interval(plan.lease_interval)
                .heartbeat_interval(Duration::from_secs(10))
                .node_bytes(20_000)
        });
        let agent_port = ports::free();
        let mut command = Command::new(&plan.agent);
        command.arg(format!("--stale-after={}ms", plan.stale_after.1.as_millis()));
        command.arg(format!("--agent-check-port={agent_port}"));
        let agent = cluster.launch(command);
        agent.wait_ready();
        let began = Instant::now();
        let truth = Truth::healthy();
        let judge = Arc::new(Mutex::new(Judge::new(plan.stale_after.0, &truth)));
        let ports = AgentPorts { http: agent.address(), agent_check: ([127, 0, 0, 1], agent_port).into() };
        crowd(ports.http);
        let balancers = Balancers::start(ports, judge.clone());
        Self {
            random: fastrand::Rng::with_seed(plan.seed),
            events: Events::new(plan.seed),
            truth,
            site: Site { token: cluster.token().to_owned(), cluster },
            agent,
            judge,
            balancers,
            report: Report::new(),
            weather: Weather::Fair { next: began + plan.outage_every / 3 },
            next_outage: 0,
            befell: Vec::new(),
            began,
            plan,
        }
    }

    /// Plays an event on the full second, and outages on the half.
    fn go(&mut self) {
        let mut last_row = self.began;
        let mut tick = self.began;
        while self.began.elapsed() < self.plan.length || !self.is_fair() {
            tick += SECOND / 2;
            sleep_until(tick);
            self.event();
            tick += SECOND / 2;
            sleep_until(tick);
            self.weather();
            self.report.sample(Reading::of(self.agent.pid()));
            if last_row.elapsed() + SECOND / 4 >= self.plan.row_every {
                self.row();
                last_row = Instant::now();
            }
        }
        self.row();
        self.report.expected_probes = self.began.elapsed().as_secs() * PROBES_A_SECOND;
        if !self.report.complaints.is_empty() {
            eprintln!("{}", self.agent.log_text());
        }
    }

    fn is_fair(&self) -> bool {
        matches!(self.weather, Weather::Fair { .. })
    }

    fn row(&mut self) {
        let requests = self.site.cluster.sim.counters().read().total();
        let outages = std::mem::take(&mut self.befell).join("; ");
        let reading = Reading::of(self.agent.pid());
        self.report.row(self.began.elapsed(), self.balancers.take(), reading, requests, &outages);
    }

    /// Plays the next event; while the agent recovers, one that differs from all others.
    fn event(&mut self) {
        let healing = matches!(self.weather, Weather::Healing { .. });
        let event = if healing { self.events.marker(&self.truth) } else { self.events.next(&self.truth) };
        let before = self.version();
        self.truth = event.after(&self.truth);
        self.judge.lock().unwrap().changing(&self.truth);
        event.perform(&self.site.cluster.sim, NODE);
        self.judge.lock().unwrap().changed();
        // The API server sends no event for a write that changes nothing; the judge would wait forever.
        assert_ne!(self.version(), before, "{event:?} has changed nothing");
    }

    fn version(&self) -> Option<Value> {
        let mut node = self.site.cluster.sim.get("nodes", "", NODE)?;
        Some(node["metadata"]["resourceVersion"].take())
    }

    fn weather(&mut self) {
        let now = Instant::now();
        match self.weather {
            Weather::Fair { next } if now >= next && self.began.elapsed() < self.plan.length => self.storm(),
            Weather::Broken { outage, began, until } if now >= until => self.heal(outage, began),
            Weather::Healing { outage, lasted, began } => self.recover(outage, lasted, began),
            _ => {}
        }
    }

    fn storm(&mut self) {
        let outage = self.plan.outages[self.next_outage % self.plan.outages.len()];
        self.next_outage += 1;
        let unseen = outage.unseen(Judge::longest_unseen(self.plan.stale_after.0));
        let began = Instant::now();
        self.judge.lock().unwrap().breaking(unseen);
        (outage.begin)(&mut self.site);
        let until = began + self.duration(&outage);
        self.weather = Weather::Broken { outage, began, until };
        if outage.is_a_moment {
            self.heal(outage, began);
        }
    }

    /// Returns the length: two of three outages last until the cache must be stale, the others end before it
    /// may be.
    fn duration(&mut self, outage: &Outage) -> Duration {
        if outage.is_a_moment {
            return Duration::ZERO;
        }
        let stale_after = self.plan.stale_after.0.as_secs_f64();
        let long = self.random.u32(..3) > 0;
        let share = self.random.f64();
        Duration::from_secs_f64(if long {
            stale_after * (1.2 + 0.6 * share) + 1.0
        } else {
            stale_after * 0.6 * share
        })
    }

    fn heal(&mut self, outage: Outage, began: Instant) {
        self.judge.lock().unwrap().healing();
        outage.heal(&self.site);
        self.weather = Weather::Healing { outage, lasted: began.elapsed(), began };
        self.event();
    }

    fn recover(&mut self, outage: Outage, lasted: Duration, began: Instant) {
        let now = Instant::now();
        let within = BACK_WITHIN + allowance(self.balancers.lag());
        let recovery = self.judge.lock().unwrap().recovery();
        let Some((back, over)) = recovery else { return };
        if !over && back < within {
            return;
        }
        if !over || back > within {
            self.report.late(outage.name, back, within);
            self.judge.lock().unwrap().give_up();
        }
        let (name, lasted) = (outage.name, lasted.as_secs_f64());
        self.befell.push(format!("{name} {lasted:.0} s, back after {:.2} s", back.as_secs_f64()));
        self.report.recoveries += 1;
        self.weather = Weather::Fair { next: (began + self.plan.outage_every).max(now + CALM) };
    }
}

/// Opens as many connections at once as the balancers can have after a stall, so that the agent's memory
/// includes them.
fn crowd(agent: SocketAddr) {
    let connections: Vec<TcpStream> = (0..CROWD).map(|_| TcpStream::connect(agent).unwrap()).collect();
    for mut connection in &connections {
        connection.write_all(b"GET /health HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    }
    for mut connection in &connections {
        assert!(connection.read(&mut [0; 64]).unwrap() > 0);
    }
}

fn sleep_until(instant: Instant) {
    std::thread::sleep(instant.saturating_duration_since(Instant::now()));
}
