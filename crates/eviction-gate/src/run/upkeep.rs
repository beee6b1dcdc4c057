//! Once a minute: the certificate, then the self-check.

use super::health::Health;
use crate::certificates::Keeper;
use crate::review::SELF_CHECK;
use crate::serve::metrics::GateMetrics;
use nodegate_kube_follow::{ApiError, KubeApi};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// The wait after a round without a certificate.
const RETRY: Duration = Duration::from_secs(2);

/// What the upkeep needs.
pub(super) struct Upkeep {
    pub(super) api: KubeApi,
    pub(super) keeper: Arc<Keeper>,
    pub(super) metrics: Arc<GateMetrics>,
    pub(super) health: Arc<Health>,
    pub(super) namespace: String,
    pub(super) interval: Duration,
}

/// The result of a self-check.
#[derive(Debug)]
enum SelfCheck {
    Passed,
    Bypassed(String),
    /// The API server does not say.
    Unknown(ApiError),
}

impl Upkeep {
    /// Runs until the future is dropped.
    pub(super) async fn run(self) {
        let mut last = None;
        let mut last_failure = None;
        loop {
            self.health.beat();
            let has_certificate = self.certificate(&mut last_failure).await;
            if !has_certificate {
                tokio::time::sleep(RETRY).await;
                continue;
            }
            self.report(self.self_check().await, &mut last);
            // Replicas that were started together do not write the Secret together.
            let jitter = self.interval.mul_f64(fastrand::f64() / 10.0);
            let wait = if last == Some(true) { self.interval } else { self.interval.min(RETRY * 5) };
            tokio::time::sleep(wait + jitter).await;
        }
    }

    /// Looks after the certificate; returns true if there is one.
    async fn certificate(&self, last_failure: &mut Option<String>) -> bool {
        let now = nodegate_clock::wall();
        let failure = self.keeper.refresh(&self.api, now).await.err().map(|error| error.to_string());
        if let Some(error) = &failure
            && failure != *last_failure
        {
            tracing::error!(error, "can't refresh the certificate; keeping the present one and retrying");
        }
        if failure.is_none() && last_failure.is_some() {
            tracing::info!("the certificate is fresh again");
        }
        *last_failure = failure;
        let pair = self.keeper.pair();
        self.health.certified(pair.is_some());
        let Some(pair) = pair else { return false };
        self.metrics.certificate_expires(pair.expiry());
        if !pair.is_valid(now) {
            tracing::error!(
                expiry = pair.expiry(),
                "the certificate is not valid now; evictions go by unheld"
            );
        }
        true
    }

    /// Evicts a Pod that does not exist, as a dry run. A replica of the gate refuses it by name; without the gate the
    /// API server finds no such Pod.
    async fn self_check(&self) -> SelfCheck {
        let name = format!("{SELF_CHECK}{:016x}", fastrand::u64(..));
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
            Err(error) => SelfCheck::Unknown(error),
        }
    }

    /// Logs each change, and sets the metric.
    fn report(&self, check: SelfCheck, last: &mut Option<bool>) {
        match check {
            SelfCheck::Passed => {
                if *last != Some(true) {
                    tracing::info!("self-check passed; evictions come to the gate");
                }
                *last = Some(true);
                self.metrics.self_checked(true);
            }
            SelfCheck::Bypassed(why) => {
                if *last != Some(false) {
                    tracing::error!(why, "self-check failed; evictions go by unheld");
                }
                *last = Some(false);
                self.metrics.self_checked(false);
            }
            SelfCheck::Unknown(error) => {
                tracing::warn!(%error, "can't check whether evictions come to the gate; retrying");
            }
        }
    }
}
