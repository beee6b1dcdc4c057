//! The part of the demo with HAProxy: the balancers, their clients, and a line per second that shows them.

use crate::agent::Launcher;
use crate::haproxy::{self, Haproxy, Server};
use crate::node::Network;
use crate::screen::Screen;
use crate::traffic::{Counts, Tally, Traffic};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::{AbortHandle, spawn};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Balancer {
    haproxies: [Haproxy; 2],
    traffic: Traffic,
    view: AbortHandle,
}

impl Balancer {
    pub(crate) async fn start(network: Network, dir: &Path, screen: &Screen) -> io::Result<Self> {
        let haproxies = Haproxy::start_both(&Launcher::find()?, network, dir).await?;
        let traffic = Traffic::start(&haproxy::addresses(network));
        let view = View {
            nodes: network.nodes().map(|node| node.name),
            sockets: haproxies.iter().map(Haproxy::socket).collect(),
            tally: traffic.tally.clone(),
            screen: screen.clone(),
        };
        Ok(Self { haproxies, traffic, view: spawn(view.run()).abort_handle() })
    }

    /// Returns the live counters of the requests.
    pub(crate) fn tally(&self) -> Tally {
        self.traffic.tally.clone()
    }

    /// Waits until one of the `HAProxy` processes ends by itself, and returns the reason.
    pub(crate) async fn death(&mut self) -> String {
        let [first, second] = &mut self.haproxies;
        let death = tokio::select! {
            death = first.death() => death,
            death = second.death() => death,
        };
        match death {
            Ok(status) => format!("HAProxy died: {status}"),
            Err(error) => format!("HAProxy is lost: {error}"),
        }
    }

    /// Ends the clients and the balancers, and shows the results. Returns true if no request was lost.
    pub(crate) async fn stop(self, screen: &Screen) -> bool {
        self.view.abort();
        let counts = self.traffic.stop().await;
        for haproxy in self.haproxies {
            haproxy.stop().await;
        }
        screen.line("");
        let failure = counts.last_failure.as_ref().map(|failure| format!(", the last: {failure}"));
        let text = format!(
            "{} requests through HAProxy, {} lost{}",
            counts.total(),
            counts.lost,
            failure.unwrap_or_default()
        );
        screen.line(format!("{} {}", screen.mark(counts.lost == 0), screen.bold(text)));
        counts.lost == 0
    }
}

/// The line with the traffic of each node and the nodes' states in the `HAProxy` processes.
struct View {
    nodes: [&'static str; 3],
    sockets: Vec<PathBuf>,
    tally: Tally,
    screen: Screen,
}

impl View {
    async fn run(self) {
        let mut ticks = interval_at(Instant::now() + SECOND, SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut before, mut shown) = (Counts::default(), Instant::now());
        loop {
            ticks.tick().await;
            let servers = self.servers().await;
            let (now, at) = (self.tally.read(), Instant::now());
            self.show(&before, &now, at - shown, &servers);
            (before, shown) = (now, at);
        }
    }

    /// Returns the servers with the sessions of both processes added up, and with both states where they
    /// differ.
    async fn servers(&self) -> HashMap<String, Server> {
        let mut all: HashMap<String, Server> = HashMap::new();
        for socket in &self.sockets {
            for (name, server) in haproxy::servers(socket).await.unwrap_or_default() {
                let sum = all.entry(name).or_default();
                sum.sessions += server.sessions;
                if sum.state.is_empty() {
                    sum.state = server.state;
                } else if sum.state != server.state {
                    sum.state = format!("{}|{}", sum.state, server.state);
                }
            }
        }
        all
    }

    fn show(&self, before: &Counts, now: &Counts, time: Duration, servers: &HashMap<String, Server>) {
        let node = |node: &&str| {
            #[expect(clippy::cast_precision_loss, reason = "some hundred requests")]
            let rate = (now.of(node) - before.of(node)) as f64 / time.as_secs_f64();
            let server = servers.get(*node).cloned().unwrap_or_default();
            self.screen.share(node, rate, &server.state, server.sessions)
        };
        let nodes = self.nodes.iter().map(node).collect::<Vec<_>>().join("  ");
        self.screen.traffic(&nodes, now.lost, now.total());
    }
}
