//! What `--haproxy` adds: the services, the balancer, the clients, and a line a second that shows them.

use crate::agent::Launcher;
use crate::haproxy::{self, Haproxy};
use crate::node::DemoNode;
use crate::screen::Screen;
use crate::service::Services;
use crate::traffic::{Counts, Tally, Traffic};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::{AbortHandle, spawn};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct Balancer {
    _services: Services,
    haproxy: Haproxy,
    traffic: Traffic,
    view: AbortHandle,
}

impl Balancer {
    pub(crate) async fn start(nodes: &[DemoNode], dir: &Path, screen: &Screen) -> io::Result<Self> {
        let services = Services::start(nodes).await?;
        let haproxy = Haproxy::start(&Launcher::find()?, nodes, dir).await?;
        let traffic = Traffic::start(haproxy::address(nodes));
        let view = View {
            nodes: nodes.iter().map(|node| node.name).collect(),
            socket: haproxy.socket(),
            tally: traffic.tally.clone(),
            screen: screen.clone(),
        };
        Ok(Self { _services: services, haproxy, traffic, view: spawn(view.run()).abort_handle() })
    }

    /// Waits for `HAProxy` to end, which nobody has asked for.
    pub(crate) async fn death(&mut self) -> String {
        match self.haproxy.death().await {
            Ok(status) => format!("HAProxy died: {status}"),
            Err(error) => format!("HAProxy is lost: {error}"),
        }
    }

    /// Ends it all, and says what came of the requests: whether none of them failed.
    pub(crate) async fn stop(self, screen: &Screen) -> bool {
        self.view.abort();
        let counts = self.traffic.stop().await;
        self.haproxy.stop().await;
        screen.line("");
        let failure = counts.last_failure.map(|failure| format!(", the last: {failure}")).unwrap_or_default();
        let total = counts.served.values().sum::<u64>() + counts.failed;
        let text = format!("{total} requests through HAProxy, {} failed{failure}", counts.failed);
        screen.line(format!("{} {}", screen.mark(counts.failed == 0), screen.bold(text)));
        counts.failed == 0
    }
}

/// Shows what each node gets, as `HAProxy` sees the nodes.
struct View {
    nodes: Vec<&'static str>,
    socket: PathBuf,
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
            let states = haproxy::states(&self.socket).await.unwrap_or_default();
            let (now, at) = (self.tally.read(), Instant::now());
            self.show(&before, &now, at - shown, &states);
            (before, shown) = (now, at);
        }
    }

    fn show(&self, before: &Counts, now: &Counts, time: Duration, states: &HashMap<String, String>) {
        let node = |node: &&str| {
            #[expect(clippy::cast_precision_loss, reason = "some hundred requests")]
            let rate = (now.of(node) - before.of(node)) as f64 / time.as_secs_f64();
            let state = states.get(*node).map_or("?", String::as_str);
            self.screen.share(node, rate, state)
        };
        let nodes = self.nodes.iter().map(node).collect::<Vec<_>>().join("  ");
        self.screen.traffic(&nodes, now.failed, now.total());
    }
}
