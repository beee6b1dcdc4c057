//! Runs the world of one seed: a cluster, an agent, its clients, and simulated time.

use crate::agent::SimulatedAgent;
use crate::balancer::Balancer;
use crate::bounds::{Aftermath, FaultBounds, GRACE};
use crate::cluster::SimulatedCluster;
use crate::connection::StreamKind;
use crate::events::{Event, Events};
use crate::oracle::{AnswerBounds, Judged, KINDS, Oracle};
use crate::plan::WorldSettings;
use crate::report::SimulationReport;
use crate::trace::{Trace, note};
use fastrand::Rng;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::task::LocalSet;
use tokio::time::sleep_until;

pub(crate) const EPISODES: u64 = 10;
const BEGINNING: Duration = Duration::from_hours(500_000);
/// A time, and the most requests in it after the heartbeat's stream is lost: without a new watch, 28 checks.
const HEARTBEAT_LOST: (Duration, u64) = (Duration::from_mins(6), 20);
/// The time after which the agent has recovered from an outage. A Lease that was forbidden is watched after 11 min.
const STEADY: Duration = Duration::from_mins(12);
const LEASE_RENEWAL: Duration = Duration::from_secs(10);
/// The time within which an agent has its first list and listens.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);
/// The time that an agent has after starvation until its state must be consistent.
const SETTLED: Duration = Duration::from_millis(100);

/// The outcome of one seed.
#[derive(Debug)]
pub struct EpisodeOutcome {
    pub seed: u64,
    /// The hash of the complete trace.
    pub hash: u64,
    pub violation: Option<String>,
    pub report: SimulationReport,
}

/// Runs a future under simulated time.
pub(crate) fn under_simulated_time<T>(seed: u64, future: impl Future<Output = T>) -> T {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    LocalSet::new().block_on(&runtime.expect("a runtime without sockets"), async {
        nodegate_clock::set_wall(UNIX_EPOCH + BEGINNING);
        future.await
    })
}

/// Runs the world of a seed. With `shown` it prints the trace.
pub fn run(seed: u64, shown: bool) -> EpisodeOutcome {
    under_simulated_time(seed, async {
        let trace = Trace::new(shown);
        let mut run = RunningWorld::begin(seed, trace.clone());
        let ended = run.go().await;
        run.report.transitions(&run.agent.transitions());
        let at = trace.now().as_secs_f64();
        let violation = ended.err().map(|what| format!("at {at:.3} s: {what}"));
        if let Some(what) = &violation {
            note!(trace, "VIOLATION {what}");
        }
        EpisodeOutcome { seed, hash: trace.hash(), violation, report: run.report }
    })
}

pub(crate) struct Schedule {
    event: Instant,
    probe: Instant,
    renewal: Instant,
    noise: Instant,
}

pub(crate) struct RunningWorld {
    pub(crate) settings: WorldSettings,
    pub(crate) random: Rng,
    pub(crate) cluster: SimulatedCluster,
    pub(crate) agent: SimulatedAgent,
    pub(crate) oracle: Oracle,
    pub(crate) bounds: FaultBounds,
    /// The bounds that the last episode leaves behind.
    pub(crate) aftermath: Aftermath,
    /// The time at which a fault last began or ended.
    pub(crate) last_edge: Instant,
    pub(crate) balancer: Balancer,
    pub(crate) events: Events,
    pub(crate) trace: Trace,
    pub(crate) report: SimulationReport,
    pub(crate) event_every: Duration,
    pub(crate) schedule: Schedule,
    written: u64,
    last_answer: String,
    pub(crate) listens: bool,
    /// True if the agent gets no CPU time, and the time of the last change.
    pub(crate) starved: (bool, Instant),
}

impl RunningWorld {
    fn begin(seed: u64, trace: Trace) -> Self {
        let mut random = Rng::with_seed(seed);
        let settings = WorldSettings::draw(&mut random);
        note!(trace, "seed {seed}: {settings:?}");
        let cluster = SimulatedCluster::new(&settings, &trace);
        let agent = SimulatedAgent::start(&settings, &cluster.network, &trace);
        let now = nodegate_clock::now();
        Self {
            oracle: Oracle::new(settings.policy(), &cluster.node()),
            bounds: FaultBounds::BEGINNING,
            aftermath: Aftermath::NONE,
            last_edge: now,
            balancer: Balancer::new(now),
            events: Events::new(random.u64(..)),
            schedule: Schedule { event: now, probe: now, renewal: now, noise: now },
            report: SimulationReport::default(),
            event_every: Duration::from_secs(5),
            written: 0,
            last_answer: String::new(),
            listens: false,
            starved: (false, now),
            settings,
            random,
            cluster,
            agent,
            trace,
        }
    }

    async fn go(&mut self) -> Result<(), String> {
        self.pass(LISTENS_WITHIN).await?;
        if !self.update_listener()? {
            return Err("no first list in time".to_owned());
        }
        self.bounds = FaultBounds::FAIR;
        for number in 0..EPISODES {
            note!(self.trace, "EPISODE {number}");
            self.episode().await?;
            self.bounds = FaultBounds::FAIR;
            self.report.episodes += 1;
        }
        match if self.settings.service { None } else { Some(self.random.u32(..20)) } {
            Some(0) => self.idle_hour().await,
            Some(1) => self.hour_without_watches().await,
            _ => Ok(()),
        }
    }

    /// Lets time pass, and runs all actions that are due in it.
    pub(crate) async fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = nodegate_clock::now() + time;
        loop {
            let schedule = &self.schedule;
            let next = schedule.event.min(schedule.probe).min(schedule.renewal).min(schedule.noise).min(end);
            sleep_until(next.into()).await;
            let now = nodegate_clock::now();
            if now >= end {
                return Ok(());
            }
            self.act(now)?;
        }
    }

    fn act(&mut self, now: Instant) -> Result<(), String> {
        if now >= self.schedule.renewal {
            self.cluster.renew();
            self.schedule.renewal = now + LEASE_RENEWAL.mul_f64(1.0 + 0.04 * self.random.f64());
        }
        if now >= self.schedule.noise {
            self.write();
            self.schedule.noise = now + self.settings.noise_every.mul_f64(0.5 + self.random.f64());
        }
        if now >= self.schedule.event {
            let event = self.events.next(&self.cluster.node());
            self.perform(&event);
            self.schedule.event = now + self.event_every.mul_f64(0.2 + 1.6 * self.random.f64());
        }
        if now >= self.schedule.probe {
            self.schedule.probe = now + Duration::from_millis(self.random.u64(150..900));
            self.probe()?;
        }
        Ok(())
    }

    pub(crate) fn write(&mut self) {
        self.written += 1;
        self.cluster.noise(self.written);
    }

    /// Performs an event. Returns the number of the Node's new state.
    pub(crate) fn perform(&mut self, event: &Event) -> usize {
        note!(self.trace, "event: {event:?}");
        event.perform(&self.cluster.sim);
        self.oracle.changed(&self.cluster.node())
    }

    /// Checks the agent. A starved agent, or one that was starved until just now, passes always.
    fn is_well(&self) -> Result<(), String> {
        let (starved, since) = self.starved;
        let settled_for = nodegate_clock::now().saturating_duration_since(since);
        if starved || settled_for < SETTLED { Ok(()) } else { self.agent.is_well() }
    }

    /// Lets the agent answer once it listens. Returns true if it does.
    fn update_listener(&mut self) -> Result<bool, String> {
        if let Some(opened) = self.agent.opened().filter(|_| !self.listens) {
            self.agent.opens_in_time(opened)?;
            self.listens = true;
            self.balancer = Balancer::new(opened);
        }
        Ok(self.listens)
    }

    pub(crate) fn starve(&mut self, starved: bool) {
        self.starved = (starved, nodegate_clock::now());
        self.agent.starve(starved);
    }

    pub(crate) fn restart_agent(&mut self) {
        self.report.transitions(&self.agent.transitions());
        self.agent = SimulatedAgent::start(&self.settings, &self.cluster.network, &self.trace);
        self.agent.starve(self.starved.0);
        self.oracle.restarted();
        self.listens = false;
    }

    pub(crate) fn probe(&mut self) -> Result<(), String> {
        self.is_well()?;
        if !self.update_listener()? {
            return Ok(());
        }
        let bounds = self.bounds_now();
        let proof = self.agent.last_proof();
        let read = self.cluster.network.usage().last_consistent_read;
        let (mut fresh, mut stale, mut out, mut health_out) = (true, false, false, false);
        for (number, kind) in KINDS.into_iter().enumerate() {
            let answer = self.agent.ask(kind.request);
            let judged = self.oracle.judge(number, &answer, bounds)?;
            if let (Judged::Fresh, Some(proof)) = (judged, proof) {
                self.oracle.judge_date(number, &answer, bounds, proof)?;
            }
            if number == 0 {
                self.oracle.judge_proof(judged, proof, read)?;
                health_out = answer.takes_out();
            }
            fresh &= judged == Judged::Fresh;
            stale |= judged == Judged::Stale;
            self.report.answers += 1;
            self.report.stale += u64::from(judged == Judged::Stale);
            out |= answer.takes_out();
            self.balancer.received(number, answer.takes_out());
            if number == 0 && self.last_answer != answer.text() {
                self.last_answer = answer.text();
                note!(self.trace, "answer, {judged:?}: {}", self.last_answer);
            }
        }
        // The status is expensive. Without an answer that takes the node out, a sample is enough.
        if out || self.report.answers.is_multiple_of(8) {
            let (drain, last_pool_change) = (self.agent.drain(health_out)?, self.agent.last_pool_change());
            if stale && drain.acknowledged == Some(true) {
                return Err("acknowledged, while the cache is stale".to_owned());
            }
            self.report.acknowledged += u64::from(self.balancer.judge(&drain, last_pool_change, fresh)?);
        }
        Ok(())
    }

    /// Returns the bounds now. Once proof has been available for long enough, the agent must have it.
    fn bounds_now(&self) -> AnswerBounds {
        let since = nodegate_clock::now().saturating_duration_since(self.last_edge);
        let attempts = self.cluster.attempts_until_proof();
        let late =
            |within: Duration| attempts.is_some_and(|attempts| since > within.saturating_mul(attempts));
        let stale_allowed =
            self.aftermath.stale_allowed() || self.bounds.stale_allowed.is_some_and(|within| !late(within));
        let mut unseen = self.bounds.unseen.max(self.aftermath.unseen());
        // After minutes in which no watch lasted, the agent lists for a while, and a change waits for the next list.
        if !self.cluster.network.watches(StreamKind::Nodes) && self.agent.has_listed_instead() {
            unseen = unseen.max(self.settings.policy().stale_after + GRACE);
        }
        AnswerBounds { unseen, stale_allowed, dates_are_exact: self.bounds.dates_are_exact }
    }

    /// Lets time pass. The error says that the agent has sent more than `most` requests in it.
    pub(crate) async fn pass_with(&mut self, time: Duration, most: u64, what: &str) -> Result<(), String> {
        let before = self.cluster.network.usage().requests;
        self.pass(time).await?;
        let requests = self.cluster.network.usage().requests - before;
        if requests > most {
            return Err(format!("{requests} requests in {time:?} {what}, at most {most} are allowed"));
        }
        Ok(())
    }

    /// Lets an hour pass without faults and events, and checks its cost.
    async fn idle_hour(&mut self) -> Result<(), String> {
        note!(self.trace, "IDLE HOUR");
        self.event_every = Duration::from_hours(10);
        self.schedule.event = nodegate_clock::now() + self.event_every;
        if self.random.u32(..3) == 0 {
            note!(self.trace, "the kubelet is dead");
            self.cluster.kubelet_is_cut_off = true;
        }
        // The limit is that of the steady state, long after an outage.
        self.pass(STEADY).await?;
        self.cluster.network.mark();
        let lease_speaks = self.settings.leases && !self.cluster.clock_was_set_back && self.cluster.renews();
        let most = if lease_speaks { 59 } else { 299 };
        self.pass_with(Duration::from_hours(1), most, "without faults").await?;
        let connections = self.cluster.network.usage().most_open;
        if connections > 3 {
            return Err(format!("{connections} connections"));
        }
        if lease_speaks {
            note!(self.trace, "HEARTBEAT LOST");
            self.cluster.network.lose_streams(StreamKind::Leases);
            let (time, most) = HEARTBEAT_LOST;
            self.pass_with(time, most, "after the Lease's stream was lost").await?;
        }
        Ok(())
    }
}
