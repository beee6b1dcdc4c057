//! `/metrics`, `/livez` and `/readyz`.

use crate::run::health::Health;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nodegate_http::Format;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The maximum number of connections. A scraper and a kubelet need one each; further clients wait in the
/// kernel.
const CONNECTIONS: usize = 32;
/// The longest time for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// The data behind the pages.
#[derive(Debug)]
pub struct Pages {
    /// The program's health.
    pub health: Arc<Health>,
    /// The metrics.
    pub registry: Registry,
}

/// Serves forever; dropping the future ends it.
pub async fn serve(listener: TcpListener, pages: Arc<Pages>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely the process has no free file descriptors; that passes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&pages, &request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(5))
                .max_buf_size(8192)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            let _ = tokio::time::timeout(PATIENCE, connection).await;
            drop(place);
        });
    }
}

fn answer(pages: &Pages, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD only\n".to_owned());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    let verdict = |bad: Option<String>| match bad {
        None => plain(StatusCode::OK, "ok\n".to_owned()),
        Some(bad) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{bad}\n")),
    };
    match request.uri().path() {
        "/livez" => verdict((!pages.health.is_alive()).then(|| "a loop is stuck".to_owned())),
        "/readyz" => verdict(pages.health.unproven()),
        "/metrics" => {
            let format = Format::accepted(request.headers());
            let mut page = match format.encode(&[&pages.registry]) {
                Ok(text) => plain(StatusCode::OK, text),
                Err(error) => return plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            };
            if format == Format::OpenMetrics {
                page.headers_mut().insert(CONTENT_TYPE, format.content_type().clone());
            }
            page
        }
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n".to_owned()),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
