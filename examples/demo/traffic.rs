//! Clients of the service: constant traffic through `HAProxy`, a new connection for each request.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

const CLIENTS: u32 = 4;
const EVERY: Duration = Duration::from_millis(40);
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What came of the requests; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Counts>>);

#[derive(Clone, Default)]
pub(crate) struct Counts {
    /// By the node that answered.
    pub(crate) served: HashMap<String, u64>,
    pub(crate) failed: u64,
    pub(crate) last_failure: Option<String>,
}

impl Counts {
    pub(crate) fn total(&self) -> u64 {
        self.served.values().sum::<u64>() + self.failed
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
                counts.failed += 1;
                counts.last_failure = Some(error.to_string());
            }
        }
    }
}

/// Running clients; they end when this is dropped.
pub(crate) struct Traffic {
    pub(crate) tally: Tally,
    clients: JoinSet<()>,
}

impl Traffic {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let mut traffic = Self { tally: Tally::default(), clients: JoinSet::new() };
        for _ in 0..CLIENTS {
            traffic.clients.spawn(client(to, traffic.tally.clone()));
        }
        traffic
    }

    /// How many requests there are in a second.
    pub(crate) fn rate() -> u128 {
        u128::from(CLIENTS) * 1000 / EVERY.as_millis()
    }

    /// Ends the clients, so that nothing counts that ends with the demo.
    pub(crate) async fn stop(mut self) -> Counts {
        let counts = self.tally.read();
        self.clients.shutdown().await;
        counts
    }
}

async fn client(to: SocketAddr, tally: Tally) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = timeout(PATIENCE, ask(to)).await;
        tally.take(answer.unwrap_or_else(|_| Err(io::Error::other("no answer in time"))));
    }
}

async fn ask(to: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(b"GET / HTTP/1.0\r\nhost: demo\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    match text.split_once("\r\n\r\n") {
        Some((head, node)) if head.contains(" 200 ") => Ok(node.to_owned()),
        _ => Err(io::Error::other("the connection ended without an answer")),
    }
}
