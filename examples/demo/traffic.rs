//! Clients of the service: constant traffic through the balancers, with a new connection for each request. Some
//! clients are quick. Others fetch large files: these are the sessions that a drain has to wait for.

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

/// The numbers of quick and slow clients of each balancer, and the interval of their requests.
pub(crate) const QUICK: u64 = 2;
pub(crate) const SLOW: u64 = 20;
pub(crate) const EVERY: Duration = Duration::from_millis(40);
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
}

impl Tally {
    /// Starts the clients. Dropping them ends them.
    pub(crate) fn start(balancers: &[SocketAddr]) -> (Self, JoinSet<()>) {
        let (tally, mut clients) = (Self::default(), JoinSet::new());
        for &to in balancers {
            for number in 0..QUICK + SLOW {
                clients.spawn(tally.clone().client(to, if number < QUICK { "/" } else { LARGE }));
            }
        }
        (tally, clients)
    }

    pub(crate) fn read(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn client(self, to: SocketAddr, path: &str) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = timeout(PATIENCE, ask(to, path)).await;
            let mut counts = self.lock();
            match answer.unwrap_or_else(|_| Err(io::Error::other("no answer in time"))) {
                Ok(node) => *counts.served.entry(node).or_default() += 1,
                Err(error) => {
                    counts.lost += 1;
                    counts.last_failure = Some(error.to_string());
                }
            }
        }
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
