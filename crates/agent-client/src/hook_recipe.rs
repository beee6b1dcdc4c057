//! The settings that a rollout of a Service's pods needs, for `nodegate wait --explain`.

use nodegate_readiness::Age;
use nodegate_readiness::probers::AckOverrides;
use nodegate_readiness::status::Status;

/// The time in seconds for the `EndpointSlice` to change, and for the answer to arrive.
const ENDPOINT_UPDATE_SECONDS: u64 = 5;
/// The time in seconds that pods have to end after their hook: the default of Kubernetes.
const POD_END_SECONDS: u64 = 30;

/// Computes the lines for a manifest from a Service's status and the intervals of its regular probers. The error
/// says why the intervals are unknown.
pub fn hook_recipe(status: &Status, overrides: &AckOverrides) -> Result<Vec<String>, String> {
    let service = status.about.as_deref().unwrap_or_default();
    let settings = overrides.apply_to(status.drain.as_ref().map(|drain| drain.settings).unwrap_or_default());
    let probers = status.probers.iter().filter(|prober| prober.is_waited_for());
    let slowest =
        probers.clone().filter_map(|prober| prober.longest_interval_ms.max(prober.interval_ms)).max();
    let Some(slowest) = slowest else {
        return Err(format!("no balancer probes /services/{service} regularly"));
    };
    let interval = settings.interval_ms.unwrap_or(slowest);
    let takes = |times: u32| {
        interval
            .saturating_mul(u64::from(times).saturating_add(1))
            .div_ceil(1000)
            .saturating_add(ENDPOINT_UPDATE_SECONDS)
    };
    let (timeout, ready) = (takes(settings.fall), takes(settings.rise));
    let (probers, every) = (probers.count(), Age(interval.into()));
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
