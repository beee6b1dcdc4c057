//! A seed's world: a cluster, an agent, whoever asks it, and time.

use crate::agent::{STARTUP_GRACE, SimulatedAgent, SimulatedPast};
use crate::balancer::Balancer;
use crate::events::{Event, Events};
use crate::law::{Aftermath, Laws};
use crate::link::Carries;
use crate::oracle::{Beginning, Believed, Judged, KINDS, Law, Oracle};
use crate::plan::World as Shape;
use crate::proof::ProofOracle;
use crate::report::SimulationReport;
use crate::second::Second;
use crate::service::{ServiceAnswer, ServiceBeginning, ServiceOracle};
use crate::silence::Silence;
use crate::site::{NODE, Site};
use crate::trace::{Trace, note};
use crate::truth::Truth;
use fastrand::Rng;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::task::LocalSet;
use tokio::time::sleep_until;

/// Episodes in one world.
pub(crate) const EPISODES: u64 = 10;
/// Simulated time begins here.
const BEGINNING: Duration = Duration::from_hours(500_000);
/// A new watch brings the heartbeat back. Without one the agent asks every 12.9 s: 28 times.
const HEARTBEAT_LOST: (Duration, u64) = (Duration::from_mins(6), 20);
/// The agent is over an outage after this time.
const STEADY: Duration = Duration::from_mins(10);
/// It replaces the watches beside a silent Lease ever more rarely, down to one in 30 min after 24 s, 48 s and
/// so on, which are 51 min. The first time may be 11 min after a Lease that was forbidden.
const STEADY_BESIDE_A_SILENT_LEASE: Duration = Duration::from_mins(65);
const LEASE_RENEWAL: Duration = Duration::from_secs(10);

/// What came of a seed.
#[derive(Debug)]
pub struct EpisodeOutcome {
    /// The seed.
    pub seed: u64,
    /// The hash of the trace.
    pub hash: u64,
    /// What the agent did that it must not, if anything.
    pub violation: Option<String>,
    /// What was counted.
    pub report: SimulationReport,
}

/// Runs a seed's world; with `shown`, its trace is printed as it goes.
pub fn run(seed: u64, shown: bool) -> EpisodeOutcome {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without sockets");
    LocalSet::new().block_on(&runtime, async {
        nodegate_clock::set_wall(UNIX_EPOCH + BEGINNING);
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

/// When each of those who act has their next turn.
pub(crate) struct Schedule {
    event: Instant,
    probe: Instant,
    renewal: Instant,
    noise: Instant,
    pub(crate) strangers: Instant,
}

/// An agent that has started while another one answers.
pub(crate) struct Successor {
    pub(crate) agent: SimulatedAgent,
    pub(crate) beginning: Beginning,
    pub(crate) service_beginning: ServiceBeginning,
}

/// A world under way.
pub(crate) struct RunningWorld {
    pub(crate) shape: Shape,
    pub(crate) random: Rng,
    pub(crate) site: Site,
    pub(crate) agent: SimulatedAgent,
    pub(crate) oracle: Oracle,
    pub(crate) services: ServiceOracle,
    pub(crate) proof: ProofOracle,
    /// What holds now.
    pub(crate) law: Laws,
    /// The law that the last episode leaves behind.
    pub(crate) aftermath: Aftermath,
    /// When a fault last began or ended.
    pub(crate) last_edge: Instant,
    pub(crate) balancer: Balancer,
    pub(crate) second: Option<Second>,
    pub(crate) silence: Silence,
    pub(crate) events: Events,
    pub(crate) truth: Truth,
    /// What the Node was when etcd was last copied.
    pub(crate) truth_of_backup: Truth,
    pub(crate) trace: Trace,
    pub(crate) report: SimulationReport,
    pub(crate) event_every: Duration,
    pub(crate) turns: Schedule,
    written: u64,
    last_answer: String,
    last_service: Option<ServiceAnswer>,
    /// An agent that is to take the place of this one when it listens.
    pub(crate) successor: Option<Successor>,
    pub(crate) listens: bool,
    /// Whether the agent gets no turn, and since when that is so or not.
    pub(crate) starved: (bool, Instant),
}

impl RunningWorld {
    fn begin(seed: u64, trace: Trace) -> Self {
        let mut random = Rng::with_seed(seed);
        let shape = Shape::draw(&mut random);
        note!(trace, "seed {seed}: {shape:?}");
        let site = Site::new(&shape, &trace);
        let agent = SimulatedAgent::start(&shape, &site.network, &trace, SimulatedPast::default());
        let truth = Truth::healthy();
        let now = nodegate_clock::now();
        Self {
            oracle: Oracle::new(shape.on_stale, &truth),
            services: ServiceOracle::new(shape.on_stale),
            proof: ProofOracle::default(),
            law: Laws::BEGINNING,
            aftermath: Aftermath::NONE,
            last_edge: now,
            balancer: Balancer::new(now, None),
            second: random.bool().then(|| Second::draw(&mut random)),
            events: Events::new(random.u64(..)),
            silence: Silence::new(shape.unknown_after),
            turns: Schedule { event: now, probe: now, renewal: now, noise: now, strangers: now },
            report: SimulationReport::default(),
            event_every: Duration::from_secs(5),
            written: 0,
            last_answer: String::new(),
            last_service: None,
            successor: None,
            listens: false,
            starved: (false, now),
            shape,
            random,
            site,
            agent,
            truth_of_backup: truth.clone(),
            truth,
            trace,
        }
    }

    async fn go(&mut self) -> Result<(), String> {
        self.pass(STARTUP_GRACE).await?;
        if !self.opens()? {
            return Err("no first list within the grace".to_owned());
        }
        self.law = Laws::FAIR;
        for number in 0..EPISODES {
            note!(self.trace, "EPISODE {number}");
            self.episode().await?;
            self.law = Laws::FAIR;
            self.report.episodes += 1;
        }
        if !self.shape.service && self.random.u32(..20) == 0 {
            self.idle_hour().await?;
        }
        Ok(())
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, time: Duration) -> Result<(), String> {
        let end = nodegate_clock::now() + time;
        loop {
            let turns = &self.turns;
            let next = turns.event.min(turns.probe).min(turns.renewal).min(turns.noise).min(end);
            let next = next.min(turns.strangers);
            let next = self.second.as_ref().map_or(next, |second| next.min(second.next));
            sleep_until(next.into()).await;
            let now = nodegate_clock::now();
            if now >= end {
                return Ok(());
            }
            self.act(now)?;
        }
    }

    fn act(&mut self, now: Instant) -> Result<(), String> {
        if now >= self.turns.renewal {
            self.site.renew();
            self.turns.renewal = now + LEASE_RENEWAL.mul_f64(1.0 + 0.04 * self.random.f64());
        }
        if now >= self.turns.noise {
            self.write();
            self.turns.noise = now + self.shape.noise_every.mul_f64(0.5 + self.random.f64());
        }
        if now >= self.turns.event {
            let event = self.events.next(&self.truth);
            self.perform(&event);
            self.turns.event = now + self.event_every.mul_f64(0.2 + 1.6 * self.random.f64());
        }
        self.services.changed(self.site.endpoints);
        if self.second.as_ref().is_some_and(|second| now >= second.next) {
            self.second_asks();
        }
        if now >= self.turns.strangers {
            self.strangers_ask(now);
        }
        if now >= self.turns.probe {
            let range = if self.shape.strangers.forge() { 190..210 } else { 150..900 };
            self.turns.probe = now + Duration::from_millis(self.random.u64(range));
            self.probe()?;
        }
        Ok(())
    }

    /// Another node writes, and the Service's endpoints change.
    pub(crate) fn write(&mut self) {
        self.written += 1;
        self.site.noise(self.written);
    }

    /// Lets an event happen. Gives the number of the Node's state.
    pub(crate) fn perform(&mut self, event: &Event) -> usize {
        note!(self.trace, "event: {event:?}");
        self.truth = event.after(&self.truth);
        event.perform(self.site.sim(), NODE);
        self.oracle.changed(&self.truth)
    }

    /// A load balancer asks.
    pub(crate) fn probe(&mut self) -> Result<(), String> {
        self.is_well()?;
        if !self.opens()? {
            return Ok(());
        }
        let law = self.law_now();
        let proof = self.agent.last_proof();
        let read = self.site.network.asked().last_consistent_read;
        let (mut fresh, mut stale, mut out, mut health_out) = (true, false, false, false);
        for (number, kind) in KINDS.into_iter().enumerate() {
            let answer = self.agent.ask(kind);
            let judged = self.oracle.judge(number, &answer, law, nodegate_clock::now())?;
            if let (Judged::Fresh, Some(proof)) = (judged, proof) {
                self.oracle.judge_date(number, &answer, law, proof)?;
            }
            if number == 0 {
                self.proof.node(judged, proof, read)?;
                health_out = answer.takes_out();
            }
            fresh &= judged == Judged::Fresh;
            stale |= judged == Judged::Stale;
            self.report.answers += 1;
            self.report.stale += u64::from(judged == Judged::Stale);
            out |= answer.takes_out();
            self.balancer.heard(number, answer.takes_out());
            if number == 0 && self.last_answer != answer.text() {
                self.last_answer = answer.text();
                note!(self.trace, "answer, {judged:?}: {}", self.last_answer);
            }
        }
        if self.shape.service {
            let unseen = self.law.service_unseen.max(self.aftermath.service_unseen());
            let stale_allowed = self.law.service_stale_allowed;
            let law = Law { unseen, stale_allowed, dates_are_exact: false, believed: Believed::EITHER };
            let answer = self.agent.ask_for_service();
            if self.last_service != Some(answer) {
                self.last_service = Some(answer);
                note!(self.trace, "Service: {answer:?}, in truth {}", self.site.endpoints);
            }
            self.services.judge(answer, law)?;
            self.proof.service(answer.stale, read)?;
        }
        // Dear to ask for. While nothing takes the node out nothing is told, and a look now and then is
        // enough.
        if out || self.report.answers.is_multiple_of(8) {
            let (drain, turned) = (self.agent.drain(health_out)?, self.agent.turned());
            if stale && drain.as_ref().and_then(|drain| drain.told) == Some(true) {
                return Err("told, while the cache is stale".to_owned());
            }
            self.report.told += u64::from(self.balancer.judge(
                drain.as_ref(),
                turned,
                fresh,
                self.second.as_ref(),
                self.shape.strangers.forge(),
            )?);
        }
        Ok(())
    }

    /// The second balancer's turn. Its answer is one that the first is judged by.
    fn second_asks(&mut self) {
        let Some(second) = &mut self.second else { return };
        if second.turn(&mut self.random) && self.listens {
            let answer = self.agent.ask_as_second();
            second.heard(answer.takes_out(), self.agent.turned());
        }
    }

    /// What holds for the answers of now: proof that has been to be had for long enough is there.
    fn law_now(&self) -> Law {
        let since = nodegate_clock::now().saturating_duration_since(self.last_edge);
        let attempts = self.site.attempts_until_proof();
        let late =
            |patience: Duration| attempts.is_some_and(|attempts| since > patience.saturating_mul(attempts));
        let stale_allowed = self.law.stale_allowed.is_some_and(|patience| !late(patience));
        let unseen = self.law.unseen.max(self.aftermath.unseen());
        // A fault may hide from the agent what the Node was before.
        let fair = unseen <= Laws::FAIR.unseen;
        let believed = if fair { self.silence.believed() } else { Believed::EITHER };
        Law { unseen, stale_allowed, dates_are_exact: self.law.dates_are_exact, believed }
    }

    /// The server loses the Lease's stream, and the agent looks for a heartbeat that is still there.
    async fn heartbeat_lost(&mut self) -> Result<(), String> {
        note!(self.trace, "HEARTBEAT LOST");
        self.site.network.lose_streams(Carries::Leases);
        let before = self.site.network.asked().requests;
        self.pass(HEARTBEAT_LOST.0).await?;
        let requests = self.site.network.asked().requests - before;
        if requests > HEARTBEAT_LOST.1 {
            return Err(format!(
                "{requests} requests in {:?} after the Lease's stream was lost",
                HEARTBEAT_LOST.0
            ));
        }
        Ok(())
    }

    /// Nothing happens but what always does: what does that cost?
    async fn idle_hour(&mut self) -> Result<(), String> {
        note!(self.trace, "IDLE HOUR");
        self.event_every = Duration::from_hours(10);
        self.turns.event = nodegate_clock::now() + self.event_every;
        if self.random.u32(..3) == 0 {
            note!(self.trace, "the kubelet is dead");
            self.site.kubelet_is_cut_off = true;
        }
        // What follows an outage is over: the bar is one of the steady state.
        let silent = self.shape.leases && !self.site.renews();
        self.pass(if silent { STEADY_BESIDE_A_SILENT_LEASE } else { STEADY }).await?;
        self.site.network.mark();
        let before = self.site.network.asked();
        self.pass(Duration::from_hours(1)).await?;
        let after = self.site.network.asked();
        let (requests, most) = (after.requests - before.requests, after.most_open);
        let lease_speaks = self.shape.leases && !self.site.clock_was_set_back && self.site.renews();
        let bar = if lease_speaks { 60 } else { 300 };
        self.report.idle(lease_speaks, requests);
        if requests >= bar {
            return Err(format!("{requests} requests in an idle hour, which are not fewer than {bar}"));
        }
        if most > 3 {
            return Err(format!("{most} connections"));
        }
        if lease_speaks { self.heartbeat_lost().await } else { Ok(()) }
    }
}
