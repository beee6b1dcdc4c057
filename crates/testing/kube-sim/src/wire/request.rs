//! The path, verb and query of a request.

use http::Method;
use percent_encoding::percent_decode_str;

/// A request's path, parsed as the API server's `RequestInfo` does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A path under `/api/v1/…` or `/apis/<group>/<version>/…`.
    Resource(ResourcePath),
    Path(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// The rest of the path after the subresource, for a proxy: empty, or with a slash at its start.
    pub rest: String,
}

impl Route {
    pub(crate) fn parse(path: &str) -> Self {
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Route::Path(path.to_owned()),
        };
        let mut target =
            ResourcePath { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
        let rest = match rest {
            // /namespaces/x and /namespaces/x/status are the namespace itself.
            ["namespaces", namespace, rest @ ..]
                if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
            {
                (*namespace).clone_into(&mut target.namespace);
                rest
            }
            rest => rest,
        };
        let mut rest = rest.iter();
        for field in [&mut target.resource, &mut target.name, &mut target.subresource] {
            if let Some(part) = rest.next() {
                (*part).clone_into(field);
            }
        }
        let before = parts.len() - rest.len();
        let rest = path.trim_start_matches('/').splitn(before + 1, '/').nth(before);
        target.rest = rest.map(|rest| format!("/{rest}")).unwrap_or_default();
        Route::Resource(target)
    }
}

impl ResourcePath {
    /// Returns the authorizer's verb for a method.
    pub(crate) fn verb(&self, method: &Method, query: &QueryString) -> &'static str {
        let named = !self.name.is_empty();
        match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if named => "delete",
            Method::DELETE => "deletecollection",
            _ if !named && query.flag("watch") => "watch",
            _ if named => "get",
            _ => "list",
        }
    }

    /// Returns `nodes` or `nodes/status`.
    pub(crate) fn full_resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            sub => format!("{}/{sub}", self.resource),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryString(Vec<(String, String)>);

impl QueryString {
    pub(crate) fn parse(text: &str) -> Self {
        QueryString(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    pub(crate) fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns the value of a key, or an empty string.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// Returns true if the value of a key is true: anything but `false` and `0`, as in apimachinery.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.get("dryRun") == Some("All")
    }
}
