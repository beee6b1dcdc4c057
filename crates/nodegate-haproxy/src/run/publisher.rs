//! `--publish-status`: writes the statuses of Services, and Events on those that are not published.

// No failure here changes HAProxy's configuration. Only the holder of the Lease writes. Each write names the
// version of the Service that it was decided for, so it changes nothing if the Service has changed since.

use crate::failure::{FORBIDDEN, Failing};
use crate::lease::LeaseKeeper;
use crate::lease::candidate::REQUEST;
use crate::plan::{
    Decision, Desired, InEffect, Ingress, ObservedService, ServiceKey, ServiceStatus, names::hash,
};
use crate::run::Shared;
use crate::run::metrics::count;
use crate::watch::Observed;
use crate::watch::life::Life;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nodegate_kube_follow::{Backoff, KubeApi};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// The interval between looks at the Lease and at writes that wait.
const TICK: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(50);
/// The maximum number of writes before the plan is looked at again.
const AT_ONCE: usize = 50;
const NOT_PUBLISHED: &str = "NotPublished";

type Services = BTreeMap<ServiceKey, Arc<ObservedService>>;
/// The kind of a request, and its Service.
type Id = (&'static str, ServiceKey);
type Sent = BTreeMap<Id, (String, Option<Instant>)>;

pub(crate) struct Publisher {
    pub(crate) lease: LeaseKeeper,
    held: bool,
    api: KubeApi,
    shared: Arc<Shared>,
    addresses: Vec<Ingress>,
    /// The content of the last request, which is not sent twice. If that failed, also the time of the next one.
    sent: Sent,
    /// The Services with entries of another program.
    foreign: BTreeSet<ServiceKey>,
    failing: Failing,
    backoff: Backoff,
}

struct Write {
    id: Id,
    /// Distinguishes it from other requests of its kind about the Service.
    content: String,
    body: Value,
}

impl Publisher {
    pub(crate) fn of(shared: &Arc<Shared>, life: &Arc<Life>) -> Option<Self> {
        let addresses = shared.setup.publish_status.clone()?.0;
        if addresses.is_empty() {
            return None;
        }
        let api = KubeApi::new(REQUEST, life.observer(""));
        Some(Self {
            lease: LeaseKeeper::new(api.clone(), shared.setup.lease.clone()),
            held: false,
            api,
            shared: shared.clone(),
            addresses,
            sent: BTreeMap::new(),
            foreign: BTreeSet::new(),
            failing: Failing::default(),
            backoff: Backoff::default(),
        })
    }

    /// Writes after each change, while this process holds the Lease.
    pub(crate) async fn run(&mut self, mut observed: Receiver<Observed>) {
        let mut desired = self.shared.desired.subscribe();
        let mut applied = self.shared.applied.subscribe();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_due = false;
        loop {
            let changed = tokio::select! {
                changed = desired.changed() => changed,
                changed = applied.changed() => changed,
                changed = observed.changed() => changed,
                _ = tick.tick() => {
                    let before = self.held;
                    if self.keeps_lease().await == before && !is_due { continue }
                    Ok(())
                }
            };
            // The senders live as long as this task.
            if changed.is_err() {
                return;
            }
            let facts = observed.borrow_and_update().facts().unwrap_or_default();
            let (desired, applied) =
                (desired.borrow_and_update().clone(), applied.borrow_and_update().clone());
            is_due = match (desired, applied) {
                (Some(desired), Ok(applied)) => self.round(&desired, &applied, &facts.services).await,
                _ => false,
            };
        }
    }

    fn manager(&self) -> &str {
        &self.shared.setup.lease.name
    }

    /// Takes or renews the Lease if that is due. Returns true if this process holds it. One whose HAProxy does not
    /// prove that it runs the configuration leaves the Lease to its peer.
    async fn keeps_lease(&mut self) -> bool {
        let may = self.shared.applied.borrow().is_ok();
        match self.lease.keep(may).await {
            Some(Ok(())) => self.failing.succeeded("lease"),
            Some(Err(error)) => {
                self.shared.metrics.failed("lease");
                self.failing.failed("lease", &error);
            }
            None => {}
        }
        let held = self.lease.holds();
        let lease = self.manager();
        match (self.held, held) {
            (false, true) => tracing::info!(lease, "holding the Lease; writing statuses and Events"),
            (true, false) => {
                tracing::info!(lease, "no longer holding the Lease; writing nothing");
                self.foreign.clear();
                self.shared.metrics.status_foreign.set(0);
            }
            _ => {}
        }
        self.held = held;
        self.shared.metrics.lease_held.set(held.into());
        held
    }

    /// Does what is to do now. Returns true if something is left for later.
    async fn round(&mut self, desired: &Desired, in_effect: &InEffect, services: &Services) -> bool {
        if !self.keeps_lease().await {
            return false;
        }
        let wanted = in_effect.wanted(desired, &self.addresses, &self.shared.setup.policy);
        let mut writes = self.statuses(&wanted, services);
        let reasons = in_effect.not_published(desired);
        self.sent.retain(|(kind, key), _| {
            services.contains_key(key) && (*kind == "status" || reasons.contains_key(key))
        });
        for (key, why) in reasons {
            if let Some(service) = services.get(&key) {
                writes.push(self.event(key, &service.status.uid, why));
            }
        }
        let (writes, mut is_left) = due(writes, &self.sent, Instant::now());
        for write in writes {
            if !self.keeps_lease().await {
                return true;
            }
            is_left |= !self.send(write).await;
        }
        is_left
    }

    fn statuses(
        &mut self,
        wanted: &BTreeMap<ServiceKey, Option<Vec<Ingress>>>,
        services: &Services,
    ) -> Vec<Write> {
        let (mut writes, mut foreign) = (Vec::new(), BTreeSet::new());
        for (key, service) in services {
            let status = &service.status;
            let wanted = wanted.get(key).filter(|_| service.load_balancer);
            match status.decide(wanted, self.manager()) {
                Decision::Keep => {}
                Decision::Write(entries) => writes.push(status_write(key.clone(), status, &entries)),
                Decision::Foreign => {
                    if !self.foreign.contains(key) {
                        tracing::warn!(
                            service = service.shown(),
                            writer = status.writer,
                            addresses = %json!(status.ingress),
                            "another program has written the status of a published Service; leaving it alone"
                        );
                    }
                    foreign.insert(key.clone());
                }
            }
        }
        self.shared.metrics.status_foreign.set(count(foreign.len()));
        self.foreign = foreign;
        writes
    }

    /// Returns an Event about a Service that is not published. Service and reason make its name, so none is
    /// repeated.
    fn event(&self, key: ServiceKey, uid: &str, why: String) -> Write {
        let (namespace, name) = &key;
        let now = json!(Time(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
        let digest: String = hash(format!("{uid} {why}")).chars().take(16).collect();
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": format!("{name}.{digest}")},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name, "uid": uid,
            },
            "type": "Warning", "reason": NOT_PUBLISHED, "message": why,
            "source": {"component": "nodegate-haproxy"},
            "reportingComponent": "nodegate-haproxy", "reportingInstance": self.lease.identity(),
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        Write { id: ("event", key), content: why, body }
    }

    /// Sends a request. Returns false if it has to be tried again.
    async fn send(&mut self, write: Write) -> bool {
        let Write { id, content, body } = write;
        let (kind, (namespace, name)) = &id;
        let (is_event, service, manager) = (*kind == "event", format!("{namespace}/{name}"), self.manager());
        let namespace = format!("/api/v1/namespaces/{namespace}");
        let answer = if is_event {
            self.api.post(&format!("{namespace}/events?fieldManager={manager}"), &body).await
        } else {
            let path = format!("{namespace}/services/{name}/status?fieldManager={manager}");
            self.api.merge(&path, &body).await
        };
        sleep(PACE).await;
        let metrics = &self.shared.metrics;
        let again = match answer {
            Ok(_) => {
                self.failing.succeeded(kind);
                self.backoff.reset();
                if !is_event {
                    let addresses = body.pointer("/status/loadBalancer/ingress").unwrap_or(&Value::Null);
                    let kind = if addresses.is_null() { "removed" } else { "set" };
                    metrics.status_writes.get_or_create(&[("kind", kind)]).inc();
                    tracing::info!(service, %addresses, "wrote the Service's status");
                }
                None
            }
            // It has changed, or is gone, and the watch says so soon; or another process has posted the Event.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                tracing::debug!(kind, service, %error, "not written");
                None
            }
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                metrics.failed(kind);
                tracing::warn!(kind, service, %error, "the API server rejects the write; leaving the object as it is");
                None
            }
            Err(error) => {
                metrics.failed(kind);
                self.failing.failed(kind, &error);
                // RBAC and admission may be a namespace's own, so others need not wait.
                let wait = if error.code() == Some(403) { FORBIDDEN } else { self.backoff.wait() };
                Some(Instant::now() + wait)
            }
        };
        self.sent.insert(id, (content, again));
        again.is_none()
    }
}

/// Returns the writes of one round, and true if others are left for later.
fn due(mut writes: Vec<Write>, sent: &Sent, now: Instant) -> (Vec<Write>, bool) {
    writes.retain(|Write { id, content, .. }| {
        sent.get(id).is_none_or(|(done, again)| again.is_some() || done != content)
    });
    let left = writes.len();
    writes.retain(|Write { id, .. }| sent.get(id).is_none_or(|(_, again)| again.is_none_or(|at| at <= now)));
    writes.truncate(AT_ONCE);
    let is_left = left > writes.len();
    (writes, is_left)
}

/// Returns the patch of a Service's status. It fails if the Service has changed since it was observed.
fn status_write(key: ServiceKey, status: &ServiceStatus, entries: &[Ingress]) -> Write {
    let ServiceStatus { uid, version, .. } = status;
    let ingress = if entries.is_empty() { Value::Null } else { json!(entries) };
    let body = json!({
        "metadata": {"uid": uid, "resourceVersion": version},
        "status": {"loadBalancer": {"ingress": ingress}},
    });
    Write { id: ("status", key), content: body.to_string(), body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_bounded_and_the_next_ones_do_the_rest() {
        let write = |number: u8| {
            let id = ("status", ("shop".to_owned(), number.to_string()));
            Write { id, content: String::new(), body: Value::Null }
        };
        let (mut sent, now) = (Sent::new(), Instant::now());
        for (count, left) in [(50, true), (50, true), (1, false), (0, false)] {
            let (writes, is_left) = due((0..101).map(write).collect(), &sent, now);
            assert_eq!((writes.len(), is_left), (count, left));
            sent.extend(writes.into_iter().map(|write| (write.id, (write.content, None))));
        }
        let later = now + Duration::from_secs(1);
        sent.insert(write(7).id, (String::new(), Some(later)));
        for (now, count) in [(now, 0), (later, 1)] {
            let (writes, is_left) = due((0..101).map(write).collect(), &sent, now);
            assert_eq!((writes.len(), is_left), (count, count == 0), "a failed write waits");
        }
    }
}
