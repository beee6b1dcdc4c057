//! Who asks, and whether they may: tokens, client certificates aside, and RBAC-like rules.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::store::status::{ApiStatus, Subject};
use crate::wire::request::{QueryString, ResourcePath};

/// The administrator's token.
pub const ADMIN_TOKEN: &str = "sim-admin";

/// One rule, as in a `PolicyRule`; `*` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// API groups; `""` is the core group.
    pub api_groups: Vec<String>,
    /// Resources, `nodes` or `nodes/status`.
    pub resources: Vec<String>,
    /// Object names; empty for all.
    pub resource_names: Vec<String>,
    /// Only in this namespace; none for everywhere (a `ClusterRoleBinding`).
    pub namespace: Option<String>,
    /// Verbs.
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

    /// The same rule for one namespace.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// The same rule for one object.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.resource_names.push(name.to_owned());
        self
    }

    fn allows(&self, ask: &AccessRequest<'_>) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|w| w == "*" || w == word);
        has(&self.verbs, ask.verb)
            && has(&self.api_groups, ask.group)
            && has(&self.resources, &ask.full_resource())
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|n| n == ask.name))
            && self.namespace.as_deref().is_none_or(|n| n == ask.namespace)
    }
}

/// One question to the authorizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRequest<'a> {
    /// `get`, `list`, `watch`, …
    pub verb: &'a str,
    /// API group.
    pub group: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Subresource or empty.
    pub subresource: &'a str,
    /// Namespace or empty.
    pub namespace: &'a str,
    /// Object name or empty.
    pub name: &'a str,
}

impl<'a> AccessRequest<'a> {
    /// What a request asks. As in the API server, a list by one name asks for that name.
    pub(crate) fn of(target: &'a ResourcePath, verb: &'a str, query: &'a QueryString) -> Self {
        let selected = query
            .get("fieldSelector")
            .filter(|_| target.name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection"))
            .and_then(|s| s.split(',').find_map(|term| term.strip_prefix("metadata.name=")))
            .unwrap_or(&target.name);
        AccessRequest {
            verb,
            group: &target.group,
            resource: &target.resource,
            subresource: &target.subresource,
            namespace: &target.namespace,
            name: selected.trim_start_matches('='),
        }
    }

    fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// Returns the 403 for a user that may not.
    pub(crate) fn refusal(&self, user: &str) -> ApiStatus {
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", self.namespace)
        };
        let message = format!(
            "User \"{user}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
            self.verb,
            self.full_resource(),
            self.group
        );
        ApiStatus::forbidden(
            Subject { group: self.group, resource: self.resource, name: self.name },
            &message,
        )
    }
}

/// A user behind a token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// `system:serviceaccount:<namespace>:<name>` or the like.
    pub name: String,
    may: Permissions,
}

#[derive(Clone, Debug)]
enum Permissions {
    /// A member of `system:masters`.
    All,
    /// Somebody who has logged in.
    Rules(Vec<Rule>),
    /// Somebody who has not.
    None,
}

impl User {
    /// Returns the administrator: may do everything.
    pub(crate) fn admin() -> Self {
        User { name: "kubernetes-admin".to_owned(), may: Permissions::All }
    }

    /// Nobody.
    pub(crate) fn anonymous() -> Self {
        User { name: "system:anonymous".to_owned(), may: Permissions::None }
    }

    /// Returns a `ServiceAccount` with rules.
    pub(crate) fn service_account(namespace: &str, name: &str, rules: Vec<Rule>) -> Self {
        let name = format!("system:serviceaccount:{namespace}:{name}");
        User { name, may: Permissions::Rules(rules) }
    }

    /// Returns true if this user may.
    pub(crate) fn may(&self, ask: &AccessRequest<'_>) -> bool {
        match &self.may {
            Permissions::All => true,
            Permissions::Rules(rules) => rules.iter().any(|rule| rule.allows(ask)),
            Permissions::None => false,
        }
    }

    /// Returns true if this user may read a path that is no resource: health and version are public,
    /// discovery is for everyone who has logged in.
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

/// Which token is who. Changed while clients are connected, as token rotation does.
#[derive(Debug)]
pub(crate) struct Tokens {
    users: Mutex<HashMap<String, User>>,
}

impl Tokens {
    /// Starts with the administrator's.
    pub(crate) fn new() -> Self {
        Tokens { users: Mutex::new(HashMap::from([(ADMIN_TOKEN.to_owned(), User::admin())])) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, User>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a token in as this user (again, or with other rules).
    pub(crate) fn set(&self, token: &str, user: User) {
        self.lock().insert(token.to_owned(), user);
    }

    /// From now on the old token is refused, and the new one is the same user. False if the old one was unknown.
    pub(crate) fn rename(&self, old: &str, new: &str) -> bool {
        let mut users = self.lock();
        let user = users.remove(old);
        user.is_some_and(|user| users.insert(new.to_owned(), user).is_none())
    }

    /// Returns the user behind a token.
    pub(crate) fn user(&self, token: &str) -> Option<User> {
        self.lock().get(token).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_narrow_by_name_and_namespace() {
        let rule = Rule::allow(&["get"], "coordination.k8s.io", &["leases"])
            .in_namespace("kube-node-lease")
            .named("a");
        let user = User::service_account("n", "s", vec![rule]);
        let ask = AccessRequest {
            verb: "get",
            group: "coordination.k8s.io",
            resource: "leases",
            subresource: "",
            namespace: "kube-node-lease",
            name: "a",
        };
        assert!(user.may(&ask));
        assert!(!user.may(&AccessRequest { name: "b", ..ask }));
        assert!(!user.may(&AccessRequest { namespace: "x", ..ask }));
        assert!(!user.may(&AccessRequest { verb: "watch", ..ask }));
    }
}
