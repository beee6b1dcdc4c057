//! Clients of the service: constant traffic through the `HAProxy` processes, with a new connection for each
//! request. Some clients are quick. Others fetch large files: these are the sessions that a drain has to wait
//! for.

use crate::pods::LARGE;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The number of quick clients of each balancer.
const QUICK: u32 = 2;
const SLOW: u32 = 20;
/// The interval of a quick client.
const EVERY: Duration = Duration::from_millis(40);
/// The time limit for a request. A request that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// The counters of the requests. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

#[derive(Clone, Default)]
pub(crate) struct Counts {
    /// The number of requests by the node that answered.
    pub(crate) served: HashMap<String, u64>,
    pub(crate) lost: u64,
    pub(crate) last_failure: Option<String>,
}

impl Counts {
    pub(crate) fn total(&self) -> u64 {
        self.served.values().sum::<u64>() + self.lost
    }

    pub(crate) fn of(&self, node: &str) -> u64 {
        self.served.get(node).copied().unwrap_or_default()
    }
}

impl Tally {
    pub(crate) fn read(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, answer: io::Result<String>) {
        let mut counts = self.lock();
        match answer {
            Ok(node) => *counts.served.entry(node).or_default() += 1,
            Err(error) => {
                counts.lost += 1;
                counts.last_failure = Some(error.to_string());
            }
        }
    }
}

/// The running clients. Drop ends them.
pub(crate) struct Traffic {
    pub(crate) tally: Tally,
    clients: JoinSet<()>,
}

impl Traffic {
    pub(crate) fn start(balancers: &[SocketAddr]) -> Self {
        let mut traffic = Self { tally: Tally::default(), clients: JoinSet::new() };
        for &to in balancers {
            for _ in 0..QUICK {
                traffic.clients.spawn(client(to, "/", EVERY, traffic.tally.clone()));
            }
            for _ in 0..SLOW {
                traffic.clients.spawn(client(to, LARGE, EVERY, traffic.tally.clone()));
            }
        }
        traffic
    }

    /// Returns the number of quick requests per second, and the number of large files that are fetched at any
    /// time.
    pub(crate) fn load(balancers: usize) -> (u128, u128) {
        let balancers = balancers as u128;
        (u128::from(QUICK) * balancers * 1000 / EVERY.as_millis(), u128::from(SLOW) * balancers)
    }

    /// Ends the clients, so that no request counts that ends with the demo.
    pub(crate) async fn stop(mut self) -> Counts {
        let counts = self.tally.read();
        self.clients.shutdown().await;
        counts
    }
}

async fn client(to: SocketAddr, path: &str, every: Duration, tally: Tally) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = timeout(PATIENCE, ask(to, path)).await;
        tally.take(answer.unwrap_or_else(|_| Err(io::Error::other("no answer in time"))));
    }
}

/// Returns the node that answered. An answer that is cut short is an error, too.
async fn ask(to: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: demo\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let cut = || io::Error::other("the connection ended without a whole answer");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(cut)?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    if !head.contains(" 200 ") || length != Some(body.len()) {
        return Err(cut());
    }
    Ok(body.trim_start_matches('.').to_owned())
}
