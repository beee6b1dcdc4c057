//! All agents and their observed answers.

use crate::agent::{Death, Launcher, Order};
use crate::cluster::Cluster;
use crate::flips::{Flips, Seen};
use crate::node::DemoNode;
use crate::probe;
use crate::screen::Screen;
use crate::signals::Signals;
use std::io;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The time limit for an agent's end. An agent gives requests in flight 5 s; one that takes longer hangs.
const STOP_PATIENCE: Duration = Duration::from_secs(7);

/// The reason for the end of the demo.
pub(crate) enum Ended {
    /// A signal, or a closed output.
    Asked,
    Died(Death),
    /// The end of a balancer.
    Lost(String),
    Played {
        passed: bool,
    },
}

/// An agent as the tour sees it.
#[derive(Clone)]
pub(crate) struct ObservedAgent {
    pub(crate) node: DemoNode,
    pub(crate) seen: watch::Receiver<Seen>,
}

pub(crate) struct Fleet {
    pub(crate) agents: Vec<ObservedAgent>,
    orders: watch::Sender<Order>,
    processes: JoinSet<Death>,
    probes: JoinSet<()>,
}

impl Fleet {
    /// Starts an agent for each node, and probes it. In case of an error, it kills the agents that already
    /// run.
    pub(crate) fn start(
        nodes: &[DemoNode],
        cluster: &Cluster,
        screen: &Screen,
        args: &[String],
    ) -> io::Result<Self> {
        let launcher = Launcher::find()?;
        let orders = watch::Sender::new(Order::Run);
        let mut fleet =
            Self { agents: Vec::new(), orders, processes: JoinSet::new(), probes: JoinSet::new() };
        for &node in nodes {
            let traffic = format!("--traffic-port={}", node.ingress_port);
            let args: Vec<&str> = args.iter().map(String::as_str).chain([traffic.as_str()]).collect();
            let agent = launcher.start(node, &cluster.agent_kubeconfig(), &args)?;
            fleet.processes.spawn(agent.run(fleet.orders.subscribe()));
            let flips = Flips::new(node.name, cluster.changes.clone(), screen.clone());
            fleet.agents.push(ObservedAgent { node, seen: flips.subscribe() });
            fleet.probes.spawn(probe::follow(node, move |answer, at| flips.take(answer, at)));
        }
        Ok(fleet)
    }

    /// Waits for an agent that ends by itself.
    pub(crate) async fn death(&mut self) -> Death {
        match self.processes.join_next().await {
            Some(Ok(death)) => death,
            // A task that panicked has reported it, and its agent was killed. There is always at least one
            // task.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }

    /// Ends all agents and waits until they are gone. A second signal kills them.
    pub(crate) async fn stop(mut self, signals: &mut Signals) {
        self.probes.shutdown().await;
        self.orders.send_replace(Order::Terminate);
        tokio::select! {
            () = gone(&mut self.processes) => return,
            () = signals.next() => {}
            () = sleep(STOP_PATIENCE) => {}
        }
        self.orders.send_replace(Order::Kill);
        gone(&mut self.processes).await;
    }
}

async fn gone(processes: &mut JoinSet<Death>) {
    while processes.join_next().await.is_some() {}
}
