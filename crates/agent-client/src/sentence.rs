//! A status in sentences for people: the same on the agent's page, in `nodegate status` and in the plugin.

use crate::hints;
use nodegate_agent_api::{CheckStatus, ServiceStatus, Status};
use nodegate_program::sanitize_short;
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::host_signals::NODE_SHUTDOWN;
use nodegate_readiness::rules::CACHE_STALE;
use nodegate_readiness::{Age, HostSignals, Kept, LastKnown, Reason, Verdict};
use std::time::Duration;

/// The meanings of Kubernetes' words. Other reasons, such as those of checks, explain themselves.
const MEANINGS: [(&str, &str); 13] = [
    ("Unschedulable", "cordoned"),
    ("Deleting", "the Node object is being deleted"),
    ("Taint:ToBeDeletedByClusterAutoscaler", "the cluster autoscaler removes it"),
    ("Taint:karpenter.sh/disrupted", "Karpenter removes it"),
    ("Taint:karpenter.sh/disruption", "Karpenter removes it"),
    ("ExcludedFromLoadBalancers", "labelled to be left out of load balancers"),
    ("NodeNotFound", "the cluster has no Node of this name"),
    ("NodeStatusUnknown", "the kubelet has stopped reporting"),
    ("KubeletNotReady", "the kubelet says that it is not ready"),
    ("ReadyConditionMissing", "the kubelet has not reported yet"),
    ("NoRecentResult", "the check has not reported in time"),
    (NODE_SHUTDOWN, "the host is going down"),
    (CACHE_STALE, "no answer from the API server"),
];

/// The longest name of a Node that an API server accepts.
const MAX_NAME: usize = 253;

/// The meaning of `unconfirmed`.
pub const UNCONFIRMED: &str =
    "the control plane does not hear the kubelet (Ready=Unknown), but the kubelet on this node answers";

/// Says of a watched Service how many endpoints it has here, and whether its balancers know.
pub fn service(service: &ServiceStatus) -> String {
    let endpoints = match service.local_endpoints {
        0 => "no ready endpoint here".to_owned(),
        1 => "1 ready endpoint here".to_owned(),
        more => format!("{more} ready endpoints here"),
    };
    let acknowledged = match service.acknowledged() {
        Some(true) => "its balancers know".to_owned(),
        Some(false) => "its balancers do not all know yet".to_owned(),
        None => {
            let why = service.drain.not_known.as_deref().unwrap_or_default();
            format!("not known whether its balancers know: {why}")
        }
    };
    format!("{}: {endpoints}; {acknowledged}", service.service)
}

/// Returns a reason with its meaning before it, e.g. `cordoned (Unschedulable)`.
pub fn explained(reason: &Reason) -> String {
    let known = MEANINGS.iter().find(|(known, _)| *known == reason.as_str());
    let meaning = match (known, reason.code(), reason.names()) {
        (Some((_, meaning)), ..) => (*meaning).to_owned(),
        (None, "Taint", key) => format!("tainted with {key}"),
        (None, "Label", key) => format!("labelled with {key}"),
        (None, "Annotation", key) => format!("annotated with {key}"),
        (None, "Condition", rule) => format!("its condition {rule} says so"),
        (None, ..) => return reason.to_string(),
    };
    format!("{meaning} ({reason})")
}

/// Returns the last known verdict with its reason, e.g. `Draining: cordoned (Unschedulable)`.
pub fn last_known(known: &LastKnown) -> String {
    let why = known.reason.as_ref().map_or(String::new(), |reason| format!(": {}", explained(reason)));
    format!("{}{why}", known.verdict.title())
}

/// Returns what the host says of its own shutdown.
pub fn shutdown(host: HostSignals) -> String {
    match (host.lock, host.delay_ms) {
        _ if host.shutdown => "the host is going down".to_owned(),
        (true, Some(0)) => format!("does not wait for load balancers: {}", hints::NO_DELAY),
        (true, Some(delay)) => {
            format!("waits for load balancers, {}", hints::at_most(Duration::from_millis(delay)))
        }
        (true, None) => "waits for load balancers".to_owned(),
        (false, _) => "does not wait for load balancers: nodegate-shutdown holds no lock".to_owned(),
    }
}

/// Says why a cordoned node is in the pool.
pub fn kept(kept: &Kept) -> String {
    let Kept { drained, nodes, max_drained, first, .. } = kept;
    let are = if *drained == 1 { "is" } else { "are" };
    let first = sanitize_short(first, MAX_NAME);
    format!(
        "kept in the pool: {drained} of {nodes} nodes {are} drained (--max-drained {max_drained}), {first} for longest"
    )
}

/// Returns the reason of the verdict.
pub fn why(status: &Status) -> String {
    let (verdict, reason) = match (status.verdict, &status.reason) {
        (None, _) => return status.error.as_deref().unwrap_or("no verdict").to_owned(),
        (Some(Verdict::Ready), _) => {
            let cordoned = status.kept.as_ref().map(|why| format!(": cordoned, but {}", kept(why)));
            return "may get new traffic".to_owned() + &cordoned.unwrap_or_default();
        }
        (Some(verdict), None) => return verdict.title().to_owned(),
        (Some(verdict), Some(reason)) => (verdict, reason),
    };
    let failed = status.checks.iter().filter(|check| check.default && check.passed == Some(false));
    let (decides, others): (Vec<_>, Vec<_>) = failed.partition(|check| check.reason.as_ref() == Some(reason));
    let said = |check: &CheckStatus| {
        let reason = check.reason.as_ref().map_or("fails".to_owned(), explained);
        if check.name == NODE_READY { reason } else { format!("{}: {reason}", check.name) }
    };
    let first = match decides.first() {
        Some(check) => said(check),
        None if reason.as_str().is_empty() => verdict.title().to_owned(),
        None => explained(reason),
    };
    let others = decides.iter().skip(1).chain(&others).map(|check| said(check));
    std::iter::once(first).chain(others).collect::<Vec<_>>().join("; ")
}

/// Explains why the verdict is only a guess, and what was known before; `None` while the cache can be trusted
/// and the Ready condition counts.
pub fn caveat(status: &Status) -> Option<String> {
    if status.unconfirmed {
        let leaves = status.leaves_in_ms.map(|left| format!("; the node leaves the pool in {}", Age(left)));
        return Some(UNCONFIRMED.to_owned() + &leaves.unwrap_or_default());
    }
    if !status.is_based_on_stale_cache() || status.verdict.is_none() {
        return None;
    }
    let heard = match status.cache.age_ms {
        Some(age) if status.cache.taken_over => {
            format!("the API server was last heard {} ago, by the agent before this one", Age(age))
        }
        Some(age) => format!("the API server was last heard {} ago", Age(age)),
        None => "the API server has not been heard since the start".to_owned(),
    };
    let before = match &status.last_known {
        Some(known) => format!("; before that the node was {}", last_known(known)),
        None if status.node_exists.is_none() => "; nothing is known of the node".to_owned(),
        None => String::new(),
    };
    let then = match (status.cache.on_stale.as_str(), status.verdict) {
        ("not-ready", _) => "fails closed",
        ("keep-drain", Some(Verdict::Draining)) => "holds the last known drain",
        _ => "fails open",
    };
    Some(format!("{heard}{before}; the answer {then}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_check_that_fails_is_named_the_one_that_decides_first() {
        let check = |name: &str, reason: &str| -> CheckStatus {
            let json = json!({"name": name, "default": true, "active": true, "passed": false, "reason": reason, "duration_ms": 0});
            serde_json::from_value(json).unwrap()
        };
        let status = |checks| Status {
            verdict: Some(Verdict::NotReady),
            reason: Some(Reason::parse("HTTP 500")),
            checks,
            ..Status::default()
        };
        let all =
            vec![check("node_ready", "Unschedulable"), check("kubelet", "HTTP 500"), check("network", "DNS")];
        assert_eq!(why(&status(all)), "kubelet: HTTP 500; cordoned (Unschedulable); network: DNS");
        assert_eq!(why(&status(vec![check("kubelet", "HTTP 500")])), "kubelet: HTTP 500");
    }

    #[test]
    fn reasons_are_explained() {
        for (text, sentence) in [
            ("Unschedulable", "cordoned (Unschedulable)"),
            ("Taint:karpenter.sh/disrupted", "Karpenter removes it (Taint:karpenter.sh/disrupted)"),
            ("Taint:a/b", "tainted with a/b (Taint:a/b)"),
            ("Label:a/b", "labelled with a/b (Label:a/b)"),
            ("Annotation:a/b", "annotated with a/b (Annotation:a/b)"),
            (
                "Condition:DrainInProgress",
                "its condition DrainInProgress says so (Condition:DrainInProgress)",
            ),
            ("connection refused", "connection refused"),
        ] {
            assert_eq!(explained(&Reason::parse(text)), sentence);
        }
    }
}
