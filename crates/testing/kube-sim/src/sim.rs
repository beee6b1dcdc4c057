//! The simulator's interface for tests.

use crate::api::auth::{ADMIN_TOKEN, Rule, User};
use crate::counters::Counters;
use crate::faults::etcd::Lost;
use crate::faults::requests::Faults;
use crate::net::tls::SetupError;
use crate::server::ApiServer;
use crate::store::object::{Key, meta_mut, meta_str, now, uuid};
use crate::store::resource::{by_plural, find_kind};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::store::{Backup, Edit, Store};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub(crate) struct Inner {
    pub(crate) servers: Vec<ApiServer>,
    pub(crate) node_bytes: usize,
    /// The interval of Lease renewals, if nodes have kubelets.
    pub(crate) lease_interval: Option<Duration>,
    /// The number of nodes so far, which makes their addresses unique.
    pub(crate) made: AtomicUsize,
    pub(crate) runtime: Handle,
    pub(crate) tasks: Mutex<JoinSet<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.servers.iter().for_each(|server| drop(server.net.stop()));
    }
}

/// A simulated Kubernetes API. Clones are the same one, which runs until the last is dropped.
#[derive(Clone)]
pub struct Sim {
    pub(crate) inner: Arc<Inner>,
}

/// A simulator is its first API server, and more.
impl Deref for Sim {
    type Target = ApiServer;

    fn deref(&self) -> &ApiServer {
        &self.inner.servers[0]
    }
}

impl Sim {
    /// Returns the CA certificate that clients must trust now, or `None` for plain HTTP.
    pub fn ca_pem(&self) -> Option<String> {
        self.net.tls.as_ref().map(|tls| tls.ca_pem())
    }

    /// Returns the administrator's kubeconfig. It changes with a CA rotation.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(ADMIN_TOKEN)
    }

    pub fn kubeconfig_for(&self, token: &str) -> String {
        self.kubeconfig_as(&json!({ "token": token }))
    }

    /// Returns a kubeconfig with any user in kubeconfig form, such as `json!({"exec": …})`.
    pub fn kubeconfig_as(&self, user: &Value) -> String {
        kubeconfig(&self.url(), self.ca_pem().as_deref(), user)
    }

    /// Returns the administrator's client certificate as the user of a kubeconfig, or `Null` for plain HTTP.
    pub fn client_certificate(&self) -> Result<Value, SetupError> {
        let Some(tls) = &self.net.tls else { return Ok(Value::Null) };
        let (certificate, key) = tls.administrator()?;
        let encoded = |pem: String| STANDARD.encode(pem);
        Ok(json!({"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}))
    }

    pub fn write_kubeconfig(&self, path: &Path) -> io::Result<()> {
        std::fs::write(path, self.kubeconfig())
    }

    pub fn version(&self) -> u64 {
        self.store().version()
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.api.store
    }

    pub fn faults(&self) -> &Faults {
        &self.api.faults
    }

    pub fn counters(&self) -> &Counters {
        &self.api.counters
    }

    /// Adds a `ServiceAccount` with a token and rules.
    pub fn service_account(&self, token: &str, namespace: &str, name: &str, rules: Vec<Rule>) {
        self.api.tokens.set(token, User::service_account(namespace, name, rules));
    }

    /// Gives the user of the old token a new one. Returns false if the old token is unknown.
    pub fn rotate_token(&self, old: &str, new: &str) -> bool {
        self.api.tokens.rename(old, new)
    }

    /// Stores an object with its status, without validation or defaults. Watchers see it like any write.
    pub fn apply(&self, mut object: Value) -> Result<Value, ApiStatus> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let resource = find_kind(&text("apiVersion"), &text("kind")).ok_or_else(ApiStatus::no_resource)?;
        let of = |field| meta_str(&object, field).unwrap_or_default().to_owned();
        let (name, mut namespace) = (of("name"), of("namespace"));
        if resource.namespaced && namespace.is_empty() {
            "default".clone_into(&mut namespace);
            meta_mut(&mut object).insert("namespace".to_owned(), json!(namespace));
        }
        let (stored, _) = self.store().write(resource, &Key::new(namespace, name), |old| {
            let kept = |field: &str| old.and_then(|old| old.meta(field)).map(str::to_owned);
            let meta = meta_mut(&mut object);
            meta.entry("uid").or_insert_with(|| json!(kept("uid").unwrap_or_else(uuid)));
            let created = || json!(kept("creationTimestamp").unwrap_or_else(now));
            meta.entry("creationTimestamp").or_insert_with(created);
            Ok(Edit::Put(object))
        })?;
        stored.map(|o| o.value.clone()).ok_or_else(ApiStatus::no_resource)
    }

    /// Returns an object, by plural resource, namespace (empty for cluster-scoped) and name.
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store().get(by_plural(plural), &Key::new(namespace, name)).map(|o| o.value.clone())
    }

    pub fn list(&self, plural: &str) -> Vec<Value> {
        let all = self.store().list(by_plural(plural), &Selector::default()).1;
        all.iter().map(|object| object.value.clone()).collect()
    }

    /// Deletes an object at once, without finalizers or grace period. Returns false if it does not exist.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let resource = by_plural(plural);
        self.store()
            .write(resource, &Key::new(namespace, name), |_| Ok(Edit::Remove))
            .is_ok_and(|(_, gone)| gone)
    }

    /// Starts the API server again on the same port. With `compact`, older versions are gone (410).
    pub async fn restart(&self, compact: bool) -> io::Result<()> {
        if compact {
            self.store().compact();
        }
        ApiServer::restart(self).await
    }

    pub fn back_up_etcd(&self) -> Backup {
        self.store().back_up()
    }

    /// Restores etcd from a copy: later writes are lost. Until an API server restarts, it goes on with its caches, and waits for
    /// changes after a version that does not exist yet.
    pub fn restore_etcd(&self, backup: &Backup) {
        for server in &self.inner.servers {
            server.api.etcd.lose(Lost::History, self.store(), &[]);
        }
        self.store().restore(backup);
    }

    pub fn servers(&self) -> Vec<ApiServer> {
        self.inner.servers.clone()
    }

    /// Compacts the history, so that watches get 410.
    pub fn compact(&self) {
        self.store().compact();
    }

    /// Ends the running watches of a resource (`None`: of all) without an error event.
    pub fn close_watches(&self, plural: Option<&str>) {
        self.store().close_watches(plural);
    }

    /// Makes a new server certificate, signed by a new CA if `ca`. Connections continue unless `reset`.
    pub fn rotate_certificate(&self, ca: bool, reset: bool) -> Result<(), SetupError> {
        if let Some(tls) = &self.net.tls {
            tls.rotate(ca)?;
        }
        if reset {
            self.reset_connections();
        }
        Ok(())
    }

    /// Makes a new server certificate of the same CA that is valid for these names only.
    pub fn certify_only(&self, names: &[&str]) -> Result<(), SetupError> {
        match &self.net.tls {
            Some(tls) => tls.rename(names),
            None => Ok(()),
        }
    }
}

/// Returns a kubeconfig for one server and user, with the CA inside. It is JSON, which is valid YAML.
fn kubeconfig(url: &str, ca_pem: Option<&str>, user: &Value) -> String {
    let ca = ca_pem
        .map(|pem| format!("\n    certificate-authority-data: {}", STANDARD.encode(pem)))
        .unwrap_or_default();
    let lines = user.as_object().into_iter().flatten().map(|(key, value)| format!("\n    {key}: {value}"));
    let user: String = lines.collect();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters:\n- name: sim\n  cluster:\n    server: {url}{ca}\n\
         contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\n\
         users:\n- name: sim\n  user:{user}\npreferences: {{}}\n"
    )
}
