//! `--publish-status`: writes the statuses of Services, and Events on those that are not published.

// No failure here changes HAProxy's configuration. Both programs of a pair write the same. Each write names the version
// of the Service that it was decided for, so it changes nothing if the Service has changed since.

use crate::failure::Lasting;
use crate::plan::applied::{Applied, Checked};
use crate::plan::desired::Desired;
use crate::plan::ingress_status::Decision;
use crate::plan::names::hash;
use crate::plan::observed::{Ingress, ObservedService, ServiceKey, ServiceStatus};
use crate::run::shared::{Shared, count};
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

/// The interval between looks at writes that wait.
const TICK: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(50);
/// The longest time for one request.
const REQUEST: Duration = Duration::from_secs(2);
/// The time after which the same content is written again, if another program has changed it.
const REPEAT: Duration = Duration::from_secs(10);
/// The maximum number of writes before the plan is looked at again.
const AT_ONCE: usize = 50;
/// The wait after a refusal that only an operator can end.
const FORBIDDEN: Duration = Duration::from_secs(30);
const NO_RIGHTS: &str =
    "the account lacks rights for --publish-status, which manifests/publish-status.yaml has: ";

type Services = BTreeMap<ServiceKey, Arc<ObservedService>>;
/// The kind of a request, and its Service.
type Id = (&'static str, ServiceKey);

/// The content of the last request of an [`Id`], and when it may be sent again, if ever.
type Sent = (String, Option<Instant>);

pub(crate) struct Publisher {
    api: KubeApi,
    shared: Arc<Shared>,
    addresses: Vec<Ingress>,
    sent: BTreeMap<Id, Sent>,
    /// The Services with entries of another program.
    foreign: BTreeSet<ServiceKey>,
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
    pub(crate) fn of(shared: &Arc<Shared>, life: &Arc<Life>) -> Option<Self> {
        let addresses = shared.setup.publish_status.clone()?.0;
        if addresses.is_empty() {
            return None;
        }
        Some(Self {
            api: KubeApi::new(REQUEST, life.observer("")),
            shared: shared.clone(),
            addresses,
            sent: BTreeMap::new(),
            foreign: BTreeSet::new(),
            failing: BTreeMap::new(),
            backoff: Backoff::default(),
        })
    }

    /// Writes after each change.
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
            let facts = observed.borrow_and_update().facts().unwrap_or_default();
            let known = known.borrow_and_update().clone();
            is_due = match (known.desired, known.applied) {
                (Some(desired), Ok(applied)) => {
                    self.round(&desired, &applied, &known.checked, &facts.services).await
                }
                _ => false,
            };
        }
    }

    fn manager(&self) -> &str {
        &self.shared.setup.field_manager
    }

    /// Does what is to do now. Returns true if something is left for later.
    async fn round(
        &mut self,
        desired: &Desired,
        applied: &Applied,
        checked: &Checked,
        services: &Services,
    ) -> bool {
        let wanted = applied.wanted(desired, checked, &self.addresses, &self.shared.setup.policy);
        let mut writes = self.statuses(&wanted, services);
        let reasons = applied.not_published(desired);
        self.sent.retain(|(kind, key), _| {
            services.contains_key(key) && (*kind == "status" || reasons.contains_key(key))
        });
        for (key, why) in reasons {
            if let Some(service) = services.get(&key) {
                writes.push(self.event(key, &service.status.uid, why));
            }
        }
        let mut is_left = keep_due(&mut writes, &self.sent, Instant::now());
        for write in writes {
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
            "type": "Warning", "reason": "NotPublished", "message": why,
            "source": {"component": "nodegate-haproxy"},
            "reportingComponent": "nodegate-haproxy", "reportingInstance": self.manager(),
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
        // An Event is not posted twice.
        let mut again = if is_event { None } else { Some(REPEAT) };
        let is_done = match answer {
            Ok(_) => {
                self.failing.remove(kind).as_mut().map(Lasting::end);
                self.backoff.reset();
                if !is_event {
                    let addresses = body.pointer("/status/loadBalancer/ingress").unwrap_or(&Value::Null);
                    let kind = if addresses.is_null() { "removed" } else { "set" };
                    metrics.status_writes.get_or_create(&[("kind", kind)]).inc();
                    tracing::info!(service, %addresses, "wrote the Service's status");
                }
                true
            }
            // It has changed, or is gone, and the watch says so soon; or another process has posted the Event.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                tracing::debug!(kind, service, %error, "not written");
                true
            }
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                metrics.failed(kind);
                tracing::warn!(kind, service, %error, "the API server rejects the write; leaving the object as it is");
                true
            }
            Err(error) => {
                metrics.failed(kind);
                // RBAC and admission may be a namespace's own, so others need not wait.
                let is_forbidden = error.code() == Some(403);
                let (why, wait) =
                    if is_forbidden { (NO_RIGHTS, FORBIDDEN) } else { ("", self.backoff.wait()) };
                let lasting = self.failing.entry(kind).or_insert_with(|| {
                    Lasting::new("can't write to the cluster; retrying", "writing to the cluster works again")
                });
                lasting.tell_of(&format!("{:?}", error.code()), &format!("{why}{error}"));
                again = Some(wait);
                false
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

/// Returns the patch of a Service's status. It fails if the Service has changed since it was observed.
fn status_write(key: ServiceKey, status: &ServiceStatus, entries: &[Ingress]) -> Write {
    let ServiceStatus { uid, version, .. } = status;
    let ingress = if entries.is_empty() { Value::Null } else { json!(entries) };
    let body = json!({
        "metadata": {"uid": uid, "resourceVersion": version},
        "status": {"loadBalancer": {"ingress": &ingress}},
    });
    Write { id: ("status", key), content: ingress.to_string(), body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_bounded_and_the_same_is_written_again_after_a_while() {
        let write = |number: u8, kind| {
            let id = (kind, ("shop".to_owned(), number.to_string()));
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
        for (again, counts) in [(Some(later), [(0, true), (1, false)]), (None, [(0, false); 2])] {
            sent.insert(write(7, "event").id, (String::new(), again));
            let found = [now, later].map(|now| {
                let mut writes = vec![write(7, "event")];
                let is_left = keep_due(&mut writes, &sent, now);
                (writes.len(), is_left)
            });
            assert_eq!(found, counts, "{again:?}");
        }
    }
}
