//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

use crate::check::{Check, Definition, KnownNode, Run, Timing};
use crate::http_get::{LocalPort, MAX_BODY, status_reason};
use crate::options::Key;
use crate::url::URL;
use bytes::Bytes;
use http::{Response, StatusCode};
use nodegate_program::choice;
use nodegate_readiness::{Outcome, Reason};
use rustix::system::sysinfo;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// True if kube-proxy is there. Else the agent finds out: Cilium or OVN-Kubernetes may replace it, and a node without
/// it is not broken.
const DEPLOYED: Key<bool> =
    Key { name: "deployed", parse: |text| choice(&[("auto", false), ("yes", true)])(text) };

/// The definition of the check, with kube-proxy's default `healthzBindAddress`, 0.0.0.0:10256.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kube_proxy",
    options: &[&URL, &DEPLOYED],
    timing: Timing::USUAL,
    new: |context| {
        Arc::new(KubeProxy {
            healthz: LocalPort(context.options.get(&URL), 10256),
            deployed: context.options.get(&DEPLOYED).unwrap_or_default(),
            was_open: AtomicBool::new(false),
            not_deployed: Once::new(),
            refusals: Mutex::default(),
        })
    },
};

/// The time after boot by which kube-proxy has started, if it is deployed: minutes, with an image to pull.
const COMES_WITHIN: Duration = Duration::from_mins(5);

struct KubeProxy {
    healthz: LocalPort,
    deployed: bool,
    /// True if anything ever listened on the port.
    was_open: AtomicBool,
    /// Logs once that kube-proxy counts as not deployed.
    not_deployed: Once,
    refusals: Mutex<Refusals>,
}

impl Check for KubeProxy {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            let began = Instant::now();
            // A server that accepts and never answers does listen: so it stays if the run is given up.
            let was_open = self.was_open.swap(true, Ordering::Relaxed);
            let reply = self.healthz.get(node, MAX_BODY).await;
            let refuses = reply.as_ref().is_ok_and(may_follow_apiserver);
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = refusals.count(refuses, began, node);
            drop(refusals);
            match reply {
                Ok(_) if refuses && !counts => Outcome::Pass,
                Ok(reply) => judge(reply.status(), reply.body()),
                Err(error) => match error.refused {
                    None => Outcome::Fail(error.reason),
                    Some(is_refused) => {
                        self.was_open.store(was_open, Ordering::Relaxed);
                        self.absent(error.reason, is_refused && !was_open)
                    }
                },
            }
        })
    }
}

impl KubeProxy {
    fn absent(&self, reason: Reason, never_open: bool) -> Outcome {
        if !never_open || self.deployed {
            return Outcome::Fail(reason);
        }
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

fn judge(status: StatusCode, body: &[u8]) -> Outcome {
    let is_ok = status == StatusCode::OK;
    let http = || Outcome::Fail(status_reason(status));
    if !is_ok && status != StatusCode::SERVICE_UNAVAILABLE {
        return http();
    }
    match serde_json::from_slice::<Answer>(body) {
        Err(_) if is_ok => Outcome::fail("MalformedJSON"),
        Err(_) => http(),
        Ok(answer) => match answer.unhealthy() {
            Some(reason) => Outcome::Fail(reason),
            None if answer.node_eligible == Some(false) => Outcome::Draining(Reason::new("NodeNotEligible")),
            None if is_ok => Outcome::Pass,
            None => Outcome::fail("NotSynced"),
        },
    }
}

/// Returns true for a refusal without a key that counts, as Cilium up to 1.17 answers on kube-proxy's port while
/// it does not reach the API server.
fn may_follow_apiserver(reply: &Response<Bytes>) -> bool {
    let answer = serde_json::from_slice::<Answer>(reply.body());
    reply.status() == StatusCode::SERVICE_UNAVAILABLE
        && answer.is_ok_and(|answer| {
            answer.node_eligible.is_none() && answer.healthy.is_none() && answer.status.is_empty()
        })
}

impl Answer {
    /// Returns the reason if the rules themselves are unhealthy, as newer releases report.
    fn unhealthy(&self) -> Option<Reason> {
        let stuck = self.status.iter().filter(|(_, family)| family.healthy == Some(false));
        let stuck: Vec<&str> = stuck.map(|(name, _)| name.as_str()).collect();
        match self.healthy {
            _ if !stuck.is_empty() => Some(Reason::new("NotSynced").name(&stuck.join(", "))),
            Some(false) => Some(Reason::new("NotSynced")),
            // kube-proxy reports itself healthy while it starts.
            Some(true) if self.status.is_empty() => {
                Some(Reason::new("NotSynced").detail("no rules written yet"))
            }
            _ => None,
        }
    }
}

/// The parser of kube-proxy's answers, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::{Outcome, StatusCode, judge};

    /// Returns the outcome of an answer with this status and body; `None` if the status is invalid.
    pub fn answer(status: u16, body: &[u8]) -> Option<Outcome> {
        Some(judge(StatusCode::from_u16(status).ok()?, body))
    }
}

/// The time for which such refusals must last: the program may notice an outage earlier, and its end later.
const GRACE: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct Refusals {
    /// The first run since which the API server may have been there.
    since: Option<Instant>,
}

impl Refusals {
    /// Records a run that began at `began`, and whether it met such a refusal. Returns true if that counts:
    /// they last, and the agent has heard the API server since.
    fn count(&mut self, refuses: bool, began: Instant, node: &KnownNode) -> bool {
        if !refuses {
            self.since = None;
            return false;
        }
        if node.stale {
            self.since = Some(began);
            return false;
        }
        let lasted = began.duration_since(*self.since.get_or_insert(began));
        lasted >= GRACE && node.heard.is_some_and(|heard| heard < lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(status: u16, body: &str) -> Outcome {
        judge(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    fn fail(reason: &str) -> Outcome {
        Outcome::Fail(Reason::parse(reason))
    }

    #[test]
    fn each_release_says_in_its_own_way_what_is_wrong() {
        let draining = Outcome::Draining(Reason::new("NodeNotEligible"));
        let eligible = |eligible: bool| {
            format!(
                r#"{{"lastUpdated": "2024-01-01 00:00:00 +0000 UTC","currentTime": "2024-01-01 00:30:00 +0000 UTC", "nodeEligible": {eligible}}}"#
            )
        };
        let families = |healthy: bool, eligible: bool, ipv6: bool| {
            format!(
                r#"{{"lastUpdated":"2026-01-02T03:04:05Z","nodeEligible":{eligible},"healthy":{healthy},"status":{{
                "IPv4":{{"lastUpdated":"2026-01-01T00:00:00Z","healthy":true}},"IPv6":{{"healthy":{ipv6}}}}}}}"#
            )
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
    }

    #[test]
    fn a_refusal_counts_only_while_the_api_server_is_heard() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let mut counts = |second: u64, refuses: bool, heard_s: u64, stale: bool| {
            let node = KnownNode { heard: Some(Duration::from_secs(heard_s)), stale, ..KnownNode::default() };
            refusals.count(refuses, start + Duration::from_secs(second), &node)
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
