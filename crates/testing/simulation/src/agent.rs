//! The agent under test: all of `crates/agent` except sockets, threads and files.

use crate::cluster::NODE;
use crate::network::Network;
use crate::oracle::SimulatedAnswer;
use crate::plan::WorldSettings;
use crate::trace::{Trace, note};
use bytes::Bytes;
use futures::FutureExt;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_agent::{AgentSettings, AssembledAgent, Environment, LastKnownSources};
use nodegate_agent_api::{DrainStatus, Predecessor};
use nodegate_kube_sim::Observed;
use nodegate_local_checks::LocalChecks;
use nodegate_node_watch::{Connector, Transitions};
use nodegate_readiness::{Catalog, Moment, Verdict};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinSet};

const BALANCER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// The Service that some agents watch.
const SERVICE: &str = "default/web";

/// A running agent. Drop stops it.
pub(crate) struct SimulatedAgent {
    agent: Arc<AssembledAgent>,
    background: AbortHandle,
    _tasks: JoinSet<()>,
    starved: Observed<bool>,
    last_pool_change: Arc<Mutex<Instant>>,
    /// The time before which the agent must not listen unless the API server has answered.
    must_not_open_before: Instant,
}

/// An agent without a predecessor and without a file of its own.
struct NoSources;

impl LastKnownSources for NoSources {
    async fn predecessor(&self, _: &str) -> Result<Option<Predecessor>, String> {
        Ok(None)
    }

    async fn recorded(&self, _: &str) -> Result<Option<Predecessor>, String> {
        Ok(None)
    }
}

impl SimulatedAgent {
    pub(crate) fn start(world: &WorldSettings, network: &Network, trace: &Trace) -> Self {
        let services = world.service.then(|| SERVICE.parse().expect("a Service's name"));
        let services = services.into_iter().collect();
        let catalog = Catalog::new(LocalChecks::none().for_catalog()).with_services(services);
        let settings = AgentSettings { policy: world.policy(), ..AgentSettings::new(NODE, catalog) };
        Self::start_with(settings, network, trace)
    }

    pub(crate) fn start_with(settings: AgentSettings, network: &Network, trace: &Trace) -> Self {
        let starved = Observed::new(false);
        let local_checks = LocalChecks::none();
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
        let (opens, lets_run) = (agent.clone(), starved.clone());
        let mut tasks = JoinSet::new();
        let background = tasks
            .spawn_local(async move { lets_run.run_while(|starved| !starved, Box::pin(background)).await });
        tasks.spawn_local(async move {
            opens.prepare(&NoSources).await;
            opens.open();
        });
        let stale_after = agent.board.policy().stale_after;
        Self {
            agent,
            background,
            _tasks: tasks,
            starved,
            last_pool_change,
            must_not_open_before: nodegate_clock::now() + stale_after,
        }
    }

    fn now(&self) -> Moment {
        self.agent.timeline.at(nodegate_clock::now())
    }

    fn instant(&self, moment: Option<Moment>) -> Option<Instant> {
        nodegate_clock::now().checked_sub(self.now().since(moment?))
    }

    /// Returns the time at which the agent opened its ports, or `None` if it has not.
    pub(crate) fn opened(&self) -> Option<Instant> {
        self.instant(self.agent.board.opened())
    }

    /// Checks that the agent was allowed to open its ports at `opened`. The error says why it was not.
    pub(crate) fn opens_in_time(&self, opened: Instant) -> Result<(), String> {
        if self.agent.board.last_proof().is_some() || opened >= self.must_not_open_before {
            return Ok(());
        }
        let early = (self.must_not_open_before - opened).as_secs_f64();
        Err(format!("listens {early:.1} s too early, without the API server's answer"))
    }

    /// Sets whether the agent gets CPU time. A starved agent only answers.
    pub(crate) fn starve(&self, starved: bool) {
        self.starved.modify(|now| *now = starved);
    }

    /// Returns the date of the last proof, or `None` before the first one.
    pub(crate) fn last_proof(&self) -> Option<Instant> {
        self.instant(self.agent.board.last_proof())
    }

    pub(crate) fn transitions(&self) -> Arc<Transitions> {
        self.agent.watch_metrics.transitions.clone()
    }

    /// Returns the number of the Service's endpoints in a fresh answer, or `None` if the answer is stale.
    pub(crate) fn ask_for_service(&self) -> Option<u64> {
        let read = |path: &str| -> Value { serde_json::from_slice(&self.ask(path).body).expect("JSON") };
        let check = &read(&format!("/health?check=service:{SERVICE}"))["checks"][0];
        let count = read(&format!("/services/{SERVICE}"))["localEndpoints"].as_u64().expect("a number");
        (check["stale"] != true).then_some(count)
    }

    /// Returns true if the agent has listed instead of watching, because no watch lasted.
    pub(crate) fn has_listed_instead(&self) -> bool {
        self.ask("/metrics").text().contains("reason=\"relist\"")
    }

    pub(crate) fn ask(&self, path: &str) -> SimulatedAnswer {
        let request = Request::get(path).body(Empty::<Bytes>::new()).expect("a request");
        let answered = self.agent.app.respond_to(request, self.now(), BALANCER).now_or_never();
        let Some(response) = answered else { panic!("{path} is answered from memory") };
        let status = response.status().as_u16();
        let body = response.into_body().collect().now_or_never().expect("a body at hand");
        SimulatedAnswer { status, body: body.expect("no client delays it").to_bytes() }
    }

    /// Returns the drain status. The error says that it contradicts itself: its verdict takes the node out exactly if `out` is
    /// true, and is that of its last flip.
    pub(crate) fn drain(&self, out: bool) -> Result<DrainStatus, String> {
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

    /// Checks the agent's tasks. The error says what is wrong.
    pub(crate) fn is_well(&self) -> Result<(), String> {
        self.agent.liveness.check(self.now())?;
        if self.background.is_finished() { Err("the background tasks have ended".to_owned()) } else { Ok(()) }
    }
}
