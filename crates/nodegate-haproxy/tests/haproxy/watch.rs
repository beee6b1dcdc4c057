//! A watch is restarted if its server holds the connection and sends nothing. It then gets the missed
//! changes.
//!
//! The watching half is a process of its own, because it needs its own KUBECONFIG.

use nodegate_haproxy::plan::facts::NodeState;
use nodegate_haproxy::run::metrics::HaproxyMetrics;
use nodegate_haproxy::watch::life::Life;
use nodegate_haproxy::watch::{self, Observed, WatchScope};
use nodegate_http::Format;
use nodegate_kube_sim::Sim;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::sync::watch::channel;

/// Twenty times the simulated server's interval of bookmarks, so that only real silence counts.
const SILENCE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
#[ignore = "started by the other test, with a cluster to watch"]
async fn watching_half() {
    let scope = WatchScope { silence: SILENCE, ..WatchScope::default() };
    let (lists, life) = (scope.lists(), Life::new(&scope.lists()));
    let (sender, observed) = channel(Observed::default());
    let registry = Arc::new(HaproxyMetrics::default()).registry(life.clone());
    tokio::spawn(watch::run(scope, sender, life));
    let (began, mut told) = (Instant::now(), String::new());
    while began.elapsed() < 3 * PATIENCE {
        let synced = lists.iter().all(|list| observed.borrow().synced.contains(list));
        let drained = observed.borrow().facts.nodes.values().any(|node| node.state == NodeState::Draining);
        let unresponsive = Format::OpenMetrics
            .encode(&[&registry])
            .unwrap()
            .contains("watch_restarts_total{kind=\"unresponsive\"}");
        let now = format!("synced={synced} unresponsive={unresponsive} drained={drained}");
        if now != told {
            println!("{now}");
            told = now;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_hears_nothing_is_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Sim::builder().tls(true).node("n1").bookmark_interval(SILENCE / 20);
    let sim = builder.start().await.unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    sim.write_kubeconfig(&kubeconfig).unwrap();
    let mut half = Command::new(std::env::current_exe().unwrap());
    half.args(["--ignored", "--exact", "watch::watching_half", "--nocapture"]).env("KUBECONFIG", &kubeconfig);
    let mut half = half.stdout(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(half.stdout.take().unwrap()).lines();
    until(&mut lines, "synced=true unresponsive=false drained=false").await;
    sim.freeze();
    assert!(sim.cordon("n1"));
    until(&mut lines, "unresponsive=true drained=false").await;
    sim.heal();
    until(&mut lines, "drained=true").await;
}

async fn until(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) {
    let mut told = Vec::new();
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains(what) {
                return;
            }
            told.push(line);
        }
        panic!("it has ended");
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    assert!(found.is_ok(), "waited in vain for {what}: {told:?}");
}
