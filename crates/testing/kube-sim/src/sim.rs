//! The simulator as tests hold it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::api::auth::{ADMIN_TOKEN, Rule, User};
use crate::api::service::ApiService;
use crate::cluster::kubelet::Kubelets;
use crate::cluster::node::NodeShape;
use crate::counters::Counters;
use crate::faults::requests::Faults;
use crate::kubeconfig;
use crate::net::tls::CertificateError;
use crate::server::{ApiServer, ApiServers};
use crate::store::object::{Key, meta_mut, meta_str};
use crate::store::resource::{by_plural, find_kind};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::{Edit, Store};

pub(crate) struct Inner {
    pub(crate) servers: Arc<ApiServers>,
    pub(crate) kubelets: Arc<Kubelets>,
    /// What the nodes look like that it makes.
    pub(crate) shape: NodeShape,
    pub(crate) with_kubelets: bool,
    /// Nodes made so far, for addresses of their own.
    pub(crate) made: AtomicUsize,
    pub(crate) tasks: Vec<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.servers.all().iter().for_each(|server| server.net.stop());
    }
}

/// A running simulated Kubernetes API. Clones are the same simulator; it goes on until
/// [`Sim::shutdown`], or until the last clone is dropped.
#[derive(Clone)]
pub struct Sim {
    pub(crate) inner: Arc<Inner>,
}

impl Sim {
    pub(crate) fn first(&self) -> &ApiServer {
        &self.inner.servers.first
    }

    // --- where it is ---

    /// `http://127.0.0.1:port` or `https://…`.
    pub fn url(&self) -> String {
        self.first().url()
    }

    /// Where the API listens.
    pub fn address(&self) -> SocketAddr {
        self.first().address()
    }

    /// Returns the CA certificate that clients must trust now; none for plain HTTP.
    pub fn ca_pem(&self) -> Option<String> {
        self.first().net.tls.as_ref().map(|tls| tls.ca_pem())
    }

    /// Returns the administrator's kubeconfig. Ask again after a CA rotation.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(ADMIN_TOKEN)
    }

    /// Returns a kubeconfig with another token.
    pub fn kubeconfig_for(&self, token: &str) -> String {
        self.kubeconfig_as(&json!({ "token": token }))
    }

    /// Returns a kubeconfig with a user of any kind, as a kubeconfig has it: `json!({"exec": …})`.
    pub fn kubeconfig_as(&self, user: &Value) -> String {
        kubeconfig::render(&self.url(), self.ca_pem().as_deref(), user)
    }

    /// Returns the administrator's client certificate, as the user of a kubeconfig; `Null` for plain HTTP.
    /// Ask again after a CA rotation.
    pub fn client_certificate(&self) -> Result<Value, CertificateError> {
        let Some(tls) = &self.first().net.tls else { return Ok(Value::Null) };
        let (certificate, key) = tls.administrator()?;
        let encoded = |pem: String| STANDARD.encode(pem);
        Ok(json!({"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}))
    }

    /// Writes [`Sim::kubeconfig`] to a file.
    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    /// Returns the API server as a service, which is asked without a socket.
    pub fn service(&self) -> ApiService {
        self.first().service()
    }

    // --- its parts ---

    /// Returns the current resourceVersion.
    pub fn version(&self) -> u64 {
        self.store().version()
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.first().api.store
    }

    /// Fault switches for requests.
    pub fn faults(&self) -> &Faults {
        &self.first().api.faults
    }

    /// Counters.
    pub fn counters(&self) -> &Counters {
        &self.first().api.counters
    }

    // --- tokens ---

    /// Lets a `ServiceAccount` in with a token and rules.
    pub fn service_account(&self, token: &str, namespace: &str, name: &str, rules: Vec<Rule>) {
        self.first().api.tokens.set(token, User::service_account(namespace, name, rules));
    }

    /// The old token is refused, the new one is the same user. False if the old one was unknown.
    pub fn rotate_token(&self, old: &str, new: &str) -> bool {
        self.first().api.tokens.rename(old, new)
    }

    // --- objects ---

    /// Stores an object as it is, status and all, created or replaced. For setting scenes: no
    /// validation, no defaults, but watchers see it like any write.
    pub fn apply(&self, mut object: Value) -> Result<Value, ApiStatus> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = find_kind(&text("apiVersion"), &text("kind")).ok_or_else(ApiStatus::no_resource)?;
        let of = |field| meta_str(&object, field).unwrap_or_default().to_owned();
        let namespace = if resource.namespaced && of("namespace").is_empty() {
            "default".to_owned()
        } else {
            of("namespace")
        };
        let name = of("name");
        if resource.namespaced {
            meta_mut(&mut object).insert("namespace".to_owned(), json!(namespace));
        }
        let (stored, _) = self.store().write(resource, &Key::new(namespace, name), |old| {
            let (uid, created) = match old {
                Some(old) => {
                    (old.meta("uid").map(str::to_owned), old.meta("creationTimestamp").map(str::to_owned))
                }
                None => (None, None),
            };
            let meta = meta_mut(&mut object);
            meta.entry("uid").or_insert_with(|| json!(uid.unwrap_or_else(crate::store::object::uuid)));
            meta.entry("creationTimestamp")
                .or_insert_with(|| json!(created.unwrap_or_else(crate::store::time::now)));
            Ok(Edit::Put(object))
        })?;
        stored.map(|o| o.value.clone()).ok_or_else(ApiStatus::no_resource)
    }

    /// Returns an object, by plural resource, namespace (empty for cluster-scoped) and name.
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store().get(by_plural(plural), &Key::new(namespace, name)).map(|o| o.value.clone())
    }

    /// Returns all objects of a plural resource.
    pub fn list(&self, plural: &str) -> Vec<Value> {
        let all = self.store().list(by_plural(plural), None, &Selector::default()).1;
        all.iter().map(|object| object.value.clone()).collect()
    }

    /// Deletes an object without ceremony. False if it was not there.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let resource = by_plural(plural);
        self.store()
            .write(resource, &Key::new(namespace, name), |_| Ok(Edit::Remove))
            .is_ok_and(|(_, gone)| gone)
    }

    // --- kubelets ---

    /// Starts (or starts again) a node's simulated kubelet.
    pub fn start_kubelet(&self, node: &str) {
        self.inner.kubelets.start(node);
    }

    /// Stops a node's kubelet: its Lease is no longer renewed, after the grace period it is Unknown.
    pub fn stop_kubelet(&self, node: &str) {
        self.inner.kubelets.stop(node);
    }

    // --- faults of the first API server's connections ---

    /// The API server is killed: port closed, connections reset. State is kept.
    pub async fn kill(&self) {
        self.first().kill().await;
    }

    /// It is started again on the same port. With `compact`, older versions are gone (410).
    pub async fn restart(&self, compact: bool) -> io::Result<()> {
        if compact {
            self.store().compact(true);
        }
        self.first().restart().await
    }

    /// As SIGSTOP: everything stays open, nothing answers.
    pub fn freeze(&self) {
        self.first().freeze();
    }

    /// Ends [`Sim::freeze`], [`Sim::half_open`], [`Sim::blackhole_new`] and [`Sim::ignore_new`].
    pub fn heal(&self) {
        self.first().heal();
    }

    /// Every packet of the connections open now is dropped, both ways; new connections work.
    pub fn half_open(&self) {
        self.first().half_open();
    }

    /// Packets of new connections are dropped: connecting times out.
    pub fn blackhole_new(&self) -> io::Result<()> {
        self.first().blackhole_new()
    }

    /// New connections are accepted by the kernel and never served.
    pub fn ignore_new(&self) {
        self.first().ignore_new();
    }

    /// Resets every open connection.
    pub fn reset_connections(&self) {
        self.first().reset_connections();
    }

    /// Returns true if requests can be answered at all (neither killed nor frozen).
    pub fn is_up(&self) -> bool {
        self.first().is_up()
    }

    /// Forgets old versions: watches from them get 410. With `cut`, running watches do too.
    pub fn compact(&self, cut: bool) {
        self.store().compact(cut);
    }

    /// Ends running watches of a resource (`None`: of all) without a word.
    pub fn close_watches(&self, plural: Option<&str>) {
        self.store().close_watches(plural);
    }

    /// Makes a new server certificate, by a new CA if `ca`. Connections go on unless `reset`.
    pub fn rotate_certificate(&self, ca: bool, reset: bool) -> Result<(), CertificateError> {
        if let Some(tls) = &self.first().net.tls {
            tls.rotate(ca)?;
        }
        if reset {
            self.reset_connections();
        }
        Ok(())
    }

    /// Ends everything.
    pub async fn shutdown(&self) {
        self.inner.tasks.iter().for_each(AbortHandle::abort);
        for server in self.servers() {
            server.kill().await;
        }
    }
}
