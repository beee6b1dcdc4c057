//! Runs the agent under test: all of `crates/agent` except sockets, threads and files. Predecessors, network
//! and kubelet are simulated. `world.rs` starts it; `succession.rs` replaces it.

use crate::cluster::NODE;
use crate::network::Network;
use crate::plan::WorldSettings;
use crate::service::ServiceAnswer;
use crate::trace::{Trace, note};
use crate::truth::{ProbeKind, SimulatedAnswer};
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_agent::{AgentSettings, AssembledAgent, Environment, LastKnownSources};
use nodegate_kube_sim::Observed;
use nodegate_local_checks::LocalChecks;
use nodegate_node_watch::{Connector, Transitions};
use nodegate_readiness::probers::{DrainStatus, Handover};
use nodegate_readiness::{Catalog, Memory, Moment, Policy, Verdict};
use serde_json::Value;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_local};

/// The address of the load balancer.
const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// The most by which a clock that is set back during the handover makes the last known facts look younger.
const SET_BACK: Duration = Duration::from_secs(2);
/// The time that an agent waits for the API server soon after another one answered.
pub(crate) const STARTUP_GRACE: Duration = Duration::from_secs(1);
/// The longest time from the request to the predecessor until the ports open.
const ASKED_WITHIN: Duration = Duration::from_secs(4);
/// The Service that some agents watch.
const SERVICE: &str = "default/web";

/// A running agent. Drop stops it.
pub(crate) struct SimulatedAgent {
    agent: Arc<AssembledAgent>,
    background: JoinHandle<()>,
    opening: JoinHandle<()>,
    starved: Observed<bool>,
    /// The time at which the verdict last became Ready or stopped being Ready.
    last_pool_change: Arc<Mutex<Instant>>,
    /// The time before which the agent must not listen unless the API server has answered.
    must_not_open_before: Instant,
    /// The age of the facts in the file at the start of this agent, and the time of that start.
    recorded: Option<(Duration, Instant)>,
}

/// The way in which an agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// A crash; `remembers` is whether a file with its facts is left.
    Crash { remembers: bool },
    /// A replacement: the agent answers until its successor does, as in a rollout with `maxSurge`.
    Replaced,
}

/// The facts that an agent finds from its predecessors.
#[derive(Default)]
pub(crate) struct SimulatedSources {
    predecessor: Option<Arc<AssembledAgent>>,
    answered_recently: bool,
    recorded: Option<Vec<u8>>,
}

impl SimulatedSources {
    /// Returns the body of `/status.json`, or `None` if no predecessor listens.
    async fn status(&self) -> Option<Bytes> {
        let agent = self.predecessor.as_ref().filter(|agent| agent.board.opened().is_some())?;
        let request = Request::get("/status.json").body(Empty::<Bytes>::new()).expect("a request");
        let now = agent.timeline.at(nodegate_clock::now());
        let Ok(response) = agent.app.respond_to(request, now, Ipv4Addr::LOCALHOST.into()).await;
        Some(response.into_body().collect().await.expect("a body").to_bytes())
    }
}

impl LastKnownSources for SimulatedSources {
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

impl SimulatedAgent {
    pub(crate) fn start(
        world: &WorldSettings,
        network: &Network,
        trace: &Trace,
        sources: SimulatedSources,
    ) -> Self {
        let starved = Observed::new(false);
        let local_checks = LocalChecks::none();
        let services = world.service.then(|| SERVICE.parse().expect("a Service's name"));
        let catalog = Catalog::new(local_checks.for_catalog()).with_services(services.into_iter().collect());
        let policy = Policy { on_stale: world.on_stale, ..Policy::default() };
        let settings = AgentSettings { policy, ..AgentSettings::new(NODE, catalog) };
        let last_pool_change = Arc::new(Mutex::new(nodegate_clock::now()));
        let (flips, pool_change) = (trace.clone(), last_pool_change.clone());
        let on_flip = move |flip: &nodegate_readiness::Flip| {
            if (flip.from == Verdict::Ready) != (flip.to == Verdict::Ready) {
                *pool_change.lock().unwrap_or_else(PoisonError::into_inner) = nodegate_clock::now();
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
        let alone = sources.predecessor.is_none() && !sources.answered_recently;
        let startup_timeout = if alone { agent.board.policy().stale_after } else { STARTUP_GRACE };
        Self {
            agent,
            background: spawn_local(run_unless_starved(background.run(), starved.clone())),
            opening: spawn_local(async move {
                opens.prepare(&sources).await;
                opens.open();
            }),
            starved,
            last_pool_change,
            must_not_open_before: nodegate_clock::now() + startup_timeout,
            recorded: None,
        }
    }

    /// Starts the successor of this agent.
    pub(crate) fn successor(
        &self,
        world: &WorldSettings,
        network: &Network,
        trace: &Trace,
        restart: Restart,
    ) -> Self {
        let memory = self.agent.board.memory(self.now());
        let remembers = restart == (Restart::Crash { remembers: true }) && self.opened().is_some();
        let usable = remembers && memory.knows_something();
        let json = || serde_json::to_vec(&memory.written_at(nodegate_clock::wall())).expect("a memory");
        let sources = SimulatedSources {
            predecessor: (restart == Restart::Replaced).then(|| self.agent.clone()),
            answered_recently: remembers,
            recorded: usable.then(json),
        };
        let age = self.agent.board.freshness(self.now()).age.filter(|_| usable);
        let mut successor = Self::start(world, network, trace, sources);
        successor.starve(self.starved.read(bool::clone));
        successor.recorded = age.map(|age| (age, nodegate_clock::now()));
        successor
    }

    fn now(&self) -> Moment {
        self.agent.timeline.at(nodegate_clock::now())
    }

    /// Returns the time at which the agent opened its ports, or `None` if it has not.
    pub(crate) fn opened(&self) -> Option<Instant> {
        let ago = self.now().since(self.agent.board.opened()?);
        nodegate_clock::now().checked_sub(ago)
    }

    /// Checks that the agent was allowed to open its ports at `opened`, beside this predecessor. The error
    /// says why it was not.
    pub(crate) fn opens_in_time(&self, opened: Instant, beside: Option<&Self>) -> Result<(), String> {
        if self.agent.board.last_proof().is_some() {
            return Ok(());
        }
        if opened < self.must_not_open_before {
            let early = (self.must_not_open_before - opened).as_secs_f64();
            return Err(format!("listens {early:.1} s too early, without the API server's answer"));
        }
        // The agent may have asked before the proof of the last seconds came.
        let last = |agent: &Self| agent.agent.board.last_proof().map(|proof| agent.age(proof, opened));
        match beside.and_then(last).flatten() {
            Some(age) if (ASKED_WITHIN..self.agent.board.policy().stale_after).contains(&age) => {
                Err(format!("takes the place of an agent whose proof is {age:?} old, and has none"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the age that a moment had at `then`, or `None` if it came later.
    fn age(&self, moment: Moment, then: Instant) -> Option<Duration> {
        let then = self.agent.timeline.at(then);
        (moment <= then).then(|| then.since(moment))
    }

    /// Returns true if the agent has no facts except those of its predecessor.
    pub(crate) fn has_only_taken_over(&self) -> bool {
        self.agent.board.has_only_taken_over()
    }

    /// Sets whether the agent gets CPU time. A starved agent only answers.
    pub(crate) fn starve(&self, starved: bool) {
        self.starved.modify(|now| *now = starved);
    }

    /// Returns the date of the last proof, or `None` before the first one.
    pub(crate) fn last_proof(&self) -> Option<Instant> {
        let ago = self.now().since(self.agent.board.last_proof()?);
        nodegate_clock::now().checked_sub(ago)
    }

    /// Returns the transitions that the freshness state machine has taken.
    pub(crate) fn transitions(&self) -> Arc<Transitions> {
        self.agent.watch_metrics.transitions()
    }

    /// Returns true if the last proof is not older than this instant.
    pub(crate) fn has_proof_since(&self, instant: Instant) -> bool {
        self.agent.board.last_proof().is_some_and(|proof| proof >= self.agent.timeline.at(instant))
    }

    /// Returns the answer to a probe of the load balancer.
    pub(crate) fn ask(&self, kind: ProbeKind) -> SimulatedAnswer {
        let path = match kind {
            ProbeKind::Health | ProbeKind::AgentCheck => "/health",
            ProbeKind::Drain => "/health?drain=404",
            ProbeKind::NodeCheck => "/nodecheck",
            ProbeKind::Conditions => "/health?check=node_ready,custom_conditions",
        };
        if kind == ProbeKind::AgentCheck {
            let line = self.agent.app.respond_to_agent_check(BALANCER, b"").now_or_never();
            return SimulatedAnswer::new(0, &line.expect("an agent-check is answered from memory"));
        }
        self.get(path)
    }

    /// Returns the answers about the watched Service.
    pub(crate) fn ask_for_service(&self) -> ServiceAnswer {
        let read = |path: &str| -> Value { serde_json::from_slice(&self.get(path).body).expect("JSON") };
        let check = &read(&format!("/health?check=service:{SERVICE}"))["checks"][0];
        ServiceAnswer {
            local_endpoints: read(&format!("/services/{SERVICE}"))["localEndpoints"]
                .as_u64()
                .expect("a number") as usize,
            passed: check["passed"] == true,
            stale: check["stale"] == true,
        }
    }

    fn get(&self, path: &str) -> SimulatedAnswer {
        let request = Request::get(path).body(Empty::<Bytes>::new()).expect("a request");
        let answered = self.agent.app.respond_to(request, self.now(), BALANCER).now_or_never();
        let Some(Ok(response)) = answered else { panic!("{path} is answered from memory") };
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().expect("a body at hand");
        let body = body.expect("no client delays it").to_bytes();
        SimulatedAnswer { status, body: body.to_vec().into() }
    }

    /// Returns the drain status. The error says that the status contradicts itself: its verdict must take the
    /// node out exactly if `out` is true, and must be that of its last flip. An answer has no fields of two
    /// moments.
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

    /// Returns the time at which the verdict last became Ready or stopped being Ready.
    pub(crate) fn last_pool_change(&self) -> Instant {
        *self.last_pool_change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the agent's tasks and the age of the facts that it has taken over. The error says what is
    /// wrong.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        self.keeps_the_date()?;
        self.agent.liveness.check(self.now()).map_err(|stuck| stuck.to_string())?;
        if self.background.is_finished() { Err("the background tasks have ended".to_owned()) } else { Ok(()) }
    }

    /// Checks that facts that were taken over are not dated too late.
    fn keeps_the_date(&self) -> Result<(), String> {
        let Some((age, at)) = self.recorded.filter(|_| self.has_only_taken_over()) else { return Ok(()) };
        let least = (age + nodegate_clock::now().saturating_duration_since(at)).saturating_sub(SET_BACK);
        match self.agent.board.freshness(self.now()).age {
            Some(told) if told < least => Err(format!("{told:?} old is what it took over at {least:?}")),
            _ => Ok(()),
        }
    }
}

/// Polls the work, but not while the agent is starved.
async fn run_unless_starved(work: impl Future<Output = ()>, starved: Observed<bool>) {
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
