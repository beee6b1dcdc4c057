//! Counts, in the background, the connections of clients to ports of this host.

use crate::netlink::Netlink;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often they are counted. Whoever waits for the last one looks about as often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counts the established connections to some ports, on a thread of its own: the kernel may take its time.
#[derive(Debug)]
pub struct Sessions {
    ports: Vec<u16>,
    last: Mutex<Option<Counted>>,
}

/// What was counted last.
#[derive(Clone, Debug)]
pub struct Counted {
    /// When.
    pub at: Instant,
    /// How many there were, or why that can't be said.
    pub established: Result<u64, String>,
}

impl Sessions {
    /// Begins to count. It ends with whoever asks.
    pub fn start(ports: Vec<u16>) -> io::Result<Arc<Self>> {
        let sessions = Arc::new(Self { ports, last: Mutex::new(None) });
        let counted = Arc::downgrade(&sessions);
        let count = move || {
            while let Some(sessions) = counted.upgrade() {
                sessions.count();
                drop(sessions);
                thread::sleep(COUNT_EVERY);
            }
        };
        thread::Builder::new().name("sessions".to_owned()).spawn(count)?;
        Ok(sessions)
    }

    /// Returns the ports that are looked at.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// What was counted last; `None` if that is still to come.
    pub fn last(&self) -> Option<Counted> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self) {
        let count = || {
            let netlink = Netlink::open_diag()?;
            self.ports.iter().map(|port| netlink.established(*port)).sum::<io::Result<u64>>()
        };
        let established = count().map_err(|error| error.to_string());
        let counted = Counted { at: nodegate_clock::now(), established };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(counted);
    }
}
