//! `--publish-status`: writes the statuses of Services, and Events on those that are not published.
//!
//! It runs beside everything else: no failure here changes HAProxy's configuration. Only the holder of the
//! Lease writes. Each write names the version of the Service that it was decided for, so it changes nothing if
//! the Service has changed since, or if another process has written it.

use crate::plan::facts::ServiceKey;
use crate::plan::policy::PlanPolicy;
use crate::plan::status::{Change, Decision, Effect, Ingress, ServiceStatus};
use crate::run::metrics::HaproxyMetrics;
use crate::run::shared::Shared;
use crate::status::StatusSettings;
use crate::status::candidate::REQUEST;
use crate::status::documents::{not_published, service_status, shown, status_patch};
use crate::status::lease::LeaseKeeper;
use crate::watch::counts::Counts;
use crate::watch::statuses::{StatusSink, Statuses};
use http::request::Parts;
use nodegate_kube_follow::{
    ApiError, Backoff, Connection, KubeApi, KubectlCredentials, RequestOutcome, WatchObserver,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Receiver, Sender};
use tokio::time::{Instant, sleep, sleep_until};

/// The shortest time between two requests.
const PACE: Duration = Duration::from_millis(20);
/// The maximum number of writes before the plan is looked at again.
const AT_ONCE: usize = 50;
/// The shortest time between two Events.
const EVENT_PACE: Duration = Duration::from_millis(200);
/// The shortest time between two Events on one Service.
const EVENT_AGAIN: Duration = Duration::from_mins(1);
/// The wait after a refusal that only an operator can end.
const FORBIDDEN: Duration = Duration::from_secs(30);

/// Counts requests.
#[derive(Clone, Debug)]
struct CountRequests(Arc<Counts>);

impl WatchObserver for CountRequests {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        None
    }
    fn accepted(&self, (): (), _: Connection) {}
    fn heard(&self, (): ()) {}
    fn closed(&self, (): ()) {}
    fn answered(&self, answer: &RequestOutcome<()>) {
        self.0.request(answer.verb, answer.code);
    }
}

/// The writer of statuses and Events.
pub(crate) struct Publisher {
    pub(crate) lease: Arc<LeaseKeeper>,
    shared: Arc<Shared>,
    statuses: Sender<Statuses>,
    writer: Writer,
}

impl Publisher {
    /// Creates the publisher if `--publish-status` asks for it.
    pub(crate) fn of(shared: &Arc<Shared>, counts: &Arc<Counts>) -> Option<Self> {
        let settings = shared.setup.publish_status.clone()?;
        let api = KubeApi::new::<KubectlCredentials>(REQUEST, CountRequests(counts.clone()));
        let lease = Arc::new(LeaseKeeper::new(api.clone(), settings.lease.clone()));
        let writer = Writer {
            api,
            lease: lease.clone(),
            metrics: shared.metrics.clone(),
            policy: shared.setup.policy.clone(),
            settings,
            attempted: BTreeMap::new(),
            accepted: BTreeMap::new(),
            ours: BTreeSet::new(),
            foreign: BTreeSet::new(),
            told: BTreeMap::new(),
            failing: Failing::default(),
            status_waits: Waits::default(),
            event_waits: Waits::default(),
        };
        Some(Self { lease, shared: shared.clone(), statuses: Sender::default(), writer })
    }

    /// Returns the sink for the watch.
    pub(crate) fn sink(&self) -> StatusSink {
        StatusSink::new(self.statuses.clone())
    }

    /// Runs forever.
    pub(crate) async fn run(self) {
        let Self { lease, shared, statuses, writer } = self;
        let keep = {
            let (shared, metrics) = (shared.clone(), shared.metrics.clone());
            // A process whose HAProxy does not prove that it runs the configuration leaves the Lease to its peer.
            let may = move || shared.health.unproven().is_none();
            async move { lease.run(may, |_| metrics.failed("lease")).await }
        };
        tokio::join!(keep, write(shared, statuses.subscribe(), writer));
    }
}

/// Writes after each change, while this process holds the Lease.
async fn write(shared: Arc<Shared>, mut statuses: Receiver<Statuses>, mut writer: Writer) {
    let mut held = writer.lease.subscribe();
    let mut desired = shared.desired.subscribe();
    let mut applied = shared.applied.subscribe();
    let mut again = None;
    loop {
        let changed = tokio::select! {
            changed = held.changed() => changed,
            changed = desired.changed() => changed,
            changed = applied.changed() => changed,
            changed = statuses.changed() => changed,
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => Ok(()),
        };
        // The senders live as long as this task.
        if changed.is_err() {
            return;
        }
        again = None;
        shared.metrics.lease_held(*held.borrow_and_update());
        let now = statuses.borrow_and_update().clone();
        writer.forget_unknown(&now);
        if !writer.lease.holds() {
            writer.leave_off();
            continue;
        }
        let (desired, applied) = (desired.borrow_and_update().clone(), applied.borrow_and_update().clone());
        let (Some(desired), Some(applied)) = (desired, applied) else { continue };
        let effect = Effect { desired: &desired, runs: &applied.runs, left_out: &applied.left_out };
        again = writer.round(&effect, &now).await.map(|wait| Instant::now() + wait);
    }
}

/// The kinds of requests that fail at present, each logged once.
#[derive(Default)]
struct Failing {
    kinds: BTreeMap<&'static str, Option<u16>>,
    backoff: Backoff,
}

impl Failing {
    /// Logs a failure. Returns the wait before the next attempt.
    fn failed(&mut self, kind: &'static str, error: &ApiError) -> Duration {
        let code = error.code();
        if self.kinds.insert(kind, code) == Some(code) {
            tracing::debug!(kind, %error, "writing to the cluster failed again; retrying");
        } else if code == Some(403) {
            tracing::warn!(
                kind,
                %error,
                "the account lacks rights for --publish-status; going on without. \
                 manifests/publish-status.yaml has them"
            );
        } else {
            tracing::warn!(kind, %error, "can't write to the cluster; retrying");
        }
        if code == Some(403) { FORBIDDEN } else { self.backoff.wait() }
    }

    fn succeeded(&mut self, kind: &'static str) {
        self.backoff.reset();
        if self.kinds.remove(kind).is_some() {
            tracing::info!(kind, "writing to the cluster works again");
        }
    }
}

/// The waits after failures. Other changes in between cause no attempt.
#[derive(Default)]
struct Waits {
    all: Option<Instant>,
    /// Of single namespaces, after an answer that says no: RBAC and admission may be theirs alone.
    namespaces: BTreeMap<String, Instant>,
}

impl Waits {
    /// Returns how long requests in this namespace have to wait, or `None`.
    fn left(&self, namespace: &str) -> Option<Duration> {
        let until = self.all.max(self.namespaces.get(namespace).copied())?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    fn failed(&mut self, namespace: &str, error: &ApiError, wait: Duration) {
        let until = Instant::now() + wait;
        match error.code() {
            None | Some(401 | 429 | 503 | 504) => self.all = Some(until),
            Some(_) => {
                self.namespaces.retain(|_, until| *until > Instant::now());
                self.namespaces.insert(namespace.to_owned(), until);
            }
        }
    }
}

/// The Event on a Service.
struct Told {
    why: String,
    at: Instant,
}

struct Writer {
    api: KubeApi,
    lease: Arc<LeaseKeeper>,
    metrics: Arc<HaproxyMetrics>,
    settings: StatusSettings,
    policy: PlanPolicy,
    /// The last change that was answered, with the version that it was decided for. It is not sent twice.
    attempted: BTreeMap<ServiceKey, (String, Change)>,
    /// The entries that were sent, and those that the API server made of them: one without `ipMode` drops it.
    accepted: BTreeMap<ServiceKey, (Vec<Ingress>, Vec<Ingress>)>,
    /// The Services whose entries are ours, in case that one of them is no longer watched.
    ours: BTreeSet<ServiceKey>,
    /// The Services with entries of another program.
    foreign: BTreeSet<ServiceKey>,
    told: BTreeMap<ServiceKey, Told>,
    failing: Failing,
    status_waits: Waits,
    event_waits: Waits,
}

impl Writer {
    /// Forgets Services that are no longer watched, and notes those whose entries are ours.
    fn forget_unknown(&mut self, statuses: &Statuses) {
        self.attempted.retain(|key, _| statuses.contains_key(key));
        self.accepted.retain(|key, _| statuses.contains_key(key));
        for (key, status) in statuses.iter() {
            if status.ingress.is_empty() || status.writer.as_deref() != Some(&self.settings.lease.name) {
                self.ours.remove(key);
            } else if !self.ours.contains(key) {
                self.ours.insert(key.clone());
            }
        }
        if !self.lease.holds() {
            self.ours.retain(|key| statuses.contains_key(key));
        }
    }

    /// Forgets what another holder of the Lease may change.
    fn leave_off(&mut self) {
        self.attempted.clear();
        self.accepted.clear();
        self.foreign.clear();
        self.metrics.status_foreign(0);
    }

    /// Does what is to do now. Returns the wait before the next round, if one is due.
    async fn round(&mut self, effect: &Effect<'_>, statuses: &Statuses) -> Option<Duration> {
        let wanted = effect.wanted(&self.settings.addresses, &self.policy);
        let mut waits = Vec::new();
        let mut foreign = BTreeSet::new();
        let mut left = AT_ONCE;
        for (key, status) in statuses.iter() {
            match status.decide(wanted.get(key), &self.settings.lease.name) {
                Decision::Keep => {}
                Decision::Foreign => drop(foreign.insert(key.clone())),
                Decision::Write(change) => match self.write(key, status, change).await {
                    Ok(sent) => {
                        left -= usize::from(sent);
                        if left == 0 {
                            return Some(PACE);
                        }
                    }
                    Err(wait) => waits.push(wait),
                },
            }
        }
        self.tell_foreign(foreign, statuses);
        let gone = |key: &&ServiceKey| !statuses.contains_key(*key) && !wanted.contains_key(*key);
        let gone: Vec<ServiceKey> = self.ours.iter().filter(gone).take(AT_ONCE).cloned().collect();
        for key in gone {
            waits.extend(self.clean_up(&key).await.err());
        }
        waits.extend(self.events(effect, statuses).await);
        waits.into_iter().min()
    }

    fn path(&self, (namespace, name): &ServiceKey, subresource: &str) -> String {
        let manager = &self.settings.lease.name;
        format!("/api/v1/namespaces/{namespace}/services/{name}{subresource}?fieldManager={manager}")
    }

    /// Writes a status, unless that was tried for this version of the Service. Returns true if a request was
    /// sent. The error is the wait before the next attempt of anything.
    async fn write(
        &mut self,
        key: &ServiceKey,
        status: &ServiceStatus,
        change: Change,
    ) -> Result<bool, Duration> {
        let known = self.accepted.get(key).is_some_and(|(sent, made)| {
            matches!(&change, Change::Set(entries) if entries == sent) && *made == status.ingress
        });
        let attempt = (status.version.clone(), change);
        if known || self.attempted.get(key) == Some(&attempt) || !self.lease.holds() {
            return Ok(false);
        }
        if let Some(wait) = self.status_waits.left(&key.0) {
            return Err(wait);
        }
        let (path, (_, change)) = (self.path(key, "/status"), &attempt);
        let answer = self.api.merge(&path, &status_patch(status, change)).await;
        let service = format!("{}/{}", key.0, key.1);
        match answer {
            Ok(json) => {
                self.failing.succeeded("status");
                self.metrics.status_written(change);
                match change {
                    Change::Set(entries) => {
                        tracing::info!(service, addresses = shown(entries), "wrote the Service's status");
                        if let Ok(made) = service_status(&json) {
                            self.accepted.insert(key.clone(), (entries.clone(), made.ingress));
                        }
                    }
                    Change::Remove => {
                        tracing::info!(service, "removed the Service's status; it is no longer published");
                        self.accepted.remove(key);
                    }
                }
            }
            // It has changed, or is gone; the watch says so soon.
            Err(error) if matches!(error.code(), Some(404 | 409)) => {
                tracing::debug!(service, %error, "the Service has changed; not writing its status");
            }
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                self.metrics.failed("status");
                tracing::warn!(service, %error, "the API server rejects the Service's status; leaving it");
            }
            Err(error) => return Err(self.status_failed(&key.0, &error)),
        }
        self.attempted.insert(key.clone(), attempt);
        sleep(PACE).await;
        Ok(true)
    }

    /// Removes our entries from a Service that is no longer watched: it has another type, or `--namespaces` leaves
    /// its namespace out. A Service that is gone needs nothing.
    async fn clean_up(&mut self, key: &ServiceKey) -> Result<(), Duration> {
        if !self.lease.holds() {
            return Ok(());
        }
        let (namespace, name) = key;
        if let Some(wait) = self.status_waits.left(namespace) {
            return Err(wait);
        }
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let json = match self.api.get(&path).await {
            Ok(json) => json,
            Err(error) => return Err(self.status_failed(namespace, &error)),
        };
        let status = json.and_then(|json| service_status(&json).ok());
        if let Some(status) = status
            && let Decision::Write(change) = status.decide(None, &self.settings.lease.name)
        {
            self.write(key, &status, change).await?;
        }
        self.ours.remove(key);
        self.attempted.remove(key);
        Ok(())
    }

    fn status_failed(&mut self, namespace: &str, error: &ApiError) -> Duration {
        self.metrics.failed("status");
        let wait = self.failing.failed("status", error);
        self.status_waits.failed(namespace, error, wait);
        wait
    }

    fn tell_foreign(&mut self, foreign: BTreeSet<ServiceKey>, statuses: &Statuses) {
        for (namespace, name) in foreign.difference(&self.foreign) {
            let service = format!("{namespace}/{name}");
            let status = statuses.get(&(namespace.clone(), name.clone()));
            let writer = status.and_then(|status| status.writer.as_deref());
            let addresses = status.map(|status| shown(&status.ingress));
            tracing::warn!(
                service,
                writer,
                addresses,
                "another program has written the status of a published Service; leaving it alone"
            );
        }
        self.metrics.status_foreign(foreign.len());
        self.foreign = foreign;
    }

    /// Posts an Event on a Service that is not published for another reason than before. Returns the wait before
    /// the next one, if there may be one.
    async fn events(&mut self, effect: &Effect<'_>, statuses: &Statuses) -> Option<Duration> {
        let reasons = effect.not_published();
        self.told.retain(|key, _| reasons.contains_key(key));
        let mut next = None;
        for (key, why) in reasons {
            let Some(status) = statuses.get(&key) else { continue };
            if let Some(told) = self.told.get(&key) {
                if told.why == why {
                    continue;
                }
                let wait = EVENT_AGAIN.saturating_sub(told.at.elapsed());
                if !wait.is_zero() {
                    next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
                    continue;
                }
            }
            if !self.lease.holds() {
                return None;
            }
            if let Some(wait) = self.event_waits.left(&key.0) {
                next = Some(next.map_or(wait, |next: Duration| next.min(wait)));
                continue;
            }
            let event =
                not_published(&key, &status.uid, &why, &self.lease.identity(), nodegate_clock::wall());
            let path =
                format!("/api/v1/namespaces/{}/events?fieldManager={}", key.0, self.settings.lease.name);
            match self.api.post(&path, &event).await {
                Ok(_) => {
                    self.failing.succeeded("event");
                    self.metrics.event_posted();
                }
                // The API server has it already, or the namespace ends.
                Err(error) if matches!(error.code(), Some(400 | 404 | 409 | 422)) => {
                    tracing::debug!(service = %key.1, %error, "an Event is not posted");
                }
                Err(error) => {
                    self.metrics.failed("event");
                    let wait = self.failing.failed("event", &error);
                    self.event_waits.failed(&key.0, &error, wait);
                    return Some(EVENT_PACE);
                }
            }
            let now = Instant::now();
            self.told.insert(key, Told { why, at: now });
            self.event_waits.all = Some(now + EVENT_PACE);
            return Some(EVENT_PACE);
        }
        next
    }
}
