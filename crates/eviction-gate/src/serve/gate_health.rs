//! The gate's own health: `upkeep` writes it, `webhook` and the metrics port read it.

use nodegate_http::Health;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The upkeep is stuck if it has not started a round for its interval and this time.
const STUCK: Duration = Duration::from_mins(2);

/// The program's own health, which the kubelet probes: the time of the last upkeep, and the certificate.
#[derive(Debug)]
pub(crate) struct GateHealth {
    began: Instant,
    interval: Duration,
    beat: AtomicU64,
    has_certificate: AtomicBool,
    closing: AtomicBool,
}

impl GateHealth {
    /// Starts with this time between two rounds of the upkeep.
    pub(crate) fn new(interval: Duration) -> Self {
        let (beat, has_certificate, closing) = Default::default();
        Self { began: Instant::now(), interval, beat, has_certificate, closing }
    }

    /// Notes that a round of the upkeep has started.
    pub(crate) fn beat(&self) {
        self.beat.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn certified(&self, has_certificate: bool) {
        self.has_certificate.store(has_certificate, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
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
