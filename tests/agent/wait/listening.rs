//! An agent's server in this process that has already listened for a while, so that tests need not wait for
//! minutes.

use nodegate_agent::{AgentSettings, AssembledAgent, Environment};
use nodegate_readiness::{
    Board, Catalog, Condition, ConditionStatus, Moment, Node, NodeFacts, Policy, Timeline,
};
use nodegate_server::{PortSharing, ServeOptions, bind, serve};
use nodegate_testbed::{NODE, http, waiting};
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// The watched Service.
pub(super) const SERVICE: &str = "shop/web";

/// Long enough to know the probers.
const LISTENED: Duration = Duration::from_mins(5);

pub(super) struct Listening {
    board: Arc<Board>,
    timeline: Timeline,
    pub(super) address: SocketAddr,
    /// True while there is proof of [`SERVICE`].
    service_proof: Arc<AtomicBool>,
    _stop: oneshot::Sender<()>,
}

impl Listening {
    /// Starts a server on a ready node that has listened for minutes.
    pub(super) fn start() -> Self {
        let settings = AgentSettings {
            policy: Policy { stale_after: Duration::from_secs(3), ..Policy::default() },
            ..AgentSettings::new(NODE, Catalog::new(Vec::new()).with_services(vec![SERVICE.parse().unwrap()]))
        };
        let started = nodegate_clock::now().checked_sub(LISTENED).unwrap();
        let environment = Environment { started, ..Environment::default() };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (agent, _no_watch) = AssembledAgent::new(settings, environment, runtime.handle());
        let AssembledAgent { board, timeline, app, .. } = agent;
        board.set_node(node(false), Moment::default(), nodegate_clock::wall());
        board.set_service(0, 1, Moment::default(), nodegate_clock::wall());
        board.open(Moment::default(), nodegate_clock::wall());
        // Each request is answered as of now: what these scenarios compare are times below a second.
        app.render_every(Duration::ZERO);
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), PortSharing::WithSuccessor).unwrap();
        let address = listener.local_addr();
        let (stop, stopped) = oneshot::channel();
        let service_proof = Arc::new(AtomicBool::new(true));
        let (of_service, beating) = (service_proof.clone(), board.clone());
        std::thread::spawn(move || {
            let beat = async {
                loop {
                    let (now, wall) = (timeline.at(nodegate_clock::now()), nodegate_clock::wall());
                    if of_service.load(Ordering::Relaxed) {
                        beating.prove_services(&[0], now, now, wall);
                    }
                    beating.prove(now);
                    beating.tick(now, wall);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener, app, ServeOptions::default(), None, async { drop(stopped.await) }) => {}
                    () = beat => {}
                }
            });
        });
        Self { board, timeline, address, service_proof, _stop: stop }
    }

    pub(super) fn cordon(&self, unschedulable: bool) {
        self.board.prove(self.now());
        self.board.set_node(node(unschedulable), self.now(), nodegate_clock::wall());
    }

    /// Sets the number of ready endpoints of [`SERVICE`] on this node.
    pub(super) fn endpoints(&self, local_endpoints: usize) {
        self.board.set_service(0, local_endpoints, self.now(), nodegate_clock::wall());
    }

    /// Loses the watch of [`SERVICE`], until its facts are stale.
    pub(super) fn lose_service(&self) {
        self.service_proof.store(false, Ordering::Relaxed);
        let is_stale = || (self.status()["services"][0]["stale"] == true).then_some(());
        waiting::until("the Service to be stale", is_stale);
    }

    fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
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

fn node(unschedulable: bool) -> Node {
    let (kind, reason) = ("Ready".to_owned(), "KubeletReady".to_owned());
    let ready = Condition { kind, status: ConditionStatus::True, reason };
    Node::Present(NodeFacts { conditions: vec![ready], unschedulable, ..NodeFacts::default() })
}
