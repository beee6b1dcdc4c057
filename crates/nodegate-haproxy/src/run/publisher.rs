//! `--publish-status`: writes the statuses of Services, and Events on those that are not published.

// No failure here changes HAProxy's configuration. Both programs of a pair write the same. Each write names the version
// of the Service that it was decided for, so it changes nothing if the Service has changed since.

use crate::failure::Lasting;
use crate::plan::applied::Ingress;
use crate::plan::names::hash;
use crate::plan::observed::{ObservedService, ServiceKey};
use crate::run::shared::{Known, Shared};
use crate::watch::Observed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nodegate_kube_follow::{Backoff, KubeApi};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// The interval between looks at writes that wait.
const TICK: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(50);
/// The longest time for one request.
const REQUEST: Duration = Duration::from_secs(2);
/// The time after which the same status is written again, if another program has changed it.
const REPEAT: Duration = Duration::from_secs(10);
/// The maximum number of writes before the plan is looked at again.
const AT_ONCE: usize = 50;
/// The wait after a refusal that only an operator can end.
const REFUSED: Duration = Duration::from_secs(30);
const NO_RIGHTS: &str =
    "the account lacks rights for --publish-status, which manifests/publish-status.yaml has: ";

/// The kind of a request, and its Service.
type Id = (&'static str, ServiceKey);

/// The content of the last request of an [`Id`], and when it may be sent again, if ever.
type Sent = (String, Option<Instant>);

pub(crate) struct Publisher {
    api: KubeApi,
    shared: Arc<Shared>,
    addresses: Ingress,
    sent: BTreeMap<Id, Sent>,
    failing: BTreeMap<&'static str, Lasting>,
    backoff: Backoff,
}

struct Write {
    id: Id,
    /// Distinguishes it from other requests of its kind about the Service.
    content: String,
    body: Value,
}

impl Publisher {
    pub(crate) fn of(shared: &Arc<Shared>) -> Option<Self> {
        let addresses = shared.setup.publish_status.clone().unwrap_or_default().0;
        (!addresses.is_empty()).then(|| Self {
            api: KubeApi::new(REQUEST),
            shared: shared.clone(),
            addresses,
            sent: BTreeMap::new(),
            failing: BTreeMap::new(),
            backoff: Backoff::default(),
        })
    }

    pub(crate) async fn run(mut self, mut observed: Receiver<Observed>) {
        let mut known = self.shared.known.subscribe();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_due = false;
        loop {
            let changed = tokio::select! {
                changed = known.changed() => changed,
                changed = observed.changed() => changed,
                _ = tick.tick(), if is_due => Ok(()),
            };
            // The senders live as long as this task.
            if changed.is_err() {
                return;
            }
            let services = observed.borrow_and_update().facts().unwrap_or_default().services;
            let known = known.borrow_and_update().clone();
            is_due = self.round(&known, &services).await;
        }
    }

    /// Does what is to do now. Returns true if something is left for later.
    async fn round(&mut self, known: &Known, services: &BTreeMap<ServiceKey, Arc<ObservedService>>) -> bool {
        let (Some(desired), Ok(applied)) = (&known.desired, &known.applied) else { return false };
        let wanted = applied.wanted(desired, &known.checked, &self.addresses, &self.shared.setup.policy);
        let statuses = services.iter().filter_map(|(key, service)| self.status(service, wanted.get(key)));
        let mut writes: Vec<Write> = statuses.collect();
        let reasons = applied.not_published(desired);
        self.sent.retain(|(kind, key), _| {
            services.contains_key(key) && (*kind == "status" || reasons.contains_key(key))
        });
        for (key, why) in reasons {
            writes.extend(services.get(&key).map(|service| self.event(service, why)));
        }
        let mut is_left = keep_due(&mut writes, &self.sent, Instant::now());
        for write in writes {
            is_left |= !self.send(write).await;
        }
        is_left
    }

    /// Returns the write of a status, which fails if the Service has changed since it was observed.
    fn status(&self, service: &ObservedService, wanted: Option<&Option<Ingress>>) -> Option<Write> {
        let (status, manager) = (&service.status, &self.shared.setup.field_manager);
        let entries = status.change(wanted.filter(|_| service.load_balancer), manager)?;
        let ingress = if entries.is_empty() { Value::Null } else { json!(entries) };
        let body = json!({
            "metadata": {"uid": status.uid, "resourceVersion": status.version},
            "status": {"loadBalancer": {"ingress": &ingress}},
        });
        Some(Write { id: ("status", service.key()), content: ingress.to_string(), body })
    }

    /// Returns an Event about a Service that is not published. Service and reason make its name, so none is repeated.
    fn event(&self, service: &ObservedService, why: String) -> Write {
        let ObservedService { namespace, name, status, .. } = service;
        let (uid, manager) = (&status.uid, &self.shared.setup.field_manager);
        let now = json!(Time(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
        let digest: String = hash(format!("{uid} {why}")).chars().take(16).collect();
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": format!("{name}.{digest}")},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Service", "namespace": namespace, "name": name, "uid": uid,
            },
            "type": "Warning", "reason": "NotPublished", "message": why,
            "source": {"component": "nodegate-haproxy"},
            "reportingComponent": "nodegate-haproxy", "reportingInstance": manager,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        Write { id: ("event", service.key()), content: why, body }
    }

    /// Sends a request. Returns false if it has to be tried again.
    async fn send(&mut self, write: Write) -> bool {
        let Write { id, content, body } = write;
        let ((kind, service), manager) = (&id, &self.shared.setup.field_manager);
        let (namespace, name) = service.split_once('/').unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}");
        let (answer, repeat) = if *kind == "event" {
            (self.api.post(&format!("{path}/events?fieldManager={manager}"), &body).await, None)
        } else {
            let path = format!("{path}/services/{name}/status?fieldManager={manager}");
            (self.api.merge(&path, &body).await, Some(REPEAT))
        };
        sleep(PACE).await;
        let (again, is_done) = match answer {
            Ok(_) => {
                self.failing.remove(kind).as_mut().map(Lasting::end);
                self.backoff.reset();
                tracing::info!(service, kind, content, "wrote to the cluster");
                (repeat, true)
            }
            // It has changed, or is gone, and the watch says so soon; or another process has posted the Event.
            Err(error) if matches!(error.code, Some(404 | 409)) => (repeat, true),
            Err(error) => {
                self.shared.failed(kind);
                let code = error.code;
                let lasting = self.failing.entry(kind).or_insert_with(|| {
                    Lasting::new("can't write to the cluster; retrying", "writing to the cluster works again")
                });
                let why = if code == Some(403) { NO_RIGHTS } else { "" };
                lasting.tell_of(&format!("{code:?}"), &format!("{why}{service}: {error}"));
                // RBAC and admission may be a namespace's own, so others need not wait.
                let is_refusal = code.is_some_and(|code| code < 500);
                (Some(if is_refusal { REFUSED } else { self.backoff.wait() }), false)
            }
        };
        self.sent.insert(id, (content, again.map(|again| Instant::now() + again)));
        is_done
    }
}

/// Keeps the writes of one round. Returns true if others are left for later.
fn keep_due(writes: &mut Vec<Write>, sent: &BTreeMap<Id, Sent>, now: Instant) -> bool {
    let same = |write: &Write| sent.get(&write.id).filter(|(content, _)| *content == write.content);
    writes.retain(|write| same(write).is_none_or(|(_, again)| again.is_some()));
    let left = writes.len();
    writes.retain(|write| same(write).is_none_or(|(_, again)| again.is_some_and(|again| again <= now)));
    writes.truncate(AT_ONCE);
    left > writes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_bounded_and_the_same_is_written_again_after_a_while() {
        let write = |number: u8, kind| {
            let id = (kind, format!("shop/{number}"));
            Write { id, content: String::new(), body: Value::Null }
        };
        let (mut sent, now) = (BTreeMap::new(), Instant::now());
        for (count, left) in [(50, true), (50, true), (1, false), (0, false)] {
            let mut writes: Vec<_> = (0..101).map(|number| write(number, "event")).collect();
            let is_left = keep_due(&mut writes, &sent, now);
            assert_eq!((writes.len(), is_left), (count, left));
            sent.extend(writes.into_iter().map(|write| (write.id, (String::new(), None))));
        }
        let later = now + Duration::from_secs(1);
        for (again, now, left) in
            [(Some(later), now, (0, true)), (Some(later), later, (1, false)), (None, later, (0, false))]
        {
            sent.insert(write(7, "event").id, (String::new(), again));
            let mut writes = vec![write(7, "event")];
            assert_eq!((keep_due(&mut writes, &sent, now), writes.len()), (left.1, left.0), "{again:?}");
        }
    }
}
