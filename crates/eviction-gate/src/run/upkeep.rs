//! Once a minute, refreshes the certificate, then checks that evictions come to the gate. `run` starts it.

use crate::certificates::Keeper;
use crate::gate_metrics::GateMetrics;
use crate::review::SELF_CHECK;
use crate::serve::webhook::Webhook;
use nodegate_kube_follow::{ApiError, KubeApi};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The wait after a round without a certificate.
const RETRY: Duration = Duration::from_secs(2);

/// After so many intervals without a self-check that came back, evictions count as not held.
const LOST_AFTER: u32 = 3;

pub(super) struct Upkeep {
    pub(super) api: KubeApi,
    pub(super) keeper: Arc<Keeper>,
    pub(super) webhook: Arc<Webhook>,
    pub(super) metrics: Arc<GateMetrics>,
    pub(super) namespace: String,
    pub(super) interval: Duration,
}

#[derive(Debug)]
enum SelfCheck {
    Passed,
    Bypassed(String),
    /// The API server does not say.
    Unknown(String),
}

#[derive(Debug)]
struct SelfChecks {
    interval: Duration,
    /// When the last one came back, or the first one was sent.
    since: Instant,
    passes: Option<bool>,
}

impl SelfChecks {
    fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, since: now, passes: None }
    }

    /// Records a result. Returns the value of the metric if the result says so.
    fn add(&mut self, check: &SelfCheck, now: Instant) -> Option<bool> {
        let before = self.passes;
        let why = match check {
            SelfCheck::Passed => {
                (self.since, self.passes) = (now, Some(true));
                ""
            }
            SelfCheck::Bypassed(why) => {
                (self.since, self.passes) = (now, Some(false));
                why
            }
            SelfCheck::Unknown(why) => {
                tracing::warn!(why, "can't check whether evictions come to the gate; retrying");
                if now.saturating_duration_since(self.since) >= self.interval * LOST_AFTER {
                    self.passes = Some(false);
                }
                why
            }
        };
        match self.passes {
            Some(true) if before != Some(true) => {
                tracing::info!("self-check passed; evictions come to the gate");
            }
            Some(false) if before != Some(false) => {
                tracing::error!(why, "self-check failed; evictions are not held");
            }
            _ => {}
        }
        self.passes
    }
}

impl Upkeep {
    pub(super) async fn run(self) {
        let mut last_failure = None;
        let mut checks = SelfChecks::new(self.interval, Instant::now());
        loop {
            self.webhook.health.beat();
            let (has_certificate, is_pending) = self.certificate(&mut last_failure).await;
            if !has_certificate {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            let check = self.self_check().await;
            let has_passed = matches!(check, SelfCheck::Passed);
            if let Some(passes) = checks.add(&check, Instant::now()) {
                self.metrics.self_check.set(i64::from(passes));
            }
            // Replicas that were started together do not write the Secret together.
            let jitter = self.interval.mul_f64(fastrand::f64() / 10.0);
            let wait = if has_passed && !is_pending { self.interval } else { self.interval.min(RETRY * 5) };
            tokio::time::sleep(wait + jitter).await;
        }
    }

    /// Refreshes the certificate. Returns true if there is one, and true if a new one is pending.
    async fn certificate(&self, last_failure: &mut Option<String>) -> (bool, bool) {
        let now = nodegate_clock::wall();
        let refreshed = self.keeper.refresh(&self.api, now).await;
        let (is_pending, failure) = match refreshed {
            Ok(refreshed) => (refreshed.is_pending, refreshed.problem),
            Err(error) => (false, Some(error)),
        };
        if let Some(error) = &failure
            && failure != *last_failure
        {
            tracing::error!(%error, "can't refresh the certificate; keeping the present one and retrying");
        }
        if failure.is_none() && last_failure.is_some() {
            tracing::info!("the certificate is fresh again");
        }
        *last_failure = failure;
        let pair = self.keeper.pair();
        self.webhook.health.certified(pair.is_some());
        let Some(pair) = pair else { return (false, false) };
        self.metrics.certificate_expiry.set(pair.expiry());
        if !pair.is_valid(now) {
            tracing::error!(
                expiry = pair.expiry(),
                "the certificate is not valid now; evictions are not held"
            );
        }
        (true, is_pending)
    }

    /// Evicts a Pod that does not exist, as a dry run. A replica of the gate refuses it by name; without the gate the
    /// API server finds no such Pod.
    async fn self_check(&self) -> SelfCheck {
        let name = format!("{SELF_CHECK}{:016x}", fastrand::u64(..));
        self.webhook.api_servers.expect_self_check(&name);
        let path = format!("/api/v1/namespaces/{}/pods/{name}/eviction?dryRun=All", self.namespace);
        let eviction = json!({
            "kind": "Eviction", "apiVersion": "policy/v1",
            "metadata": {"name": name, "namespace": self.namespace},
        });
        match self.api.post(&path, &eviction).await {
            Ok(_) => SelfCheck::Bypassed("the API server did not ask the gate".to_owned()),
            Err(ApiError::Refused { message, .. })
                if message.contains(&name) && message.contains("has seen") =>
            {
                SelfCheck::Passed
            }
            Err(ApiError::Refused { code: 404, .. }) => {
                SelfCheck::Bypassed("the API server did not ask the gate, or could not reach it".to_owned())
            }
            Err(error) => SelfCheck::Unknown(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_answer_for_three_intervals_evictions_count_as_not_held() {
        let (start, minute) = (Instant::now(), Duration::from_mins(1));
        let unknown = || SelfCheck::Unknown("500".to_owned());
        let mut checks = SelfChecks::new(minute, start);
        assert_eq!(checks.add(&unknown(), start), None, "nothing is known yet");
        assert_eq!(checks.add(&SelfCheck::Passed, start + minute), Some(true));
        assert_eq!(checks.add(&unknown(), start + minute * 3), Some(true));
        assert_eq!(checks.add(&unknown(), start + minute * 4), Some(false));
        assert_eq!(checks.add(&SelfCheck::Passed, start + minute * 5), Some(true));
        assert_eq!(checks.add(&SelfCheck::Bypassed(String::new()), start + minute * 6), Some(false));
        assert_eq!(checks.add(&unknown(), start + minute * 7), Some(false));
        let mut never = SelfChecks::new(minute, start);
        assert_eq!(never.add(&unknown(), start + minute * 3), Some(false));
    }
}
