//! A seed's world: a cluster, an agent, whoever asks it, and time.

use crate::agent::{Agent, NODE};
use crate::balancer::Balancer;
use crate::events::{Event, Events};
use crate::oracle::{Judged, KINDS, Law, Oracle};
use crate::plan::World as Shape;
use crate::report::Report;
use crate::site::Site;
use crate::trace::{Trace, note};
use crate::truth::Truth;
use fastrand::Rng;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::task::LocalSet;
use tokio::time::sleep_until;

/// Episodes in one world.
pub(crate) const EPISODES: u64 = 10;
/// In fair weather a change is seen within this time: an event that is on its way, a watch that is being resumed.
const FAIR: Law = Law { unseen: Duration::from_secs(2), stale_allowed: false };
/// `--startup-grace`.
const STARTUP_GRACE: Duration = Duration::from_secs(1);
/// Simulated time begins here.
const BEGINNING: Duration = Duration::from_hours(500_000);
const LEASE_RENEWAL: Duration = Duration::from_secs(10);

/// What came of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The hash of the trace.
    pub hash: u64,
    /// What the agent did that it must not, if anything.
    pub violation: Option<String>,
    /// What was counted.
    pub report: Report,
}

/// Runs a seed's world; with `shown`, its trace is printed as it goes.
pub fn run(seed: u64, shown: bool) -> Outcome {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without sockets");
    LocalSet::new().block_on(&runtime, async {
        nodegate_clock::set_wall(UNIX_EPOCH + BEGINNING);
        let trace = Trace::new(shown);
        let mut run = Run::begin(seed, trace.clone());
        let ended = run.go().await;
        run.report.transitions(&run.agent.transitions());
        let at = trace.now().as_secs_f64();
        let violation = ended.err().map(|what| format!("at {at:.3} s: {what}"));
        if let Some(what) = &violation {
            note!(trace, "VIOLATION {what}");
        }
        Outcome { seed, hash: trace.hash(), violation, report: run.report }
    })
}

/// When each of those who act has their next turn.
struct Turns {
    event: Instant,
    probe: Instant,
    renewal: Instant,
    noise: Instant,
}

/// A world under way.
pub(crate) struct Run {
    pub(crate) shape: Shape,
    pub(crate) random: Rng,
    pub(crate) site: Site,
    pub(crate) agent: Agent,
    pub(crate) oracle: Oracle,
    balancer: Balancer,
    pub(crate) events: Events,
    pub(crate) truth: Truth,
    /// What the Node was when etcd was last copied.
    pub(crate) truth_of_backup: Truth,
    pub(crate) trace: Trace,
    pub(crate) report: Report,
    pub(crate) event_every: Duration,
    turns: Turns,
    written: u64,
    last_answer: String,
    /// The agent listens at its first list, or from then on.
    pub(crate) listens_from: Instant,
}

impl Run {
    fn begin(seed: u64, trace: Trace) -> Self {
        let mut random = Rng::with_seed(seed);
        let shape = Shape::draw(&mut random);
        note!(trace, "seed {seed}: {shape:?}");
        let site = Site::new(&shape, &trace);
        let agent = Agent::start(&shape, &site.network, &trace);
        let truth = Truth::healthy();
        let now = nodegate_clock::now();
        Self {
            oracle: Oracle::new(shape.on_stale, &truth, Law { stale_allowed: true, ..FAIR }),
            balancer: Balancer::new(),
            events: Events::new(random.u64(..)),
            turns: Turns { event: now, probe: now, renewal: now, noise: now },
            report: Report::default(),
            event_every: Duration::from_secs(5),
            written: 0,
            last_answer: String::new(),
            listens_from: now + STARTUP_GRACE,
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
        if !self.agent.is_synced() {
            return Err("no first list within the grace".to_owned());
        }
        self.oracle.law = FAIR;
        for number in 0..EPISODES {
            note!(self.trace, "EPISODE {number}");
            self.episode().await?;
            self.oracle.law = FAIR;
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
            self.written += 1;
            self.site.noise(self.written);
            self.turns.noise = now + self.shape.noise_every.mul_f64(0.5 + self.random.f64());
        }
        if now >= self.turns.event {
            let event = self.events.next(&self.truth);
            self.perform(&event);
            self.turns.event = now + self.event_every.mul_f64(0.2 + 1.6 * self.random.f64());
        }
        if now >= self.turns.probe {
            self.turns.probe = now + Duration::from_millis(self.random.u64(150..900));
            self.probe()?;
        }
        Ok(())
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
        self.agent.tick()?;
        if !self.agent.is_synced() && nodegate_clock::now() < self.listens_from {
            return Ok(());
        }
        for (number, kind) in KINDS.into_iter().enumerate() {
            let answer = self.agent.ask(kind);
            let judged = self.oracle.judge(number, &answer)?;
            self.report.answers += 1;
            self.report.stale += u64::from(judged == Judged::Stale);
            self.balancer.heard(number, answer.status);
            if number == 0 && self.last_answer != answer.text() {
                self.last_answer = answer.text();
                note!(self.trace, "answer, {judged:?}: {}", self.last_answer);
            }
        }
        self.report.told += u64::from(self.balancer.judge(self.agent.drain().as_ref())?);
        Ok(())
    }

    /// Another agent begins where this one was.
    pub(crate) fn restart_agent(&mut self) {
        self.report.transitions(&self.agent.transitions());
        self.agent = Agent::start(&self.shape, &self.site.network, &self.trace);
        self.oracle.forget();
        self.balancer = Balancer::new();
        self.listens_from = nodegate_clock::now() + STARTUP_GRACE;
    }

    /// Nothing happens but what always does: what does that cost?
    async fn idle_hour(&mut self) -> Result<(), String> {
        note!(self.trace, "IDLE HOUR");
        self.event_every = Duration::from_hours(10);
        self.turns.event = nodegate_clock::now() + self.event_every;
        // What follows an outage is over.
        self.pass(Duration::from_mins(10)).await?;
        self.site.network.mark();
        let before = self.site.network.asked();
        self.pass(Duration::from_hours(1)).await?;
        let after = self.site.network.asked();
        let (requests, most) = (after.requests - before.requests, after.most_open);
        let lease_speaks = self.shape.leases && !self.site.clock_was_set_back;
        let bar = if lease_speaks { 60 } else { 300 };
        self.report.idle(lease_speaks, requests);
        if requests > bar {
            return Err(format!("{requests} requests in an idle hour, of {bar}"));
        }
        if most > 3 {
            return Err(format!("{most} connections"));
        }
        Ok(())
    }
}
