//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

mod deployed;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
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
use deployed::{Absence, COMES_WITHIN, Deployed};
use healthz::{MaxAge, judge, may_follow_apiserver};
use nodegate_readiness::{Outcome, Reason};
use refusals::Refusals;
use rustix::system::sysinfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
            max_age: context.options.get(MAX_AGE.name()).unwrap_or_default(),
            deployed: context.options.get(DEPLOYED.name()).unwrap_or_default(),
            was_open: AtomicBool::new(false),
            said_not_deployed: AtomicBool::new(false),
            refusals: Mutex::default(),
        })
    },
};

struct KubeProxy {
    healthz: LocalPort,
    max_age: MaxAge,
    deployed: Deployed,
    /// True if anything ever listened on the port.
    was_open: AtomicBool,
    said_not_deployed: AtomicBool,
    /// Its refusals that may only say that the API server is away.
    refusals: Mutex<Refusals>,
}

impl Check for KubeProxy {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async {
            let began = Instant::now();
            let contact = Contact { was_open: &self.was_open, made: true };
            let reply = self.healthz.reply(node).await;
            let refuses = reply.as_ref().is_ok_and(may_follow_apiserver);
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            let counts = refusals.count(refuses, began, node);
            drop(refusals);
            match reply {
                Ok(_) if refuses && !counts => Outcome::Pass,
                Ok(reply) => judge(reply.status, &reply.body, self.max_age),
                Err(HttpError::Connect(error)) => {
                    contact.not_made();
                    self.absent(error)
                }
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}

impl KubeProxy {
    fn absent(&self, error: ConnectError) -> Outcome {
        let was_there = self.was_open.load(Ordering::Relaxed);
        match (&error, self.deployed.absence(was_there, node_up())) {
            (ConnectError::Refused, Absence::NotStarted) => {
                Outcome::Fail(Reason::new("NotStarted").detail(format_args!(
                    "nothing listens yet; taken as not deployed once the node has been up for {}",
                    humantime::format_duration(COMES_WITHIN)
                )))
            }
            (ConnectError::Refused, Absence::NotDeployed) => {
                self.warn_not_deployed();
                Outcome::Pass
            }
            _ => Outcome::Fail(error.into()),
        }
    }

    fn warn_not_deployed(&self) {
        if !self.said_not_deployed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                check = "kube_proxy",
                "nothing has listened on kube-proxy's health port since the agent started; the check \
                 passes, as if kube-proxy were not deployed. If this cluster has kube-proxy, set \
                 --check-settings kube_proxy:deployed=yes, and its address with url=…"
            );
        }
    }
}

/// Returns the time since the boot of the kernel; a container has no other one.
fn node_up() -> Duration {
    Duration::from_secs(u64::try_from(sysinfo().uptime).unwrap_or(0))
}

/// Records that something listens, even if the run is given up: a server that accepts and never answers does
/// listen.
struct Contact<'a> {
    was_open: &'a AtomicBool,
    made: bool,
}

impl Contact<'_> {
    fn not_made(mut self) {
        self.made = false;
    }
}

impl Drop for Contact<'_> {
    fn drop(&mut self) {
        if self.made {
            self.was_open.store(true, Ordering::Relaxed);
        }
    }
}
