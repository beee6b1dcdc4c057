//! Once a minute, refreshes the certificate, then checks that evictions come to the gate. `run` starts it.

use crate::review::has_seen;
use crate::webhook::Webhook;
use nodegate_kube_follow::{ApiError, KubeApi};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The wait after a round without a certificate.
const RETRY: Duration = Duration::from_secs(2);

/// After so many intervals without a self-check that came back, evictions count as not held.
const LOST_AFTER: u32 = 3;

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
        let (passes, why) = match check {
            SelfCheck::Passed => (Some(true), ""),
            SelfCheck::Bypassed(why) => (Some(false), &**why),
            SelfCheck::Unknown(why) => {
                tracing::warn!(why, "can't check whether evictions come to the gate; retrying");
                let is_lost = now.saturating_duration_since(self.since) >= self.interval * LOST_AFTER;
                (if is_lost { Some(false) } else { self.passes }, &**why)
            }
        };
        if !matches!(check, SelfCheck::Unknown(_)) {
            self.since = now;
        }
        if passes != self.passes {
            self.passes = passes;
            if passes == Some(true) {
                tracing::info!("self-check passed; evictions come to the gate");
            } else {
                tracing::error!(why, "self-check failed; evictions are not held");
            }
        }
        passes
    }
}

/// Runs until the future is dropped.
pub(super) async fn run(webhook: Arc<Webhook>, api: KubeApi, interval: Duration) {
    let (keeper, metrics) = (&webhook.keeper, &webhook.metrics);
    let mut last = Ok(());
    let mut checks = SelfChecks::new(interval, Instant::now());
    loop {
        let now = nodegate_clock::wall();
        let refreshed = keeper.refresh(&api, now).await;
        match &refreshed {
            Err(error) if refreshed != last => {
                tracing::error!(%error, "can't refresh the certificate; keeping the present one and retrying");
            }
            Ok(()) if last.is_err() => tracing::info!("the certificate is fresh again"),
            _ => {}
        }
        last = refreshed;
        let Some(pair) = keeper.pair() else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        let expiry = pair.expiry();
        metrics.certificate_expiry.set(expiry);
        if !pair.is_valid(now) {
            tracing::error!(expiry, "the certificate is not valid now; evictions are not held");
        }
        let check = self_check(&webhook, &api).await;
        let has_passed = matches!(check, SelfCheck::Passed);
        if let Some(passes) = checks.add(&check, Instant::now()) {
            metrics.self_check.set(i64::from(passes));
        }
        // Replicas that were started together do not write the Secret together.
        let jitter = interval.mul_f64(fastrand::f64() / 10.0);
        let wait = if has_passed && !keeper.is_pending() { interval } else { interval.min(RETRY * 5) };
        tokio::time::sleep(wait + jitter).await;
    }
}

/// Evicts a Pod that does not exist, as a dry run. A replica of the gate refuses it by name; without the gate the
/// API server finds no such Pod.
async fn self_check(webhook: &Webhook, api: &KubeApi) -> SelfCheck {
    let (namespace, name) = (&webhook.gate.settings.namespace, &webhook.self_check);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All");
    let eviction = json!({
        "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name, "namespace": namespace},
    });
    match api.post(&path, &eviction).await {
        Ok(_) => SelfCheck::Bypassed("the API server did not ask the gate".to_owned()),
        Err(ApiError::Refused { message, .. }) if message.contains(&has_seen(name)) => SelfCheck::Passed,
        Err(ApiError::Refused { code: 404, .. }) => {
            SelfCheck::Bypassed("the API server did not ask the gate, or could not reach it".to_owned())
        }
        Err(error) => SelfCheck::Unknown(error.to_string()),
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
