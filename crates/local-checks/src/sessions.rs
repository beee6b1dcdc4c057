//! Counts, in the background, the clients' connections to ports of this host.

use crate::netlink::Netlink;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The interval of the counts. A client that waits for the last connection polls about as often.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Counts the established connections to some ports, on a thread of its own, because the kernel may take
/// long.
#[derive(Debug)]
pub struct Sessions {
    ports: Vec<u16>,
    last: Mutex<Option<Counted>>,
}

/// The last count.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The time of the count.
    pub at: Instant,
    /// The number of connections, or the reason why it is not known.
    pub established: Result<u64, String>,
}

impl Sessions {
    /// Starts to count. It ends when the returned value is dropped.
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

    /// Returns the ports.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns the last count; `None` before the first one.
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
