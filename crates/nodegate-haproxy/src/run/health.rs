//! The health of nodegate-haproxy itself: the answers of `/livez` and `/readyz`.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

/// Signs of life of the loop that applies, and what the running HAProxy proves.
#[derive(Debug)]
pub struct Health {
    began: Instant,
    applying: AtomicU64,
    /// The reason why the written file is not proven to run, or `None`.
    unproven: Mutex<Option<String>>,
}

impl Health {
    /// Creates the health of a program that has just started.
    pub fn new() -> Self {
        let unproven = Mutex::new(Some("no configuration has been applied yet".to_owned()));
        Self { began: Instant::now(), applying: AtomicU64::new(0), unproven }
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    pub(crate) fn beat(&self) {
        self.applying.store(self.seconds(), Ordering::Relaxed);
    }

    /// Records whether the running HAProxy proves the written file; the reason if not.
    pub(crate) fn set_unproven(&self, reason: Option<String>) {
        *self.unproven.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the reason why the written file is not proven to run, or `None`. An outage of the API server does
    /// not change that.
    pub fn unproven(&self) -> Option<String> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl nodegate_http::Health for Health {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let stuck = self.seconds().saturating_sub(self.applying.load(Ordering::Relaxed)) >= STUCK.as_secs();
        if stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.unproven().map_or(Ok(()), |reason| Err(reason.into()))
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}
