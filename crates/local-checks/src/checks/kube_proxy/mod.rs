//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

use crate::check::{Check, Definition, KnownNode, Run, Timing};
use crate::http_get::{LocalPort, MAX_BODY};
use crate::options::{Key, millis};
use crate::url::HttpUrl;
use healthz::{DEFAULT_MAX_AGE, judge, may_follow_apiserver};
use nodegate_program::choice;
use nodegate_readiness::{Outcome, Reason};
use rustix::system::sysinfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

mod healthz;

/// The maximum age of `lastUpdated` in an answer that is otherwise healthy: a second to a day.
const MAX_AGE: Key<Duration> = millis::<1000, 86_400_000>("max_age");
/// True if kube-proxy is there. Else the agent finds out: Cilium or OVN-Kubernetes may replace it, and a node without
/// it is not broken.
const DEPLOYED: Key<bool> =
    Key { name: "deployed", parse: |text| choice(&[("auto", false), ("yes", true)])(text) };

/// The definition of the check, with kube-proxy's default `healthzBindAddress`, 0.0.0.0:10256.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kube_proxy",
    options: &[&HttpUrl::KEY, &MAX_AGE, &DEPLOYED],
    timing: Timing::USUAL,
    new: |context| {
        Arc::new(KubeProxy {
            healthz: LocalPort(context.options.get(&HttpUrl::KEY), 10256),
            max_age: context.options.get(&MAX_AGE).unwrap_or(DEFAULT_MAX_AGE),
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
    max_age: Duration,
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
                Ok(reply) => judge(reply.status, &reply.body, self.max_age),
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
        if node_up() < COMES_WITHIN {
            return Outcome::Fail(Reason::new("NotStarted").detail(format_args!(
                "nothing listens yet; taken as not deployed once the node has been up for {}",
                humantime::format_duration(COMES_WITHIN)
            )));
        }
        self.not_deployed.call_once(warn_not_deployed);
        Outcome::Pass
    }
}

fn warn_not_deployed() {
    tracing::warn!(
        check = "kube_proxy",
        "nothing has listened on kube-proxy's health port since the agent started; the check passes, as if \
         kube-proxy were not deployed. If this cluster has kube-proxy, set --check-settings \
         kube_proxy:deployed=yes, and its address with url=…"
    );
}

/// Returns the time since the boot of the kernel; a container has no other one.
fn node_up() -> Duration {
    Duration::from_secs(u64::try_from(sysinfo().uptime).unwrap_or(0))
}

/// The parser of kube-proxy's answers, for the fuzz targets.
#[cfg(feature = "fuzzing")]
pub mod fuzzing {
    use super::healthz::{DEFAULT_MAX_AGE, judge};
    use http::StatusCode;
    use nodegate_readiness::Outcome;

    /// Returns the outcome of an answer with this status and body; `None` if the status is invalid.
    pub fn answer(status: u16, body: &[u8]) -> Option<Outcome> {
        Some(judge(StatusCode::from_u16(status).ok()?, body, DEFAULT_MAX_AGE))
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
