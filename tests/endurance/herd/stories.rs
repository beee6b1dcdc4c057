//! The herd after a restart, after a long outage, and after all connections go silent.

use super::arrivals::Arrivals;
use super::flock::{Flock, node};
use super::rotation;
use crate::{TURNS, setting};
use nodegate_testbed::{Cluster, until};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The fixed wait of the clients without jitter.
const FIXED_WAIT: Duration = Duration::from_millis(800);
/// The longest time until all watchers have noticed, waited and connected: 4 s for the kernel to notice, up
/// to 10 s of backoff, and a busy machine.
const LONGEST: Duration = Duration::from_mins(1);

/// A fault that hits all watchers at once.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Restart,
    Outage(Duration),
    HalfOpen,
}

impl Blow {
    fn strike(self, cluster: &Cluster) {
        match self {
            Self::Restart => {
                cluster.wait(cluster.sim.kill());
                cluster.wait(cluster.sim.restart(false)).unwrap();
            }
            Self::Outage(length) => {
                cluster.wait(cluster.sim.kill());
                std::thread::sleep(length);
                cluster.wait(cluster.sim.restart(false)).unwrap();
            }
            Self::HalfOpen => cluster.sim.half_open(),
        }
    }
}

struct Herd {
    cluster: Cluster,
    flock: Flock,
    watchers: usize,
}

impl Herd {
    fn gather(watchers: usize) -> Self {
        let cluster = Cluster::with(|builder| builder.kubelets(true).nodes((0..watchers).map(node)));
        let flock = Flock::start(&cluster, watchers);
        let herd = Self { cluster, flock, watchers };
        until("all watches", || (herd.cluster.sim.counters().read().watches == herd.watches()).then_some(()));
        herd
    }

    /// Returns the number of watches: one of the Node and one of the Lease for each watcher.
    fn watches(&self) -> u64 {
        2 * self.watchers as u64
    }

    fn after(&self, blow: Blow) -> Arrivals {
        blow.strike(&self.cluster);
        let all = self.watches();
        Arrivals::count(&self.cluster.sim, LONGEST, |watches| watches >= all)
    }
}

/// Runs as many clients without jitter, for comparison: they hold a connection, and open another one after a
/// fixed wait.
fn after_a_fixed_wait(cluster: &Cluster, clients: usize) -> Arrivals {
    async fn client(server: SocketAddr) {
        let Ok(mut held) = TcpStream::connect(server).await else { return };
        let _ = held.read(&mut [0]).await;
        tokio::time::sleep(FIXED_WAIT).await;
        let Ok(mut held) = TcpStream::connect(server).await else { return };
        let _ = held.read(&mut [0]).await;
    }
    let server = cluster.sim.address();
    let held = || cluster.sim.counters().read().connections;
    // Connections whose packets vanished would stay open.
    cluster.sim.reset_connections();
    until("the last ones to be gone", || (held() == 0).then_some(()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    (0..clients).for_each(|_| drop(runtime.spawn(client(server))));
    until("all connections", || (held() == clients as u64).then_some(()));
    Blow::Restart.strike(cluster);
    Arrivals::count(&cluster.sim, FIXED_WAIT * 5, |_| false)
}

#[test]
fn a_hundred_watchers_reconnect_spread_out() {
    let _turn = TURNS.take();
    let Herd { cluster, flock, watchers } = {
        let herd = Herd::gather(100);
        for blow in [Blow::Restart, Blow::HalfOpen] {
            let arrivals = herd.after(blow);
            println!("{blow:?}\n{}", arrivals.histogram());
            // One connection for each watcher, for all its watches; a busy machine may cause some retries.
            let connections: u64 = arrivals.connections.iter().sum();
            assert!(connections <= 3 * herd.watches() / 4, "{blow:?}: {connections} connections");
            // An even spread over the first window of 1.4 s has 14 % in two steps, and 30 % at most by
            // chance; a machine that stalls lets some arrive together.
            assert!(arrivals.fullest() < 60.0, "{blow:?}: they come together\n{}", arrivals.histogram());
        }
        herd
    };
    drop(flock);
    let control = after_a_fixed_wait(&cluster, watchers);
    println!("a fixed wait\n{}", control.histogram());
    assert!(control.fullest() > 80.0, "the measurement can tell a herd\n{}", control.histogram());
}

/// Runs `make herd`: `HERD` is the number of watchers, `HERD_MINUTES` the length of the steady state.
#[test]
#[ignore = "takes minutes: make herd"]
fn herd() {
    let watchers = setting("HERD", 1000);
    let minutes: u64 = setting("HERD_MINUTES", 20);
    let began = Instant::now();
    let herd = Herd::gather(watchers);
    println!("{watchers} watchers are watching after {:.1} s\n", began.elapsed().as_secs_f64());
    let mut worst: f64 = 0.0;
    for blow in [Blow::Restart, Blow::Outage(Duration::from_secs(30)), Blow::HalfOpen] {
        let arrivals = herd.after(blow);
        println!("after {blow:?}\n{}", arrivals.histogram());
        worst = worst.max(arrivals.fullest());
    }
    rotation::measure(&herd.cluster.sim, watchers, minutes);
    rotation::reckon(watchers);
    let Herd { cluster, flock, watchers } = herd;
    drop(flock);
    let control = after_a_fixed_wait(&cluster, watchers);
    println!("after Restart, clients that wait {FIXED_WAIT:?} without jitter\n{}", control.histogram());
    let good = worst <= 30.0 && control.fullest() > 80.0;
    println!(
        "{} at most 30 % of the connections in a fifth of a second: {worst:.1} %; without jitter {:.1} %",
        if good { "PASS" } else { "FAIL" },
        control.fullest()
    );
    assert!(good, "see above");
}
