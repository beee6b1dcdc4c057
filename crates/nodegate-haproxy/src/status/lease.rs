//! The Lease that decides which of several processes writes.

use crate::status::candidate::{Candidate, LOOK, RENEW, Step};
use crate::status::documents;
use nodegate_kube_follow::{ApiError, Backoff, KubeApi};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The wait of a holder after a failed renewal.
const AGAIN: Duration = Duration::from_millis(500);
/// The longest wait of another process after a failure.
const LATER: Duration = Duration::from_secs(5);
/// The longest time for the credentials of a connection.
const CONNECT: Duration = Duration::from_secs(30);
/// The wait if the account may not use the Lease.
const FORBIDDEN: Duration = Duration::from_secs(30);

/// The file with the namespace of a Pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The namespace and the name of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseName {
    /// The namespace.
    pub namespace: String,
    /// The name, which is the field manager of all writes, too: two pairs with Leases of different names leave
    /// each other's statuses alone.
    pub name: String,
}

/// Returns the namespace of this Pod, or outside of a Pod that of the manifests.
fn own_namespace() -> String {
    let text = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    let text = text.trim();
    if text.is_empty() { "nodegate".to_owned() } else { text.to_owned() }
}

impl FromStr for LeaseName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |name: &str| crate::plan::names::is_dns_name(name) && name.len() <= 63;
        let (namespace, name) = match text.split_once('/') {
            Some((namespace, name)) => (namespace.to_owned(), name),
            None => (own_namespace(), text),
        };
        if !is_name(&namespace) || !is_name(name) {
            return Err("takes a name, or a namespace and a name, e.g. nodegate/nodegate-haproxy");
        }
        Ok(Self { namespace, name: name.to_owned() })
    }
}

impl LeaseName {
    fn of_all(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases?fieldManager={}",
            self.namespace, self.name
        )
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}", self.namespace, self.name)
    }

    fn patch_path(&self) -> String {
        format!("{}?fieldManager={}", self.path(), self.name)
    }
}

/// Keeps the Lease, or waits for it.
#[derive(Debug)]
pub struct LeaseKeeper {
    api: KubeApi,
    name: LeaseName,
    candidate: Mutex<Candidate>,
    held: watch::Sender<bool>,
}

/// What the requests of one round brought.
enum Round {
    /// This process holds the Lease.
    Held,
    /// Another one does, or was faster.
    Wait(Duration),
}

/// The last failure, which is logged once.
#[derive(Default)]
struct Failing {
    any: bool,
    code: Option<u16>,
}

impl Failing {
    fn tell(&mut self, error: &ApiError) {
        let code = error.code();
        let known = self.any && self.code == code;
        *self = Self { any: true, code };
        if known {
            tracing::debug!(%error, "the Lease failed again; retrying");
        } else if code == Some(403) {
            tracing::warn!(
                %error,
                "the account may not use the Lease of --publish-status; writing no status and no Event. \
                 manifests/publish-status.yaml has the rights"
            );
        } else {
            tracing::warn!(%error, "can't take or renew the Lease of --publish-status; retrying");
        }
    }
}

impl LeaseKeeper {
    /// Creates a keeper with an identity that no other process has.
    pub fn new(api: KubeApi, name: LeaseName) -> Self {
        let candidate = Mutex::new(Candidate::new(identity()));
        Self { api, name, candidate, held: watch::Sender::new(false) }
    }

    /// Returns the identity of this process.
    pub fn identity(&self) -> String {
        self.candidate().identity().to_owned()
    }

    /// Returns true if this process may write now.
    pub fn holds(&self) -> bool {
        self.candidate().holds(nodegate_clock::now())
    }

    /// Returns a receiver that is told when the Lease is taken or lost.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    fn candidate(&self) -> MutexGuard<'_, Candidate> {
        self.candidate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the receivers whether this process holds the Lease, and logs a change.
    fn tell(&self) {
        let held = self.holds();
        self.held.send_if_modified(|before| {
            let LeaseName { namespace, name } = &self.name;
            match (*before, held) {
                (false, true) => {
                    tracing::info!(namespace, name, "holding the Lease; writing statuses and Events");
                }
                (true, false) => {
                    tracing::info!(namespace, name, "no longer holding the Lease; writing nothing");
                }
                _ => {}
            }
            std::mem::replace(before, held) != held
        });
    }

    /// Runs forever. While `may` is false, this process does not want the Lease. `failed` is called for each
    /// failed request.
    pub async fn run(&self, may: impl Fn() -> bool, failed: impl Fn(&ApiError)) {
        let mut backoff = Backoff::new();
        let mut failing = Failing::default();
        loop {
            if !may() {
                self.release().await;
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let wait = match self.round().await {
                Ok(round) => {
                    if std::mem::take(&mut failing).any {
                        tracing::info!(lease = self.name.name, "the Lease works again");
                    }
                    backoff.reset();
                    match round {
                        Round::Held => RENEW,
                        Round::Wait(time) => time,
                    }
                }
                Err(error) => {
                    failed(&error);
                    let forbidden = error.code() == Some(403);
                    failing.tell(&error);
                    if forbidden {
                        FORBIDDEN
                    } else if self.holds() {
                        AGAIN
                    } else {
                        backoff.wait().min(LATER)
                    }
                }
            };
            self.tell();
            self.sleep(wait).await;
        }
    }

    /// Sleeps, and tells in between if the Lease runs out.
    async fn sleep(&self, wait: Duration) {
        let until = tokio::time::Instant::now() + wait;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep_until(until.min(tokio::time::Instant::now() + AGAIN)).await;
            self.tell();
        }
    }

    /// Reads the Lease, and takes or renews it if that is due.
    async fn round(&self) -> Result<Round, ApiError> {
        let (path, identity) = (self.name.path(), self.identity());
        let late = || ApiError::Late("connect".to_owned(), CONNECT);
        tokio::time::timeout(CONNECT, self.api.open()).await.map_err(|_| late())??;
        let Some(json) = self.api.get(&path).await? else {
            let sent = nodegate_clock::now();
            let LeaseName { namespace, name } = &self.name;
            let lease = documents::new_lease(namespace, name, &identity, nodegate_clock::wall());
            return self.written(self.api.post(&self.name.of_all(), &lease).await, sent);
        };
        let lease = documents::lease(&json)
            .map_err(|error| ApiError::Unreadable(format!("GET {path}"), error.to_string()))?;
        let sent = nodegate_clock::now();
        let step = {
            let mut candidate = self.candidate();
            let step = candidate.look(&lease, sent);
            if lease.holder != identity {
                candidate.lost();
            }
            step
        };
        match step {
            Step::Wait(time) => Ok(Round::Wait(time)),
            Step::Write { transitions, version, anew } => {
                let now = nodegate_clock::wall();
                let patch = documents::held_lease(&version, &identity, transitions, anew, now);
                self.written(self.api.merge(&self.name.patch_path(), &patch).await, sent)
            }
        }
    }

    fn written(&self, result: Result<String, ApiError>, sent: std::time::Instant) -> Result<Round, ApiError> {
        match result {
            Ok(_) => {
                self.candidate().written(sent);
                Ok(Round::Held)
            }
            // Another process was faster.
            Err(error) if error.code() == Some(409) => Ok(Round::Wait(LOOK)),
            Err(error) => Err(error),
        }
    }

    /// Gives the Lease up if this process holds it, so that another one can take it at once.
    pub async fn release(&self) {
        if !self.holds() {
            return;
        }
        self.candidate().lost();
        self.tell();
        let Ok(Some(json)) = self.api.get(&self.name.path()).await else { return };
        let Ok(lease) = documents::lease(&json) else { return };
        if lease.holder == self.identity() {
            let patch = documents::released_lease(&lease.version);
            if let Err(error) = self.api.merge(&self.name.patch_path(), &patch).await {
                tracing::debug!(%error, "can't release the Lease; it expires");
            }
        }
    }
}

/// Returns an identity: the host's name for people, and a random number, because two processes of one host are
/// two candidates.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{host}_{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        let name: LeaseName = "nodegate/nodegate-haproxy".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("nodegate", "nodegate-haproxy"));
        assert_eq!("a".parse(), Ok(LeaseName { namespace: "nodegate".to_owned(), name: "a".to_owned() }));
        for bad in ["", "/a", "a/", "a/b/c", "A/b", "a/b c", "a/?x"] {
            assert!(bad.parse::<LeaseName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn two_processes_of_one_host_have_two_identities() {
        assert_ne!(identity(), identity());
    }
}
