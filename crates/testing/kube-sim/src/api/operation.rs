//! A request before it is answered.

use crate::api_parts::Api;
use crate::counters::RequestKind;
use crate::faults::requests::Effect;
use crate::store::object::Key;
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use crate::wire::format::ObjectFormat;
use crate::wire::request::{QueryString, ResourcePath, Route};
use http::header::{HeaderName, USER_AGENT};
use http::request::Parts;
use std::sync::Arc;

/// A mark in the extensions of a request: its connection has presented a certificate of the cluster's CA.
#[derive(Clone, Debug)]
pub(crate) struct Certified;

/// A request, parsed as far as needed to classify it.
pub(super) struct AskedOperation {
    pub head: Parts,
    pub route: Route,
    pub query: QueryString,
    pub kind: RequestKind,
    pub effects: Vec<Effect>,
}

impl AskedOperation {
    pub(super) fn new(head: Parts, server: usize) -> Self {
        let route = Route::parse(head.uri.path());
        let query = QueryString::parse(head.uri.query().unwrap_or_default());
        let (verb, resource) = match &route {
            Route::Resource(target) => (target.verb(&head.method, &query).to_owned(), target.full_resource()),
            Route::Path(path) => (head.method.as_str().to_lowercase(), path.clone()),
        };
        let kind = RequestKind { verb, resource, server, ..RequestKind::default() };
        AskedOperation { head, route, query, kind, effects: Vec::new() }
    }

    pub(super) fn header(&self, name: &HeaderName) -> &str {
        self.head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the field manager: the one in the query, or the program's name from the `User-Agent`.
    pub(super) fn manager(&self) -> &str {
        let program = self.header(&USER_AGENT).split('/').next().unwrap_or_default();
        self.query.get("fieldManager").unwrap_or(program)
    }
}

pub(super) struct Operation<'a> {
    pub api: &'a Arc<Api>,
    pub asked: &'a AskedOperation,
    pub target: &'a ResourcePath,
    pub resource: &'static Resource,
    pub format: ObjectFormat,
}

impl<'a> Operation<'a> {
    pub(super) fn query(&self) -> &'a QueryString {
        &self.asked.query
    }

    pub(super) fn key(&self) -> Key {
        Key::new(&*self.target.namespace, &*self.target.name)
    }

    /// Returns the selector of the objects that the request means.
    pub(super) fn selector(&self) -> Result<Selector, ApiStatus> {
        let (query, target) = (self.query(), self.target);
        let selector =
            Selector::parse(self.resource, query.text("labelSelector"), query.text("fieldSelector"))?;
        Ok(selector.with("metadata.namespace", &target.namespace).with("metadata.name", &target.name))
    }
}
