//! Authentication and authorization: tokens, users and RBAC-like rules. Client certificates are handled
//! elsewhere.

use crate::store::status::{ApiStatus, Subject};
use crate::wire::request::{QueryString, ResourcePath};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The bearer token of the administrator.
pub const ADMIN_TOKEN: &str = "sim-admin";

/// One rule, as in a `PolicyRule`; `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The API groups; `""` is the core group.
    pub api_groups: Vec<String>,
    /// The resources, `nodes` or `nodes/status`.
    pub resources: Vec<String>,
    /// The object names; empty for all.
    pub resource_names: Vec<String>,
    /// The only namespace of the rule; `None` for all (a `ClusterRoleBinding`).
    pub namespace: Option<String>,
    /// The verbs that the rule allows.
    pub verbs: Vec<String>,
}

impl Rule {
    /// Returns a rule for whole resources everywhere: `Rule::allow(&["get", "watch"], "", &["nodes"])`.
    pub fn allow(verbs: &[&str], group: &str, resources: &[&str]) -> Self {
        let own = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
        Rule {
            api_groups: vec![group.to_owned()],
            resources: own(resources),
            verbs: own(verbs),
            ..Rule::default()
        }
    }

    /// Returns the same rule for one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Returns the same rule for one object.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.resource_names.push(name.to_owned());
        self
    }

    fn allows(&self, ask: &AccessRequest<'_>) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|w| w == "*" || w == word);
        has(&self.verbs, ask.verb)
            && has(&self.api_groups, &ask.target.group)
            && has(&self.resources, &ask.target.full_resource())
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == ask.name))
            && self.namespace.as_deref().is_none_or(|n| n == ask.target.namespace)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRequest<'a> {
    target: &'a ResourcePath,
    /// The verb: `get`, `list`, `watch`, …
    verb: &'a str,
    name: &'a str,
}

impl<'a> AccessRequest<'a> {
    /// Returns the access that a request needs. As in the API server, a list with a field selector for one
    /// name needs access to that name.
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

#[derive(Clone, Debug)]
pub(crate) struct User {
    /// The name: `system:serviceaccount:<namespace>:<name>` or the like.
    pub name: String,
    may: Permissions,
}

#[derive(Clone, Debug)]
enum Permissions {
    All,
    Rules(Vec<Rule>),
    None,
}

impl User {
    pub(crate) fn admin() -> Self {
        User { name: "kubernetes-admin".to_owned(), may: Permissions::All }
    }

    /// Returns `system:anonymous`, who may read only public paths.
    pub(crate) fn anonymous() -> Self {
        User { name: "system:anonymous".to_owned(), may: Permissions::None }
    }

    pub(crate) fn service_account(namespace: &str, name: &str, rules: Vec<Rule>) -> Self {
        let name = format!("system:serviceaccount:{namespace}:{name}");
        User { name, may: Permissions::Rules(rules) }
    }

    pub(crate) fn may(&self, ask: &AccessRequest<'_>) -> bool {
        match &self.may {
            Permissions::All => true,
            Permissions::Rules(rules) => rules.iter().any(|rule| rule.allows(ask)),
            Permissions::None => false,
        }
    }

    /// Returns true if the user may read a path that is not a resource. Health and version are public;
    /// discovery is for all authenticated users.
    pub(crate) fn may_path(&self, path: &str) -> bool {
        let public = ["/healthz", "/livez", "/readyz", "/version"];
        let discovery = ["/api", "/apis", "/openapi"];
        let under = |root: &&str| path == *root || path.starts_with(&format!("{root}/"));
        match self.may {
            Permissions::All => true,
            Permissions::Rules(_) => public.iter().chain(&discovery).any(under),
            Permissions::None => public.iter().any(under),
        }
    }
}

/// The users of the tokens. A test can change them while clients are connected, as token rotation does.
#[derive(Debug)]
pub(crate) struct Tokens {
    users: Mutex<HashMap<String, User>>,
    /// The client certificates that are no longer accepted.
    refused: Mutex<Vec<Vec<u8>>>,
}

impl Tokens {
    pub(crate) fn new() -> Self {
        let users = Mutex::new(HashMap::from([(ADMIN_TOKEN.to_owned(), User::admin())]));
        Tokens { users, refused: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assigns a token to a user, and replaces the earlier user of the token.
    pub(crate) fn set(&self, token: &str, user: User) {
        self.lock().insert(token.to_owned(), user);
    }

    /// Refuses the old token from now on and assigns its user to the new one. Returns false if the old token
    /// is unknown.
    pub(crate) fn rename(&self, old: &str, new: &str) -> bool {
        let mut users = self.lock();
        let user = users.remove(old);
        user.is_some_and(|user| users.insert(new.to_owned(), user).is_none())
    }

    /// Refuses a client certificate from now on.
    pub(crate) fn refuse(&self, certificate: Vec<u8>) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(certificate);
    }

    pub(crate) fn refuses(&self, certificate: &[u8]) -> bool {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().any(|other| other == certificate)
    }

    pub(crate) fn user(&self, token: &str) -> Option<User> {
        self.lock().get(token).cloned()
    }
}
