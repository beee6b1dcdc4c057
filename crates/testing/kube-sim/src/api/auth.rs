//! Authentication and authorization: tokens, users and RBAC-like rules.

use crate::store::status::{ApiStatus, Subject};
use crate::wire::request::{QueryString, ResourcePath};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

pub const ADMIN_TOKEN: &str = "sim-admin";

/// One rule, as in a `PolicyRule`.
#[derive(Clone, Debug)]
pub struct Rule {
    group: &'static str,
    pub resources: Vec<&'static str>,
    name: Option<&'static str>,
    /// The only namespace of the rule; `None` for all (a `ClusterRoleBinding`).
    namespace: Option<&'static str>,
    verbs: Vec<&'static str>,
}

impl Rule {
    /// Returns a rule for whole resources everywhere: `Rule::allow(&["get", "watch"], "", &["nodes"])`.
    pub fn allow(verbs: &[&'static str], group: &'static str, resources: &[&'static str]) -> Self {
        Rule { group, resources: resources.to_vec(), name: None, namespace: None, verbs: verbs.to_vec() }
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &'static str) -> Self {
        Rule { namespace: Some(namespace), ..self }
    }

    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Rule { name: Some(name), ..self }
    }

    fn allows(&self, ask: &AccessRequest<'_>) -> bool {
        self.verbs.contains(&ask.verb)
            && self.group == ask.target.group
            && self.resources.contains(&&*ask.target.full_resource())
            && self.name.is_none_or(|name| name == ask.name)
            && self.namespace.is_none_or(|namespace| namespace == ask.target.namespace)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRequest<'a> {
    target: &'a ResourcePath,
    verb: &'a str,
    name: &'a str,
}

impl<'a> AccessRequest<'a> {
    /// Returns the access that a request needs. A list of one name needs access to that name.
    pub(crate) fn of(target: &'a ResourcePath, verb: &'a str, query: &'a QueryString) -> Self {
        let selected = query
            .get("fieldSelector")
            .filter(|_| target.name.is_empty())
            .and_then(|s| s.split(',').find_map(|term| term.strip_prefix("metadata.name=")))
            .unwrap_or(&target.name);
        AccessRequest { target, verb, name: selected.trim_start_matches('=') }
    }

    /// Returns the 403 for a user without this permission.
    pub(crate) fn refusal(&self, user: &str) -> ApiStatus {
        let ResourcePath { group, namespace, resource, .. } = self.target;
        let scope = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let (verb, what) = (self.verb, self.target.full_resource());
        let message =
            format!("User \"{user}\" cannot {verb} resource \"{what}\" in API group \"{group}\" {scope}");
        ApiStatus::forbidden(Subject { group, resource, name: self.name }, &message)
    }
}

const ANONYMOUS: &str = "system:anonymous";

#[derive(Clone, Debug)]
pub(crate) struct User {
    /// The name: `system:serviceaccount:<namespace>:<name>` or the like.
    pub name: String,
    /// The permissions; `None` for all.
    rules: Option<Vec<Rule>>,
}

impl User {
    pub(crate) fn admin() -> Self {
        User { name: "kubernetes-admin".to_owned(), rules: None }
    }

    /// Returns `system:anonymous`, who may read only public paths.
    pub(crate) fn anonymous() -> Self {
        User { name: ANONYMOUS.to_owned(), rules: Some(Vec::new()) }
    }

    pub(crate) fn service_account(namespace: &str, name: &str, rules: Vec<Rule>) -> Self {
        User { name: format!("system:serviceaccount:{namespace}:{name}"), rules: Some(rules) }
    }

    pub(crate) fn may(&self, ask: &AccessRequest<'_>) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.allows(ask)))
    }

    /// Returns true if the user may read a path. Health and version are public, discovery is for all users.
    pub(crate) fn may_path(&self, path: &str) -> bool {
        let root = path.split('/').nth(1).unwrap_or_default();
        match root {
            "healthz" | "livez" | "readyz" | "version" => true,
            "api" | "apis" | "openapi" => self.name != ANONYMOUS,
            _ => self.rules.is_none(),
        }
    }
}

/// The users of the tokens. A test can change them while clients are connected, as token rotation does.
#[derive(Debug)]
pub(crate) struct Tokens(Mutex<HashMap<String, User>>);

impl Tokens {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::from([(ADMIN_TOKEN.to_owned(), User::admin())])))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, User>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns a token to a user, and replaces the earlier user of the token.
    pub(crate) fn set(&self, token: &str, user: User) {
        self.lock().insert(token.to_owned(), user);
    }

    /// Gives the user of the old token a new one. Returns false if the old token is unknown.
    pub(crate) fn rename(&self, old: &str, new: &str) -> bool {
        let mut users = self.lock();
        let user = users.remove(old);
        user.is_some_and(|user| users.insert(new.to_owned(), user).is_none())
    }

    pub(crate) fn user(&self, token: &str) -> Option<User> {
        self.lock().get(token).cloned()
    }
}
