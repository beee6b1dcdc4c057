//! Clients of the service: constant traffic through the balancers, with a new connection for each request. Some
//! clients are quick. Others fetch large files: these are the sessions that a drain has to wait for.

use crate::pods::LARGE;
use nodegate_testbed::http;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The numbers of quick and slow clients of each balancer, and the pause between their requests.
pub(crate) const QUICK: u64 = 2;
pub(crate) const SLOW: u64 = 20;
pub(crate) const EVERY: Duration = Duration::from_millis(40);

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
    /// Starts the clients, which go on to the end of the process.
    pub(crate) fn start(balancers: &[SocketAddr]) -> Self {
        let tally = Self::default();
        for &to in balancers {
            for number in 0..QUICK + SLOW {
                let (tally, path) = (tally.clone(), if number < QUICK { "/" } else { LARGE });
                thread::spawn(move || tally.client(to, path));
            }
        }
        tally
    }

    pub(crate) fn read(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, to: SocketAddr, path: &str) {
        loop {
            match ask(to, path) {
                Ok(node) => *self.lock().served.entry(node).or_default() += 1,
                Err(error) => {
                    let mut counts = self.lock();
                    counts.lost += 1;
                    counts.last_failure = Some(error.to_string());
                }
            }
            thread::sleep(EVERY);
        }
    }
}

/// Returns the node that answered. An answer that is cut short is an error, too.
fn ask(to: SocketAddr, path: &str) -> io::Result<String> {
    let reply = http::get(to, path)?;
    let whole = reply.header("content-length") == Some(&*reply.body.len().to_string());
    if reply.status != 200 || !whole {
        return Err(io::Error::other("the connection ended without a whole answer"));
    }
    Ok(reply.body.trim_start_matches('.').to_owned())
}
