//! The watchers: this test program as a child process, with the kubeconfig in its environment.

use nodegate_node_watch::{Connector, NodeWatch, Startup, WatchMetrics};
use nodegate_readiness::{Board, Catalog, Liveness, Policy, Timeline};
use nodegate_testbed::Cluster;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const WATCHERS: &str = "HERD_WATCHERS";
/// The time between two starts: a DaemonSet's rollout does not start all agents in one instant.
const BETWEEN_STARTS: Duration = Duration::from_millis(4);

/// Returns the name of a node.
pub(crate) fn node(number: usize) -> String {
    format!("node-{number}")
}

/// The process of the watchers; dropping it kills it.
pub(crate) struct Flock(Child);

impl Flock {
    /// Starts this number of watchers, one for each node.
    pub(crate) fn start(cluster: &Cluster, watchers: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "herd::flock::watchers"])
            .env(WATCHERS, watchers.to_string())
            .env("KUBECONFIG", cluster.kubeconfig())
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the watch of an agent, without the rest of the agent.
fn watcher(number: usize) -> NodeWatch {
    let timeline = Timeline::new(Instant::now());
    let now = timeline.at(Instant::now());
    let policy = Policy::default();
    let stale_after = policy.stale_after;
    let name = Some(node(number));
    let board = Board::new(name, policy, Catalog::default(), &[], Box::new(|_| {}));
    NodeWatch {
        node_name: node(number),
        stale_after,
        connector: Connector::default(),
        board: Arc::new(board),
        timeline,
        liveness: Arc::new(Liveness::new(now)),
        metrics: Arc::new(WatchMetrics::default()),
    }
}

#[test]
#[ignore = "the other process of the stories"]
fn watchers() {
    let Some(watchers) = std::env::var(WATCHERS).ok().and_then(|count| count.parse().ok()) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The parent process holds the other end of stdin; when it ends, so does this one.
    std::thread::spawn(|| {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        std::process::exit(0);
    });
    tokio::task::LocalSet::new().block_on(&runtime, async {
        for number in 0..watchers {
            let (startup, _) = watch::channel(Startup::Connecting);
            tokio::task::spawn_local(watcher(number).run(startup));
            tokio::time::sleep(BETWEEN_STARTS).await;
        }
        std::future::pending::<()>().await;
    });
}
