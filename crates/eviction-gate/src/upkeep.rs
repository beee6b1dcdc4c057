//! Once a minute, refreshes the certificate, then checks that evictions come to the gate. `run` starts it.

use crate::gate::has_seen;
use crate::times::time;
use crate::webhook::Webhook;
use nodegate_kube_follow::ApiError;
use nodegate_program::OngoingFault;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The wait after a round without a certificate.
const RETRY: Duration = Duration::from_secs(2);

/// After so many intervals without a self-check that came back, evictions count as not held.
const LOST_AFTER: u32 = 3;

/// The outcome of a self-check: whether it came back, or `None` if the API server does not say; and why it did not.
type SelfCheck = (Option<bool>, String);

#[derive(Debug)]
struct SelfChecks {
    interval: Duration,
    /// When the last one came back, or the first one was sent.
    since: Instant,
    passes: Option<bool>,
}

impl SelfChecks {
    /// Records a result. Returns the value of the metric if the result says so.
    fn add(&mut self, (passes, why): &SelfCheck, now: Instant) -> Option<bool> {
        if passes.is_some() {
            self.since = now;
        } else {
            tracing::warn!(why, "can't check whether evictions come to the gate; retrying");
        }
        let is_lost = now.saturating_duration_since(self.since) >= self.interval * LOST_AFTER;
        let passes = passes.or(if is_lost { Some(false) } else { self.passes });
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
pub(crate) async fn run(webhook: Arc<Webhook>) {
    let (keeper, metrics, api) = (&webhook.keeper, &webhook.gate.metrics, &webhook.gate.api);
    let interval = time("self_check", 60_000);
    let mut fault = OngoingFault::default();
    let mut checks = SelfChecks { interval, since: Instant::now(), passes: None };
    loop {
        let (now, uptime) = (nodegate_clock::wall(), nodegate_clock::boottime());
        match keeper.refresh(api, now).await {
            Ok(()) if fault.ends(uptime).is_some() => tracing::info!("the certificate is fresh again"),
            Err(error) if fault.should_log(&error, uptime) => {
                tracing::error!(%error, "can't refresh the certificate; retrying");
            }
            _ => {}
        }
        let Some(served) = keeper.served() else {
            sleep(RETRY).await;
            continue;
        };
        let expiry = served.expiry();
        metrics.certificate_expiry.set(expiry);
        if !served.is_valid(now) {
            tracing::error!(expiry, "the certificate is not valid now; evictions are not held");
        }
        let check = self_check(&webhook).await;
        if let Some(passes) = checks.add(&check, Instant::now()) {
            metrics.self_check.set(i64::from(passes));
        }
        // Replicas that were started together do not write the Secret together.
        let jitter = interval.mul_f64(fastrand::f64() / 10.0);
        let is_good = check.0 == Some(true) && !keeper.is_pending();
        sleep(if is_good { interval } else { interval.min(RETRY * 5) } + jitter).await;
    }
}

/// Evicts a Pod that does not exist, as a dry run. A replica of the gate refuses it by name; without the gate the
/// API server finds no such Pod.
async fn self_check(webhook: &Webhook) -> SelfCheck {
    let (namespace, name) = (&webhook.gate.args.namespace, &webhook.self_check);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction?dryRun=All");
    let eviction = json!({
        "kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name, "namespace": namespace},
    });
    match webhook.gate.api.post(&path, &eviction).await {
        Ok(_) => (Some(false), "the API server did not ask the gate".to_owned()),
        Err(error) if error.why.contains(&has_seen(name)) => (Some(true), String::new()),
        Err(ApiError { code: Some(404), .. }) => {
            (Some(false), "the API server did not ask the gate, or could not reach it".to_owned())
        }
        Err(error) => (None, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_answer_for_three_intervals_evictions_count_as_not_held() {
        let (start, minute) = (Instant::now(), Duration::from_mins(1));
        let [unknown, passed, bypassed] =
            [None, Some(true), Some(false)].map(|passes| (passes, String::new()));
        let mut checks = SelfChecks { interval: minute, since: start, passes: None };
        assert_eq!(checks.add(&unknown, start), None, "nothing is known yet");
        assert_eq!(checks.add(&passed, start + minute), Some(true));
        assert_eq!(checks.add(&unknown, start + minute * 3), Some(true));
        assert_eq!(checks.add(&unknown, start + minute * 4), Some(false));
        assert_eq!(checks.add(&passed, start + minute * 5), Some(true));
        assert_eq!(checks.add(&bypassed, start + minute * 6), Some(false));
        assert_eq!(checks.add(&unknown, start + minute * 7), Some(false));
        let mut never = SelfChecks { interval: minute, since: start, passes: None };
        assert_eq!(never.add(&unknown, start + minute * 3), Some(false));
    }
}
