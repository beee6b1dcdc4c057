//! The settings that a rollout of a Service's pods needs, for `nodegate wait --explain`.

use nodegate_agent_api::WaitReply;
use nodegate_readiness::Age;
use nodegate_readiness::probers::PoolChange;
use std::time::Duration;

/// The time for the `EndpointSlice` to change, and for the answer to arrive.
const ENDPOINT_UPDATE: Duration = Duration::from_secs(5);
/// The time in seconds that pods have to end after their hook: the default of Kubernetes.
const POD_END_SECONDS: u64 = 30;

/// Computes the lines for a manifest from the answer about a Service. The error says why the intervals are unknown.
pub fn hook_recipe(reply: &WaitReply) -> Result<Vec<String>, String> {
    let service = reply.service.as_deref().unwrap_or_default();
    let Some(slowest) = reply.interval_ms else {
        return Err(format!("no balancer probes /services/{service} regularly"));
    };
    let settings = reply.drain.settings;
    let interval = Duration::from_millis(settings.interval_ms.unwrap_or(slowest));
    let takes = |change| {
        let time = settings.time(change, interval).saturating_add(ENDPOINT_UPDATE);
        u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
    };
    let (timeout, ready) = (takes(PoolChange::Out), takes(PoolChange::Back));
    let (probers, every) = (reply.drain.probers, Age::from(interval));
    let (fall, rise) = (settings.fall, settings.rise);
    Ok(vec![
        format!(
            "# probers of /services/{service}: {probers}, the slowest every {every}; fall {fall}, rise {rise}"
        ),
        format!("minReadySeconds: {ready}"),
        "maxUnavailable: 1".to_owned(),
        format!("terminationGracePeriodSeconds: {}", timeout.saturating_add(POD_END_SECONDS)),
        format!("preStop.httpGet.path: /wait?for=acknowledged&service={service}&timeout={timeout}"),
    ])
}
