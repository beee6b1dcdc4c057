//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

mod healthz;
mod proxy_time;
mod refusals;

use crate::connect::ConnectError;
use crate::definition::Definition;
use crate::http_get::HttpError;
use crate::interface::{Check, KnownNode, Run};
use crate::local_port::LocalPort;
use crate::options::OptionKey;
use crate::timing::Timing;
use crate::url::HttpUrl;
use healthz::{DEFAULT_MAX_AGE, MaxAge, judge, may_follow_apiserver};
use nodegate_program::choice;
use nodegate_readiness::{Outcome, Reason};
use refusals::Refusals;
use rustix::system::sysinfo;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const MAX_AGE: OptionKey = OptionKey::new::<MaxAge>("max_age");
const DEPLOYED: OptionKey = OptionKey::new::<Deployed>("deployed");

/// The definition of the check, with kube-proxy's default `healthzBindAddress`, 0.0.0.0:10256.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kube_proxy",
    options: &[HttpUrl::OPTION, MAX_AGE, DEPLOYED],
    timing: Timing::USUAL,
    new: |context| {
        Arc::new(KubeProxy {
            healthz: LocalPort::new(context, 10256, "/healthz"),
            max_age: context.options.get(MAX_AGE).unwrap_or(DEFAULT_MAX_AGE),
            deployed: context.options.get(DEPLOYED).unwrap_or_default(),
            was_open: AtomicBool::new(false),
            not_deployed: Once::new(),
            refusals: Mutex::default(),
        })
    },
};

/// The time after boot by which kube-proxy has started, if it is deployed. A node starts it minutes after the
/// kubelet, with an image that it may have to pull first.
const COMES_WITHIN: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deployed {
    /// The agent finds out, from an earlier listener on the port and from the node's uptime: another program may
    /// replace kube-proxy, such as Cilium or OVN-Kubernetes, and a node without it is not broken.
    #[default]
    Auto,
    Yes,
}

impl FromStr for Deployed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choice(&[("auto", Self::Auto), ("yes", Self::Yes)])(text)
    }
}

struct KubeProxy {
    healthz: LocalPort,
    max_age: MaxAge,
    deployed: Deployed,
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
            let reply = self.healthz.reply(node).await;
            let refuses = reply.as_ref().is_ok_and(may_follow_apiserver);
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = refusals.count(refuses, began, node);
            drop(refusals);
            match reply {
                Ok(_) if refuses && !counts => Outcome::Pass,
                Ok(reply) => judge(reply.status, &reply.body, self.max_age),
                Err(HttpError::Connect(error)) => {
                    self.was_open.store(was_open, Ordering::Relaxed);
                    self.absent(error, was_open)
                }
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}

impl KubeProxy {
    fn absent(&self, error: ConnectError, was_open: bool) -> Outcome {
        if !error.is_refused || was_open || self.deployed == Deployed::Yes {
            return Outcome::Fail(error.reason);
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
