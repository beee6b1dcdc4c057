//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

use crate::check::{Check, Context, KnownNode, Run};
use crate::http_get::{MAX_BODY, Url, get_reason, status_reason};
use http::StatusCode;
use nodegate_kube_follow::GetError;
use nodegate_program::choice;
use nodegate_readiness::{Outcome, Reason};
use rustix::system::sysinfo;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The port of kube-proxy's default `healthzBindAddress`.
const HEALTHZ_PORT: u16 = 10256;
/// The time after boot by which kube-proxy has started, if it is deployed: minutes, with an image to pull.
const COMES_WITHIN: Duration = Duration::from_mins(5);

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let deployed = choice(&[("auto", false), ("yes", true)]);
    Arc::new(KubeProxy {
        healthz: Url::of(context, HEALTHZ_PORT),
        deployed: context.settings.take("deployed", deployed).unwrap_or_default(),
        was_open: AtomicBool::new(false),
        not_deployed: Once::new(),
        refused_since: Mutex::default(),
    })
}

struct KubeProxy {
    healthz: Url,
    /// True if kube-proxy is there. Else the agent finds out: Cilium or OVN-Kubernetes may replace it, and a node without
    /// it is not broken.
    deployed: bool,
    /// True if anything ever listened on the port.
    was_open: AtomicBool,
    /// Logs once that kube-proxy counts as not deployed.
    not_deployed: Once,
    /// The first of the refusals in a row since which the API server may have been there.
    refused_since: Mutex<Option<Instant>>,
}

impl Check for KubeProxy {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            let began = Instant::now();
            // A server that accepts and never answers does listen: so it stays if the run is given up.
            let was_open = self.was_open.swap(true, Ordering::Relaxed);
            let reply = self.healthz.get(node, None, MAX_BODY).await;
            let outcome = reply.as_ref().ok().map(|reply| judge(reply.status(), reply.body()));
            let mut since = self.refused_since.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = refusal_counts(&mut since, outcome == Some(None), began, node);
            drop(since);
            let error = match reply {
                Ok(_) if counts => return Outcome::fail("NotSynced"),
                Ok(_) => return outcome.flatten().unwrap_or(Outcome::Pass),
                Err(error) => error,
            };
            let is_open = !matches!(error, GetError::NotConnected(_) | GetError::NotResolved(_));
            self.was_open.store(was_open || is_open, Ordering::Relaxed);
            let refuses = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            match error {
                GetError::NotConnected(error) if refuses(&error) && !was_open && !self.deployed => {
                    self.absent()
                }
                error => Outcome::Fail(get_reason(error)),
            }
        })
    }
}

impl KubeProxy {
    /// Returns the outcome while nothing has ever listened.
    fn absent(&self) -> Outcome {
        // The time since the boot of the kernel; a container has no other one.
        let node_up = Duration::from_secs(u64::try_from(sysinfo().uptime).unwrap_or(0));
        if node_up < COMES_WITHIN {
            return Outcome::Fail(Reason::new("NotStarted").detail(format_args!(
                "nothing listens yet; taken as not deployed once the node has been up for {}",
                humantime::format_duration(COMES_WITHIN)
            )));
        }
        self.not_deployed.call_once(|| {
            tracing::warn!(
                check = "kube_proxy",
                "nothing has listened on kube-proxy's health port since the agent started; the check passes, as \
                 if kube-proxy were not deployed. If this cluster has kube-proxy, set --check-settings \
                 kube_proxy:deployed=yes, and its address with url=…"
            );
        });
        Outcome::Pass
    }
}

// Both from pkg/proxy/healthcheck. Kubernetes 1.28 has `nodeEligible`, with a 503 that means "healthy, but the
// node is being deleted". Newer releases add `healthy`, and a `status` for each IP family once it has written
// rules.

/// The keys of kube-proxy's `/healthz` that count; each may be missing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    node_eligible: Option<bool>,
    healthy: Option<bool>,
    #[serde(default)]
    status: BTreeMap<String, Family>,
}

#[derive(Debug, Deserialize)]
struct Family {
    healthy: Option<bool>,
}

/// Returns the outcome of an answer; `None` for a refusal without a key that counts, as Cilium up to 1.17 answers on
/// kube-proxy's port while it does not reach the API server.
pub(crate) fn judge(status: StatusCode, body: &[u8]) -> Option<Outcome> {
    let is_ok = status == StatusCode::OK;
    let http = || Some(Outcome::Fail(status_reason(status)));
    if !is_ok && status != StatusCode::SERVICE_UNAVAILABLE {
        return http();
    }
    let answer = match serde_json::from_slice::<Answer>(body) {
        Ok(answer) => answer,
        Err(_) if is_ok => return Some(Outcome::fail("MalformedJSON")),
        Err(_) => return http(),
    };
    let not_synced = Reason::new("NotSynced");
    let stuck = answer.status.iter().filter(|(_, family)| family.healthy == Some(false));
    let stuck: Vec<&str> = stuck.map(|(name, _)| name.as_str()).collect();
    let has_status = !answer.status.is_empty();
    Some(match (answer.healthy, answer.node_eligible) {
        _ if !stuck.is_empty() => Outcome::Fail(not_synced.name(&stuck.join(", "))),
        (Some(false), _) => Outcome::Fail(not_synced),
        // kube-proxy reports itself healthy while it starts.
        (Some(true), _) if !has_status => Outcome::Fail(not_synced.detail("no rules written yet")),
        (_, Some(false)) => Outcome::Draining(Reason::new("NodeNotEligible")),
        _ if is_ok => Outcome::Pass,
        (None, None) if !has_status => return None,
        _ => Outcome::Fail(not_synced),
    })
}

/// The time for which such refusals must last: the program may notice an outage earlier, and its end later.
const GRACE: Duration = Duration::from_mins(1);

/// Records a run that began at `began`, and whether it met such a refusal. Returns true if that counts: they last, and
/// the agent has heard the API server since.
fn refusal_counts(since: &mut Option<Instant>, refuses: bool, began: Instant, node: &KnownNode) -> bool {
    if !refuses || node.stale {
        *since = refuses.then_some(began);
        return false;
    }
    let lasted = began.duration_since(*since.get_or_insert(began));
    lasted >= GRACE && node.heard.is_some_and(|heard| heard < lasted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(status: u16, body: &str) -> Outcome {
        judge(StatusCode::from_u16(status).unwrap(), body.as_bytes()).unwrap()
    }

    fn fail(reason: &str) -> Outcome {
        Outcome::Fail(Reason::parse(reason))
    }

    #[test]
    fn each_release_says_in_its_own_way_what_is_wrong() {
        let draining = Outcome::Draining(Reason::new("NodeNotEligible"));
        let eligible = |eligible: bool| format!(r#"{{"currentTime":"2024","nodeEligible":{eligible}}}"#);
        let families = |healthy: bool, eligible: bool, ipv6: bool| {
            let status = format!(r#"{{"IPv4":{{"healthy":true}},"IPv6":{{"healthy":{ipv6}}}}}"#);
            format!(r#"{{"nodeEligible":{eligible},"healthy":{healthy},"status":{status}}}"#)
        };
        let healthy = |more: &str| format!(r#"{{"nodeEligible":true,"healthy":true{more}}}"#);
        for (status, body, outcome) in [
            (503, eligible(false), draining.clone()),
            (503, eligible(true), fail("NotSynced")),
            (200, eligible(false), draining.clone()),
            (200, eligible(true), Outcome::Pass),
            (200, "{}".to_owned(), Outcome::Pass),
            (200, families(true, true, true), Outcome::Pass),
            (503, families(false, true, false), fail("NotSynced: IPv6")),
            (503, families(true, false, true), draining),
            // This is worse than draining.
            (503, families(false, false, false), fail("NotSynced: IPv6")),
            (503, families(false, true, true), fail("NotSynced")),
            (200, families(false, true, true), fail("NotSynced")),
            (200, healthy(""), fail("NotSynced: no rules written yet")),
            (200, healthy(r#","status":{"IPv4":{"healthy":true}}"#), Outcome::Pass),
        ] {
            assert_eq!(at(status, &body), outcome, "{status} {body}");
        }
    }

    #[test]
    fn answers_that_are_something_else() {
        for body in ["", "ok", "{", "[]", "null", r#"{"healthy":"yes"}"#, r#"{"status":7}"#] {
            assert_eq!(at(200, body), fail("MalformedJSON"), "{body}");
            assert_eq!(at(503, body), fail("HTTP 503"), "{body}");
        }
        assert_eq!(at(404, "404 page not found"), fail("HTTP 404"));
        assert_eq!(at(204, ""), fail("HTTP 204"));
        let of_cilium = br#"{"lastUpdated":"2024","currentTime":"2024"}"#;
        assert_eq!(judge(StatusCode::SERVICE_UNAVAILABLE, of_cilium), None);
    }

    #[test]
    fn a_refusal_counts_only_while_the_api_server_is_heard() {
        let start = Instant::now();
        let mut since = None;
        let mut counts = |second: u64, refuses: bool, heard_s: u64, stale: bool| {
            let node = KnownNode { heard: Some(Duration::from_secs(heard_s)), stale, ..KnownNode::default() };
            refusal_counts(&mut since, refuses, start + Duration::from_secs(second), &node)
        };
        assert!(!counts(0, true, 1, false), "it has just started");
        assert!(counts(60, true, 59, false), "it lasts, and the API server was heard meanwhile");
        assert!(!counts(65, false, 4, false));
        assert!(!counts(70, true, 9, false));
        assert!(!counts(130, true, 69, false), "not heard since it began");
        assert!(!counts(135, true, 74, true));
        assert!(!counts(140, true, 1, false), "the API server is back; Cilium does not know yet");
        assert!(!counts(190, true, 1, false));
        assert!(counts(195, true, 1, false));
    }
}
