//! The webhook: HTTPS, one review for each request.

use crate::certificates::Keeper;
use crate::review::{Gate, answer_json, parse};
use crate::run::health::Health;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// The path of the webhook.
pub const PATH: &str = "/evict";

/// The API server has one connection for each review under way.
const CONNECTIONS: usize = 1024;
/// The longest TLS handshake, and the longest wait for the first request after it.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The longest idle time of a connection. API servers close theirs after 90 s; if the gate were first, a review could
/// get lost on the way.
const IDLE: Duration = Duration::from_secs(150);
/// The longest time for a body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(2);
/// The longest body; a review of an eviction has some 2 KB.
const LONGEST_BODY: usize = 1 << 20;

/// What the webhook needs.
pub struct Webhook {
    /// The decisions.
    pub gate: Gate,
    /// The certificate.
    pub keeper: Arc<Keeper>,
    /// The program's own health.
    pub health: Arc<Health>,
}

/// Serves until the future is dropped.
pub async fn serve(listener: TcpListener, webhook: Arc<Webhook>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptors, most likely; that passes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let webhook = webhook.clone();
        tokio::spawn(async move {
            serve_one(stream, webhook).await;
            drop(place);
        });
    }
}

async fn serve_one(stream: TcpStream, webhook: Arc<Webhook>) {
    let Some(config) = webhook.keeper.server_config() else { return };
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await
    else {
        return;
    };
    let asked = Arc::new(AtomicBool::new(false));
    let is_asked = asked.clone();
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        let webhook = webhook.clone();
        async move {
            let mut response = answer(&webhook, request).await;
            if webhook.health.is_closing() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service)
    );
    // Strangers that say nothing take no place for long.
    tokio::select! {
        _ = &mut connection => return,
        () = tokio::time::sleep(HANDSHAKE) => {}
    }
    if is_asked.load(Ordering::Relaxed) {
        let _ = connection.await;
    }
}

async fn answer(webhook: &Webhook, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, format!("POST an AdmissionReview to {PATH}\n"));
    }
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "POST only\n".to_owned());
    }
    let body = Limited::new(request.into_body(), LONGEST_BODY).collect();
    let body = match tokio::time::timeout(BODY_WITHIN, body).await {
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n".to_owned()),
        Ok(Err(error)) => return plain(StatusCode::PAYLOAD_TOO_LARGE, format!("{error}\n")),
        Ok(Ok(body)) => body.to_bytes(),
    };
    let review = match parse(&body) {
        Ok(review) => review,
        Err(error) => {
            tracing::warn!(%error, "can't read a review; answering 400");
            return plain(StatusCode::BAD_REQUEST, format!("{error}\n"));
        }
    };
    let decision = webhook.gate.decide(&review).await;
    match answer_json(&review, &decision) {
        Ok(json) => {
            let mut response = Response::new(Full::new(Bytes::from(json)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
