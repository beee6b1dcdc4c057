//! `kube_proxy`: kube-proxy keeps this node's Service rules up to date.

mod answer;
#[cfg(fuzzing)]
pub mod fuzzing;
mod stamp;

use crate::connect::ConnectError;
use crate::http::{HttpError, Prober};
use crate::options::OptionKey;
use crate::probe::{Probe, Run};
use crate::registry::Constructor;
use crate::url::HttpUrl;
use answer::{MaxAge, judge};
use nodegate_readiness::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MAX_AGE: OptionKey = OptionKey::new::<MaxAge>("max_age");

/// kube-proxy's `healthzBindAddress` as it is by default: 0.0.0.0:10256.
pub(crate) const CONSTRUCTOR: Constructor = Constructor {
    options: &[HttpUrl::OPTION, MAX_AGE],
    new: |context| {
        Arc::new(KubeProxy {
            prober: Prober::new(context.url(|| HttpUrl::local(10256, "/healthz"))),
            max_age: context.options.get(MAX_AGE.name()).unwrap_or_default(),
            was_open: AtomicBool::new(false),
            said_not_deployed: AtomicBool::new(false),
        })
    },
};

struct KubeProxy {
    prober: Prober,
    max_age: MaxAge,
    /// Whether anything ever listened on the port.
    was_open: AtomicBool,
    said_not_deployed: AtomicBool,
}

impl Probe for KubeProxy {
    fn run(&self) -> Run<'_> {
        Box::pin(async {
            let contact = Contact { was_open: &self.was_open, made: true };
            let reply = self.prober.reply().await;
            match reply {
                Ok(reply) => judge(reply.status, &reply.body, self.max_age),
                Err(HttpError::Connect(ConnectError::Refused)) if !self.was_open.load(Ordering::Relaxed) => {
                    contact.not_made();
                    self.not_deployed()
                }
                Err(error) => {
                    if matches!(error, HttpError::Connect(_)) {
                        contact.not_made();
                    }
                    error.into()
                }
            }
        })
    }
}

impl KubeProxy {
    /// Cilium, OVN-Kubernetes and others do its work in their own way: a node without it is no broken node.
    fn not_deployed(&self) -> Outcome {
        if !self.said_not_deployed.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                check = "kube_proxy",
                "nothing has listened on kube-proxy's health port since the start: taken as not deployed, so the check \
                 passes; if this cluster has kube-proxy, set its address with --check kube_proxy:url=…"
            );
        }
        Outcome::Pass
    }
}

/// Notes that something listens, also when the run is given up: a server that accepts and never answers is one.
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
