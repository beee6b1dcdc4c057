//! The program's own health, for the kubelet.

use nodegate_http::Health;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The upkeep is stuck if it has not started a round for its interval and this time.
const STUCK: Duration = Duration::from_mins(2);

/// The times of the last upkeep and of its rounds.
#[derive(Debug)]
pub struct GateHealth {
    began: Instant,
    interval: Duration,
    beat: AtomicU64,
    has_certificate: AtomicBool,
    closing: AtomicBool,
}

impl GateHealth {
    /// Begins, with this time between two rounds of the upkeep.
    pub fn new(interval: Duration) -> Self {
        let (beat, has_certificate, closing) =
            (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Self { began: Instant::now(), interval, beat, has_certificate, closing }
    }

    /// Notes that a round of the upkeep has started.
    pub fn beat(&self) {
        self.beat.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// Notes whether there is a certificate to serve with.
    pub fn certified(&self, has_certificate: bool) {
        self.has_certificate.store(has_certificate, Ordering::Relaxed);
    }

    /// Notes that the program is going to end.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Returns true if the program is going to end.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

impl Health for GateHealth {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let since =
            self.began.elapsed().saturating_sub(Duration::from_secs(self.beat.load(Ordering::Relaxed)));
        if since < self.interval + STUCK { Ok(()) } else { Err("the upkeep is stuck".into()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        if self.is_closing() {
            return Err("shutting down".into());
        }
        if self.has_certificate.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("no certificate yet; the log says why".into())
        }
    }
}
