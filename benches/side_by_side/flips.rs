//! The time from a cordon to the agent's answer, and to the event on a plain watch.

use crate::load::Prober;
use crate::peer::Peer;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use nodegate_testbed::{NODE, Scenario};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// A timeout longer than any flip takes. A flip that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest interval at which a prober does not fill a core. Its own waiting adds little.
const EVERY: Duration = Duration::from_micros(100);

/// Milliseconds since the acknowledgement of a cordon; negative if the event came before it.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    pub(crate) answer: Vec<f64>,
    pub(crate) watch: Vec<f64>,
}

/// The time of an observation, and true if the node was out of rotation.
type Seen = (Instant, bool);

/// Cordons and uncordons the node `times` times, while a prober asks all the time.
pub(crate) fn measure(cluster: &Scenario, agent: &Peer, times: u32) -> Flips {
    let (watched, address) = (watch(cluster), agent.address);
    let stop = AtomicBool::new(false);
    let (sender, answered) = channel();
    thread::scope(|scope| {
        let prober = scope.spawn(|| probe(address, &stop, &sender));
        let flips = flip(cluster, &watched, &answered, times);
        stop.store(true, Ordering::Relaxed);
        prober.join().unwrap();
        flips
    })
}

fn flip(cluster: &Scenario, watched: &Receiver<Seen>, answered: &Receiver<Seen>, times: u32) -> Flips {
    let mut flips = Flips::default();
    for number in 0..u64::from(times) {
        // The pause varies, so that cordons are not in step with the prober.
        thread::sleep(Duration::from_micros(5_000 + number * 379 % 1_000));
        cluster.sim.cordon(NODE);
        let cordoned = Instant::now();
        flips.watch.push(since(cordoned, next(watched, true)));
        flips.answer.push(since(cordoned, next(answered, true)));
        cluster.sim.uncordon(NODE);
        next(watched, false);
        next(answered, false);
    }
    flips
}

fn next(seen: &Receiver<Seen>, out: bool) -> Instant {
    loop {
        let (when, what) = seen.recv_timeout(TIMEOUT).expect("a flip is seen");
        if what == out {
            return when;
        }
    }
}

fn since(start: Instant, end: Instant) -> f64 {
    let later = end.saturating_duration_since(start).as_secs_f64();
    (later - start.saturating_duration_since(end).as_secs_f64()) * 1e3
}

/// Sends probes until `stop` is set, and reports every change of the answer.
fn probe(address: SocketAddr, stop: &AtomicBool, changes: &Sender<Seen>) {
    let (mut prober, mut last, mut due) = (Prober::new(address, false), None, Instant::now());
    while !stop.load(Ordering::Relaxed) {
        due = (due + EVERY).max(Instant::now());
        thread::sleep(due - Instant::now());
        let out = prober.probe() != 200;
        if last.replace(out) != Some(out) {
            // The receiver is gone after the last flip.
            let _ = changes.send((Instant::now(), out));
        }
    }
}

/// Follows the node on its own thread until the receiver is dropped.
fn watch(cluster: &Scenario) -> Receiver<Seen> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let kubeconfig = Kubeconfig::read_from(cluster.admin().kubeconfig()).unwrap();
    let client = runtime.block_on(async {
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    });
    let (sender, seen) = channel();
    thread::spawn(move || runtime.block_on(follow(Api::all(client), &sender)));
    seen
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
