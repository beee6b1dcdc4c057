//! The Lease that decides which of several processes writes. [`candidate`] has the rules, this file the requests.

pub(crate) mod candidate;

use crate::failure::FORBIDDEN;
use crate::lease::candidate::{Candidate, DURATION, LOOK, LeaseState, RENEW};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use nodegate_kube_follow::{ApiError, Backoff, KubeApi};
use nodegate_program::is_object_name;
use serde_json::{Value, json};
use std::str::FromStr;
use std::time::Duration;
use tokio::time::Instant;

/// The wait of a holder after a failed renewal.
const AGAIN: Duration = Duration::from_millis(500);
/// The longest wait of another process after a failure.
const LATER: Duration = Duration::from_secs(5);
/// The longest time for the credentials of a connection.
const CONNECT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseName {
    pub(crate) namespace: String,
    /// Also the field manager of all writes: two pairs with different names leave each other's statuses
    /// alone.
    pub(crate) name: String,
}

/// Returns the namespace of this Pod, or outside of a Pod that of the manifests.
fn own_namespace() -> String {
    let file = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    std::fs::read_to_string(file).map_or("nodegate".to_owned(), |text| text.trim().to_owned())
}

impl FromStr for LeaseName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |name: &str| is_object_name(name) && name.len() <= 63;
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

pub(crate) struct LeaseKeeper {
    api: KubeApi,
    name: LeaseName,
    candidate: Candidate,
    /// The time of the next look at the Lease.
    due: Instant,
    backoff: Backoff,
}

impl LeaseKeeper {
    /// Creates a keeper with an identity that no other process has.
    pub(crate) fn new(api: KubeApi, name: LeaseName) -> Self {
        let candidate = Candidate::new(identity());
        Self { api, name, candidate, due: Instant::now(), backoff: Backoff::default() }
    }

    pub(crate) fn identity(&self) -> &str {
        &self.candidate.identity
    }

    pub(crate) fn holds(&self) -> bool {
        self.candidate.holds(nodegate_clock::now())
    }

    /// Takes or renews the Lease, or releases it if this process does not want it. `None` if neither is due.
    pub(crate) async fn keep(&mut self, wanted: bool) -> Option<Result<(), ApiError>> {
        if Instant::now() < self.due {
            return None;
        }
        let result = if wanted {
            self.round().await
        } else {
            self.release().await;
            Ok(LOOK)
        };
        let wait = match &result {
            Ok(wait) => {
                self.backoff.reset();
                *wait
            }
            Err(error) if error.code() == Some(403) => FORBIDDEN,
            Err(_) if self.holds() => AGAIN,
            Err(_) => self.backoff.wait().min(LATER),
        };
        self.due = Instant::now() + wait;
        Some(result.map(drop))
    }

    /// Reads the Lease, and takes or renews it if that is due. Returns the wait before the next round.
    async fn round(&mut self) -> Result<Duration, ApiError> {
        let late = || ApiError::Late("connect".to_owned(), CONNECT);
        tokio::time::timeout(CONNECT, self.api.open()).await.map_err(|_| late())??;
        let known = self.read().await?;
        let sent = nodegate_clock::now();
        if let Some(Err(wait)) = known.as_ref().map(|lease| self.candidate.look(lease, sent)) {
            return Ok(wait);
        }
        let now = json!(MicroTime(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
        let spec = json!({
            "holderIdentity": self.identity(), "leaseDurationSeconds": DURATION.as_secs(), "renewTime": now,
        });
        match self.write(known.as_ref().map(|lease| lease.version.as_str()), spec).await {
            Ok(_) => {
                self.candidate.written(sent);
                Ok(RENEW)
            }
            // Another process was faster.
            Err(error) if error.code() == Some(409) => Ok(LOOK),
            Err(error) => Err(error),
        }
    }

    async fn read(&self) -> Result<Option<LeaseState>, ApiError> {
        let path = format!("{}/{}", self.path(), self.name.name);
        let Some(text) = self.api.get(&path).await? else { return Ok(None) };
        let lease: Lease = serde_json::from_str(&text)
            .map_err(|error| ApiError::Unreadable(format!("GET {path}"), error.to_string()))?;
        let spec = lease.spec.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Some(LeaseState {
            holder: spec.holder_identity.unwrap_or_default(),
            duration: Duration::from_secs(seconds.unwrap_or_default()),
            version: lease.metadata.resource_version.unwrap_or_default(),
        }))
    }

    /// Writes over a version, or creates the Lease if there is none.
    async fn write(&self, version: Option<&str>, spec: Value) -> Result<String, ApiError> {
        let LeaseName { name, .. } = &self.name;
        let path = self.path();
        if let Some(version) = version {
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": spec});
            return self.api.merge(&format!("{path}/{name}?fieldManager={name}"), &patch).await;
        }
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": self.name.namespace, "name": name}, "spec": spec,
        });
        self.api.post(&format!("{path}?fieldManager={name}"), &lease).await
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.name.namespace)
    }

    /// Gives the Lease up if this process holds it, so that another one can take it at once.
    pub(crate) async fn release(&mut self) {
        if !self.holds() {
            return;
        }
        self.candidate.lost();
        let Ok(Some(lease)) = self.read().await else { return };
        if lease.holder == self.identity() {
            let spec = json!({"holderIdentity": null, "leaseDurationSeconds": 1});
            if let Err(error) = self.write(Some(&lease.version), spec).await {
                tracing::debug!(%error, "can't release the Lease; it expires");
            }
        }
    }
}

/// Returns an identity: the host's name, and a random number, because two processes of one host are two
/// candidates.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{host}_{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::candidate::REQUEST;
    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use nodegate_kube_follow::{Connector, NoObserver};
    use std::sync::Arc;
    use tower::util::BoxCloneService;
    use tower::{BoxError, service_fn};

    /// A credential plugin may need seconds, and no request has them to spare.
    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_connection_is_no_requests() {
        let slow = |_: Request<Body>| async {
            tokio::time::sleep(REQUEST.mul_f64(0.75)).await;
            let body = Body::from(b"{}".to_vec()).map_err(BoxError::from);
            Ok::<_, BoxError>(Response::new(body.boxed_unsync()))
        };
        let connector = Connector::Simulated(Arc::new(move || BoxCloneService::new(service_fn(slow))));
        let api = KubeApi::over(connector, REQUEST, Arc::new(NoObserver));
        let mut keeper = LeaseKeeper::new(api, "nodegate/a".parse().unwrap());
        assert_eq!(keeper.round().await.unwrap(), RENEW);
    }

    #[test]
    fn a_lease_has_a_namespace_and_a_name() {
        let name: LeaseName = "nodegate/nodegate-haproxy".parse().unwrap();
        assert_eq!((name.namespace.as_str(), name.name.as_str()), ("nodegate", "nodegate-haproxy"));
        assert_eq!("a".parse(), Ok(LeaseName { namespace: "nodegate".to_owned(), name: "a".to_owned() }));
        for bad in ["", "/a", "a/", "a/b/c", "A/b", "a/b c", "a/?x"] {
            assert!(bad.parse::<LeaseName>().is_err(), "{bad}");
        }
    }
}
