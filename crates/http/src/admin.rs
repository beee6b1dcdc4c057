//! The admin port of a program: `/livez`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

use crate::connection_handle::Connection;
use crate::limits::Limits;
use crate::listener::Listener;
use crate::metrics_format::Format;
use crate::requests::{Answer, Handler, Http};
use crate::server::{ServeOptions, serve};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::sync::Arc;

/// The maximum number of connections of an admin port.
const CONNECTIONS: usize = 64;

/// The health of a program, as the kubelet asks for it. An error says in a few words what is wrong.
pub trait Health: Send + Sync + 'static {
    /// Returns an error if the program must be restarted.
    fn alive(&self) -> Result<(), Cow<'static, str>>;

    /// Returns an error if the program does not do its work yet, or not any more.
    fn ready(&self) -> Result<(), Cow<'static, str>>;
}

/// The pages of an admin port.
#[derive(Debug)]
pub struct AdminPages<H> {
    /// The health behind `/livez` and `/readyz`.
    pub health: Arc<H>,
    /// The metrics to serve at `/metrics`.
    pub registry: Registry,
}

impl<H: Health> AdminPages<H> {
    /// Serves the pages until `shutdown`. No client can keep the kubelet from them.
    pub async fn serve(self, listener: Listener, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
        let options = ServeOptions { limits, ..ServeOptions::default() };
        serve(listener, Arc::new(Http(Arc::new(self))), options, shutdown).await
    }

    fn page<B: Body>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        let health = |health: Result<(), Cow<'static, str>>| match health {
            Ok(()) => text(StatusCode::OK, "ok\n"),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        };
        match request.uri().path() {
            "/livez" => health(self.health.alive()),
            "/readyz" => health(self.health.ready()),
            "/metrics" => {
                let format = Format::accepted(request.headers());
                match format.encode(&self.registry) {
                    Ok(metrics) => {
                        let mut page = text(StatusCode::OK, metrics);
                        page.headers_mut().insert(CONTENT_TYPE, format.content_type().clone());
                        page
                    }
                    Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
                }
            }
            _ => text(StatusCode::NOT_FOUND, "not found; try /livez, /readyz or /metrics\n"),
        }
    }
}

impl<H: Health> Handler for AdminPages<H> {
    type Body = Full<Bytes>;

    fn answer(self: &Arc<Self>, request: Request<Incoming>, _connection: &Connection) -> Answer<Self::Body> {
        let mut page = self.page(&request);
        if !request.body().is_end_stream() {
            page.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Answer::Now(page)
    }
}

/// Returns an answer of plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
