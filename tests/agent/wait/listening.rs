//! An agent's server in this process that has already listened for a while, so that tests need not wait for
//! minutes.

use nodegate_agent::{AgentSettings, AssembledAgent, Environment};
use nodegate_readiness::{
    Begins, Board, Catalog, Condition, ConditionStatus, LocalCheck, Moment, Node, NodeFacts, Policy, Timeline,
};
use nodegate_server::{ProberSettings, ServeOptions, Sharing, bind, serve, serve_agent_check};
use nodegate_testbed::{NODE, http, waiting};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// The watched Service.
pub(super) const SERVICE: &str = "shop/web";

/// Long enough to know the probers.
const LISTENED: Duration = Duration::from_mins(5);

pub(super) struct Listening {
    board: Arc<Board>,
    timeline: Timeline,
    pub(super) address: SocketAddr,
    pub(super) agent_address: SocketAddr,
    /// True while the API server answers.
    proof: Arc<AtomicBool>,
    /// True while that is proof for [`SERVICE`], too.
    service_proof: Arc<AtomicBool>,
    _stop: watch::Sender<()>,
}

impl Listening {
    /// Starts a server on a ready node that has listened for minutes.
    pub(super) fn start(settings: ProberSettings) -> Self {
        Self::since(LISTENED, settings)
    }

    pub(super) fn since(listened: Duration, settings: ProberSettings) -> Self {
        let kubelet =
            LocalCheck { name: "kubelet".to_owned(), timeout: Duration::ZERO, begins: Begins::OnDemand };
        let settings = AgentSettings {
            policy: Policy { stale_after: Duration::from_secs(3), ..Policy::default() },
            probers: settings,
            ..AgentSettings::new(
                NODE,
                Catalog::new(vec![kubelet]).with_services(vec![SERVICE.parse().unwrap()]),
            )
        };
        let started = nodegate_clock::now().checked_sub(listened).unwrap();
        let environment = Environment { started, ..Environment::default() };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (agent, _no_watch) = AssembledAgent::new(settings, environment, runtime.handle());
        let AssembledAgent { board, timeline, mut app, .. } = agent;
        board.set_node(node(ConditionStatus::True, false), Moment::default(), nodegate_clock::wall());
        board.set_service(0, 1, Moment::default(), nodegate_clock::wall());
        board.open(Moment::default(), nodegate_clock::wall());
        // Each request is answered as of now: what these scenarios compare are times below a second.
        Arc::get_mut(&mut app).unwrap().render_every(Duration::ZERO);
        let [http, agent] =
            [(); 2].map(|()| bind(Some(Ipv4Addr::UNSPECIFIED.into()), 0, Sharing::WithSuccessor).unwrap());
        let [address, agent_address] =
            [&http, &agent].map(|listener| (Ipv4Addr::LOCALHOST, listener.local_addr().port()).into());
        let (stop, stopped) = watch::channel(());
        let [proof, service_proof] = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let (heard, of_service, beating) = (proof.clone(), service_proof.clone(), board.clone());
        std::thread::spawn(move || {
            let ended = |mut stopped: watch::Receiver<()>| async move { drop(stopped.changed().await) };
            let beat = async {
                loop {
                    let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
                    if heard.load(Ordering::Relaxed) {
                        if of_service.load(Ordering::Relaxed) {
                            beating.prove_services(&[0], now, now, wall);
                        }
                        beating.prove(now);
                    }
                    beating.tick(now, wall);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            runtime.block_on(async {
                let options = ServeOptions::default();
                tokio::select! {
                    _ = serve(http, app.clone(), options.clone(), ended(stopped.clone())) => {}
                    _ = serve_agent_check(agent, app.clone(), options, ended(stopped)) => {}
                    () = beat => {}
                }
            });
        });
        Self { board, timeline, address, agent_address, proof, service_proof, _stop: stop }
    }

    pub(super) fn cordon(&self, unschedulable: bool) {
        self.set(node(ConditionStatus::True, unschedulable), Duration::ZERO);
    }

    /// Sets the number of ready endpoints of [`SERVICE`] on this node.
    pub(super) fn endpoints(&self, local_endpoints: usize) {
        let now = self.timeline.at(nodegate_clock::now());
        self.board.set_service(0, local_endpoints, now, nodegate_clock::wall());
    }

    /// Loses the watch of [`SERVICE`], until its facts are stale.
    pub(super) fn lose_service(&self) {
        self.service_proof.store(false, Ordering::Relaxed);
        let is_stale = || (self.status()["services"][0]["stale"] == true).then_some(());
        waiting::until("the Service to be stale", is_stale);
    }

    /// Follows [`SERVICE`] again.
    pub(super) fn follow_service(&self) {
        self.service_proof.store(true, Ordering::Relaxed);
    }

    /// Sets the Ready condition, as of so long ago.
    pub(super) fn set_ready(&self, status: ConditionStatus, ago: Duration) {
        self.set(node(status, false), ago);
    }

    fn set(&self, node: Node, ago: Duration) {
        let now = self.timeline.at(nodegate_clock::now());
        self.board.prove(now);
        self.board.set_node(node, now.before(ago).unwrap(), nodegate_clock::wall());
    }

    /// Makes the API server stop answering.
    pub(super) fn lose_the_api_server(&self) {
        self.proof.store(false, Ordering::Relaxed);
    }

    /// The API server is heard again.
    pub(super) fn find_the_api_server(&self) {
        self.proof.store(true, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_str(&http::get(self.address, "/status.json").unwrap().body).unwrap()
    }

    /// Returns the number of regular probers.
    pub(super) fn regular(&self) -> usize {
        let status = self.status();
        let probers = status["probers"].as_array().unwrap();
        probers.iter().filter(|prober| prober["standing"] == "regular").count()
    }
}

fn node(status: ConditionStatus, unschedulable: bool) -> Node {
    let ready = Condition { kind: "Ready".to_owned(), status, reason: "KubeletReady".to_owned() };
    Node::Present(NodeFacts { conditions: vec![ready], unschedulable, ..NodeFacts::default() })
}
