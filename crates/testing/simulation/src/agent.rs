//! The agent under test: all of `crates/agent` but its sockets, its threads and its file.
//!
//! A simulated past stands in for the agents before it, a simulated network for the API server's, and a
//! simulated check for the kubelet.

use crate::network::Network;
use crate::plan::World;
use crate::service::ServiceAnswer;
use crate::site::NODE;
use crate::trace::{Trace, note};
use crate::truth::{ProbeKind, SimulatedAnswer};
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_agent::{AgentSettings, AssembledAgent, Environment, LastKnownSources};
use nodegate_kube_sim::Observed;
use nodegate_local_checks::{Check, KnownNode, LocalChecks, Run, Timing};
use nodegate_node_watch::{Connector, Transitions};
use nodegate_readiness::probers::{DrainStatus, Handover};
use nodegate_readiness::unconfirmed::KUBELET;
use nodegate_readiness::{Catalog, Memory, Moment, Outcome, Policy, Verdict};
use serde_json::Value;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_local};

/// Who asks.
const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const SECOND_BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// A clock that is set back while the memory is handed over makes it look younger by so much at most.
const SET_BACK: Duration = Duration::from_secs(2);
/// The interval and the timeout of the check that decides about a `Ready=Unknown`.
pub(crate) const KUBELET_ASKED_EVERY: Duration = Duration::from_secs(1);
/// The time that an agent waits for the API server soon after another one answered.
pub(crate) const STARTUP_GRACE: Duration = Duration::from_secs(1);
/// From when a predecessor is asked to when the ports open: the kubelet's first result and two more answers.
const ASKED_WITHIN: Duration = Duration::from_secs(4);
/// A Service that some agents watch.
const SERVICE: &str = "default/web";

/// A running agent; gone when dropped.
pub(crate) struct SimulatedAgent {
    agent: Arc<AssembledAgent>,
    background: JoinHandle<()>,
    opening: JoinHandle<()>,
    starved: Observed<bool>,
    /// When its verdict last went to Ready or from there.
    turned: Arc<Mutex<Instant>>,
    kubelet_answers: Arc<AtomicBool>,
    /// Until then it may not listen unless the API server has answered.
    patient_until: Instant,
    /// How old the facts were that it can take over from a file, and when that was.
    recorded: Option<(Duration, Instant)>,
}

/// How an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// It crashes, and has written down what it knew, or not.
    Crash { remembers: bool },
    /// It answers until its successor does, as in a rollout with `maxSurge`.
    Replaced,
}

/// What an agent finds of those before it.
#[derive(Default)]
pub(crate) struct SimulatedPast {
    predecessor: Option<Arc<AssembledAgent>>,
    answered_recently: bool,
    recorded: Option<Vec<u8>>,
}

impl SimulatedPast {
    /// The body of `/status.json`, if the predecessor listens.
    async fn status(&self) -> Option<Bytes> {
        let agent = self.predecessor.as_ref().filter(|agent| agent.board.opened().is_some())?;
        let request = Request::get("/status.json").body(Empty::<Bytes>::new()).expect("a request");
        let now = agent.timeline.at(nodegate_clock::now());
        let Ok(response) = agent.app.respond_to(request, now, Ipv4Addr::LOCALHOST.into()).await;
        Some(response.into_body().collect().await.expect("a body").to_bytes())
    }
}

impl LastKnownSources for SimulatedPast {
    type Error = Infallible;

    async fn answered_recently(&self) -> bool {
        self.answered_recently
    }

    async fn predecessor(&self) -> Result<Option<Memory>, Infallible> {
        Ok(self.status().await.map(|status| Memory::parse(&status).expect("an agent's status")))
    }

    async fn probers(&self, node: &str) -> Result<Option<Handover>, Infallible> {
        let status = self.status().await;
        Ok(status.and_then(|status| Handover::parse(&status, node).expect("an agent's status")))
    }

    async fn recorded(&self) -> Result<Option<Memory>, Infallible> {
        Ok(self.recorded.as_ref().map(|json| Memory::parse(json).expect("an agent's file")))
    }
}

/// The kubelet's health endpoint.
struct SimulatedKubelet {
    answers: Arc<AtomicBool>,
    /// No check runs while the agent gets no turn.
    starved: Observed<bool>,
}

impl Check for SimulatedKubelet {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            self.starved.until(|starved| (!starved).then_some(())).await;
            if self.answers.load(Ordering::Relaxed) {
                Outcome::Pass
            } else {
                Outcome::fail("ConnectionRefused")
            }
        })
    }
}

impl SimulatedAgent {
    pub(crate) fn start(world: &World, network: &Network, trace: &Trace, past: SimulatedPast) -> Self {
        let starved = Observed::new(false);
        let kubelet_answers = Arc::new(AtomicBool::new(true));
        let kubelet = SimulatedKubelet { answers: kubelet_answers.clone(), starved: starved.clone() };
        let timing = Timing::new(KUBELET_ASKED_EVERY, KUBELET_ASKED_EVERY);
        let local_checks = LocalChecks::none().with(KUBELET, timing, Arc::new(kubelet));
        let services = world.service.then(|| SERVICE.parse().expect("a Service's name"));
        let catalog = Catalog::new(local_checks.for_catalog()).with_services(services.into_iter().collect());
        let policy =
            Policy { on_stale: world.on_stale, unknown_after: world.unknown_after, ..Policy::default() };
        let settings = AgentSettings {
            policy,
            probers: world.strangers.settings(),
            ..AgentSettings::new(NODE, catalog)
        };
        let turned = Arc::new(Mutex::new(nodegate_clock::now()));
        let (flips, turns) = (trace.clone(), turned.clone());
        let on_flip = move |flip: &nodegate_readiness::Flip| {
            if (flip.from == Verdict::Ready) != (flip.to == Verdict::Ready) {
                *turns.lock().unwrap_or_else(PoisonError::into_inner) = nodegate_clock::now();
            }
            note!(flips, "flip: {} to {}, {}", flip.from, flip.to, flip.reason.as_str());
        };
        let network = network.clone();
        let environment = Environment {
            started: nodegate_clock::now(),
            connector: Connector::Simulated(Arc::new(move || network.client())),
            local_checks,
            on_flip: Box::new(on_flip),
        };
        let (agent, background) = AssembledAgent::new(settings, environment, &Handle::current());
        let agent = Arc::new(agent);
        let opens = agent.clone();
        let alone = past.predecessor.is_none() && !past.answered_recently;
        let patience = if alone { agent.board.policy().stale_after } else { STARTUP_GRACE };
        Self {
            agent,
            background: spawn_local(in_its_turns(background.run(), starved.clone())),
            opening: spawn_local(async move {
                opens.prepare(&past).await;
                opens.open();
            }),
            starved,
            turned,
            kubelet_answers,
            patient_until: nodegate_clock::now() + patience,
            recorded: None,
        }
    }

    /// Starts the agent after this one.
    pub(crate) fn successor(
        &self,
        world: &World,
        network: &Network,
        trace: &Trace,
        restart: Restart,
    ) -> Self {
        let memory = self.agent.board.memory(self.now());
        let remembers = restart == (Restart::Crash { remembers: true }) && self.opened().is_some();
        let usable = remembers && memory.knows_something();
        let json = || serde_json::to_vec(&memory.written_at(nodegate_clock::wall())).expect("a memory");
        let past = SimulatedPast {
            predecessor: (restart == Restart::Replaced).then(|| self.agent.clone()),
            answered_recently: remembers,
            recorded: usable.then(json),
        };
        let age = self.agent.board.freshness(self.now()).age.filter(|_| usable);
        let mut successor = Self::start(world, network, trace, past);
        successor.kubelet_answers(self.kubelet_answers.load(Ordering::Relaxed));
        successor.starve(self.starved.read(bool::clone));
        successor.recorded = age.map(|age| (age, nodegate_clock::now()));
        successor
    }

    fn now(&self) -> Moment {
        self.agent.timeline.at(nodegate_clock::now())
    }

    /// Returns when it opened its ports, if it has.
    pub(crate) fn opened(&self) -> Option<Instant> {
        let ago = self.now().since(self.agent.board.opened()?);
        nodegate_clock::now().checked_sub(ago)
    }

    /// Returns what is wrong with its opening its ports then, beside this predecessor, if anything.
    pub(crate) fn opens_in_time(&self, opened: Instant, beside: Option<&Self>) -> Result<(), String> {
        if self.agent.board.last_proof().is_some() {
            return Ok(());
        }
        if opened < self.patient_until {
            let early = (self.patient_until - opened).as_secs_f64();
            return Err(format!("listens {early:.1} s too early, without the API server's answer"));
        }
        // It may have asked before the last seconds' proof came.
        let last = |agent: &Self| agent.agent.board.last_proof().map(|proof| agent.age(proof, opened));
        match beside.and_then(last).flatten() {
            Some(age) if (ASKED_WITHIN..self.agent.board.policy().stale_after).contains(&age) => {
                Err(format!("takes the place of an agent whose proof is {age:?} old, and has none"))
            }
            _ => Ok(()),
        }
    }

    /// Returns how old a moment was then; `None` if it came later.
    fn age(&self, moment: Moment, then: Instant) -> Option<Duration> {
        let then = self.agent.timeline.at(then);
        (moment <= then).then(|| then.since(moment))
    }

    /// Whether all that it knows is what its predecessor knew.
    pub(crate) fn has_only_taken_over(&self) -> bool {
        self.agent.board.has_only_taken_over()
    }

    /// What it gets no turn for: everything but its answers.
    pub(crate) fn starve(&self, starved: bool) {
        self.starved.modify(|now| *now = starved);
    }

    /// Its check of the kubelet passes from now on, or fails.
    pub(crate) fn kubelet_answers(&self, answers: bool) {
        self.kubelet_answers.store(answers, Ordering::Relaxed);
    }

    /// Returns the date of its last proof.
    pub(crate) fn last_proof(&self) -> Option<Instant> {
        let ago = self.now().since(self.agent.board.last_proof()?);
        nodegate_clock::now().checked_sub(ago)
    }

    /// The ways that its freshness has gone.
    pub(crate) fn transitions(&self) -> Arc<Transitions> {
        self.agent.watch_metrics.transitions()
    }

    /// Whether its last proof is from after this.
    pub(crate) fn has_proof_since(&self, instant: Instant) -> bool {
        self.agent.board.last_proof().is_some_and(|proof| proof >= self.agent.timeline.at(instant))
    }

    /// What it answers a load balancer now.
    pub(crate) fn ask(&self, kind: ProbeKind) -> SimulatedAnswer {
        self.ask_as(BALANCER, kind)
    }

    /// What it answers the second load balancer now.
    pub(crate) fn ask_as_second(&self) -> SimulatedAnswer {
        self.ask_as(SECOND_BALANCER, ProbeKind::Health)
    }

    pub(crate) fn ask_as(&self, peer: IpAddr, kind: ProbeKind) -> SimulatedAnswer {
        let path = match kind {
            ProbeKind::Health | ProbeKind::AgentCheck => "/health",
            ProbeKind::Drain => "/health?drain=404",
            ProbeKind::NodeCheck => "/nodecheck",
            ProbeKind::Conditions => "/health?check=node_ready,custom_conditions",
        };
        if kind == ProbeKind::AgentCheck {
            let line = self.agent.app.respond_to_agent_check(peer, b"").now_or_never();
            return SimulatedAnswer::new(0, &line.expect("an agent-check is answered from memory"));
        }
        self.get(peer, path)
    }

    /// What it answers of its Service now.
    pub(crate) fn ask_for_service(&self) -> ServiceAnswer {
        let read =
            |path: &str| -> Value { serde_json::from_slice(&self.get(BALANCER, path).body).expect("JSON") };
        let check = &read(&format!("/health?check=service:{SERVICE}"))["checks"][0];
        ServiceAnswer {
            local_endpoints: read(&format!("/services/{SERVICE}"))["localEndpoints"]
                .as_u64()
                .expect("a number") as usize,
            passed: check["passed"] == true,
            stale: check["stale"] == true,
        }
    }

    fn get(&self, peer: IpAddr, path: &str) -> SimulatedAnswer {
        let request = Request::get(path).body(Empty::<Bytes>::new()).expect("a request");
        let answered = self.agent.app.respond_to(request, self.now(), peer).now_or_never();
        let Some(Ok(response)) = answered else { panic!("{path} is answered from memory") };
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().expect("a body at hand");
        let body = body.expect("it is sent to nobody, and so in time").to_bytes();
        SimulatedAnswer { status, body: body.to_vec().into() }
    }

    /// What it says of who asks, and of a drain. Its verdict must be the one that takes the node out, or not,
    /// and the one that its last flip led to: an answer has no fields of two moments.
    pub(crate) fn drain(&self, out: bool) -> Result<Option<DrainStatus>, String> {
        let status = self.agent.app.status(self.now());
        let (verdict, flip) = (status.verdict, status.flips.first().map(|flip| flip.to));
        if verdict.is_some_and(|verdict| (verdict != Verdict::Ready) != out) {
            return Err(format!("the status says {verdict:?} when /health says otherwise"));
        }
        if flip.is_some() && flip != verdict {
            return Err(format!("the status says {verdict:?}, and its last flip {flip:?}"));
        }
        Ok(status.drain)
    }

    /// When its verdict last went to Ready or from there.
    pub(crate) fn turned(&self) -> Instant {
        *self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is wrong with its tasks, or with what it has taken over, if anything.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        self.keeps_the_date()?;
        self.agent.liveness.check(self.now()).map_err(|stuck| stuck.to_string())?;
        if self.background.is_finished() { Err("the background tasks have ended".to_owned()) } else { Ok(()) }
    }

    /// What was taken over is as old as it is.
    fn keeps_the_date(&self) -> Result<(), String> {
        let Some((age, at)) = self.recorded.filter(|_| self.has_only_taken_over()) else { return Ok(()) };
        let least = (age + nodegate_clock::now().saturating_duration_since(at)).saturating_sub(SET_BACK);
        match self.agent.board.freshness(self.now()).age {
            Some(told) if told < least => Err(format!("{told:?} old is what it took over at {least:?}")),
            _ => Ok(()),
        }
    }
}

/// Polls the work in its turns only: not while the agent is starved.
async fn in_its_turns(work: impl Future<Output = ()>, starved: Observed<bool>) {
    let mut work = std::pin::pin!(work);
    loop {
        starved.until(|starved| (!starved).then_some(())).await;
        tokio::select! {
            biased;
            () = starved.until(|starved| starved.then_some(())) => {}
            () = &mut work => return,
        }
    }
}

impl Drop for SimulatedAgent {
    fn drop(&mut self) {
        self.background.abort();
        self.opening.abort();
    }
}
