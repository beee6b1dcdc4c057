//! The time from a cordon to its effect: at the agent, seen by a prober, and on a plain watch of the same
//! Node.

use crate::Failure;
use crate::latencies::Latencies;
use crate::load::{Connections, Prober};
use crate::peer::Peer;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nodegate_testbed::cluster::{Cluster, NODE};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A timeout longer than any flip takes. A flip that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Times since the acknowledgement of a cordon. A time is negative if the event came before the
/// acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    /// The times to the first 503.
    pub(crate) answer: Latencies,
    /// The times to the event on a watch.
    pub(crate) watch: Latencies,
}

/// The time of an observation, and true if the node was out of rotation.
type Seen = (Instant, bool);

/// Cordons and uncordons the node `times` times, while a prober asks once `every` interval.
pub(crate) fn measure(cluster: &Cluster, peer: &Peer, every: Duration, times: u32) -> Result<Flips, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let nodes = runtime.block_on(admin(cluster))?;
    let watched = watch(cluster)?;
    let stop = AtomicBool::new(false);
    let (sender, answered) = channel();
    thread::scope(|scope| {
        let prober = scope.spawn(|| probe(peer, every, &stop, &sender));
        let flips = flip(&runtime, &nodes, &watched, &answered, times);
        stop.store(true, Ordering::Relaxed);
        prober.join().map_err(|_| "the prober panicked")??;
        flips
    })
}

fn flip(
    runtime: &Runtime,
    nodes: &Api<Node>,
    watched: &Receiver<Seen>,
    answered: &Receiver<Seen>,
    times: u32,
) -> Result<Flips, Failure> {
    let mut flips = Flips::default();
    for number in 0..u64::from(times) {
        runtime.block_on(nodes.uncordon(NODE))?;
        next(watched, false)?;
        next(answered, false)?;
        // The pause varies, so that cordons are not in step with the prober.
        thread::sleep(Duration::from_micros(5_000 + number * 379 % 1_000));
        runtime.block_on(nodes.cordon(NODE))?;
        let acknowledged = Instant::now();
        flips.watch.add_nanos(since(acknowledged, next(watched, true)?));
        flips.answer.add_nanos(since(acknowledged, next(answered, true)?));
    }
    runtime.block_on(nodes.uncordon(NODE))?;
    next(answered, false)?;
    Ok(flips)
}

fn next(seen: &Receiver<Seen>, out: bool) -> Result<Instant, Failure> {
    loop {
        let (when, what) = seen.recv_timeout(TIMEOUT).map_err(|_| "a flip was not seen")?;
        if what == out {
            return Ok(when);
        }
    }
}

fn since(start: Instant, end: Instant) -> i64 {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    if end >= start { nanos(end - start) } else { -nanos(start - end) }
}

/// Sends probes until `stop` is set, and reports every change of the answer.
fn probe(peer: &Peer, every: Duration, stop: &AtomicBool, changes: &Sender<Seen>) -> io::Result<()> {
    let mut prober = Prober::new(peer.address, Connections::New);
    let mut last = None;
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        due = (due + every).max(Instant::now());
        thread::sleep(due - Instant::now());
        let out = prober.probe()? != 200;
        if last.replace(out) != Some(out) {
            // The receiver is gone after the last flip.
            let _ = changes.send((Instant::now(), out));
        }
    }
    Ok(())
}

async fn admin(cluster: &Cluster) -> Result<Api<Node>, Failure> {
    let kubeconfig = Kubeconfig::read_from(cluster.admin().kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Api::all(Client::try_from(config)?))
}

/// Follows the node on its own thread until the receiver is dropped.
fn watch(cluster: &Cluster) -> Result<Receiver<Seen>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let nodes = runtime.block_on(admin(cluster))?;
    let (sender, seen) = channel();
    thread::spawn(move || runtime.block_on(follow(nodes, &sender)));
    Ok(seen)
}

async fn follow(nodes: Api<Node>, sender: &Sender<Seen>) {
    let only = WatchParams::default().fields(&format!("metadata.name={NODE}")).timeout(290);
    let Ok(events) = nodes.watch(&only, "0").await else { return };
    let mut events = events.into_stream().boxed();
    while let Ok(Some(event)) = events.try_next().await {
        if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event {
            let out = node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
            if sender.send((Instant::now(), out)).is_err() {
                return;
            }
        }
    }
}
