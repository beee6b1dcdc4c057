//! A request before it is answered.

use super::server::Api;
use crate::counters::RequestKind;
use crate::faults::requests::{Effect, RequestInfo};
use crate::store::object::Key;
use crate::store::resource::Resource;
use crate::wire::format::ObjectFormat;
use crate::wire::request::{QueryString, ResourcePath, Route};
use http::header::{HeaderMap, HeaderName, USER_AGENT};
use http::{Method, Request};
use std::sync::Arc;

/// A mark in the extensions of a request: its connection has presented this certificate of the cluster's CA.
#[derive(Clone, Debug)]
pub(crate) struct Certified(pub(crate) Arc<[u8]>);

/// A request, parsed as far as needed to classify it.
pub(super) struct AskedOperation {
    pub method: Method,
    pub route: Route,
    pub query: QueryString,
    /// The query as the client wrote it, if there is one.
    pub raw_query: Option<String>,
    pub headers: HeaderMap,
    /// The client certificate of the connection, if it has presented one. Only the administrator has one.
    pub certified: Option<Certified>,
    pub kind: RequestKind,
    pub server: usize,
    pub effects: Vec<Effect>,
}

impl AskedOperation {
    pub(super) fn new<B>(request: &Request<B>, server: usize) -> Self {
        let path = request.uri().path().to_owned();
        let route = Route::parse(&path);
        let raw_query = request.uri().query().map(str::to_owned);
        let query = QueryString::parse(raw_query.as_deref().unwrap_or_default());
        let (verb, resource) = match &route {
            Route::Resource(target) => {
                (target.verb(request.method(), &query).to_owned(), target.full_resource())
            }
            Route::Path(path) => (request.method().as_str().to_lowercase(), path.clone()),
        };
        let headers = request.headers().clone();
        let certified = request.extensions().get::<Certified>().cloned();
        let kind = RequestKind { verb, resource, ..RequestKind::default() };
        let (method, effects) = (request.method().clone(), Vec::new());
        let mut asked =
            AskedOperation { method, route, query, raw_query, headers, certified, kind, server, effects };
        let agent = asked.header(&USER_AGENT).split(' ').next().unwrap_or_default().to_owned();
        asked.kind.user_agent = agent;
        asked
    }

    pub(super) fn header(&self, name: &HeaderName) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub(super) fn info(&self) -> RequestInfo {
        let resource = match &self.route {
            Route::Resource(target) => target.resource.clone(),
            Route::Path(_) => String::new(),
        };
        let (verb, user) = (self.kind.verb.clone(), self.kind.user.clone());
        RequestInfo { resource, verb, user, server: self.server }
    }

    /// Returns the field manager: the one in the query, or the program's name from the `User-Agent`.
    pub(super) fn manager(&self) -> String {
        match (self.query.text("fieldManager"), self.header(&USER_AGENT).split('/').next()) {
            ("", None | Some("")) => "unknown".to_owned(),
            ("", Some(program)) => program.chars().take(128).collect(),
            (name, _) => name.to_owned(),
        }
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

    pub(super) fn status_only(&self) -> bool {
        self.target.subresource == "status"
    }
}
