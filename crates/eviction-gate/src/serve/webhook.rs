//! The webhook: HTTPS, one review for each request.

use super::connection::{Connection, Phase, Watched};
use super::places::Places;
use crate::certificates::Keeper;
use crate::review::{EvictionReview, Gate, answer_json, parse};
use crate::run::health::Health;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
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
/// The longest body.
const LONGEST_BODY: usize = 1 << 20;
/// A review of an eviction has some 2 KB.
const USUAL_BODY: usize = 16 << 10;
/// So many longer bodies arrive at a time, so that 1,024 of them don't fill the memory.
const LONG_BODIES: usize = 8;
/// The longest head of a request; hyper takes no less than 8 KiB.
const LONGEST_HEAD: usize = 16 << 10;

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
    let (places, long_bodies) = (Places::new(CONNECTIONS), Arc::new(Semaphore::new(LONG_BODIES)));
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            // No descriptors, most likely; that passes.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(place) = places.take(from.ip()) else { continue };
        let (webhook, long_bodies) = (webhook.clone(), long_bodies.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve_one(stream, &place.connection, webhook, long_bodies) => {}
                () = place.connection.ended() => {}
            }
        });
    }
}

async fn serve_one(
    stream: TcpStream,
    connection: &Arc<Connection>,
    webhook: Arc<Webhook>,
    long_bodies: Arc<Semaphore>,
) {
    connection.enter(Phase::New, Some(HANDSHAKE));
    let Some(config) = webhook.keeper.server_config() else { return };
    let _ = stream.set_nodelay(true);
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    connection.enter(Phase::New, Some(HANDSHAKE));
    let stream = Watched { stream, connection: connection.clone() };
    let service = service_fn(move |request| {
        let (webhook, connection, long_bodies) = (webhook.clone(), connection.clone(), long_bodies.clone());
        async move {
            let mut response = answer(&webhook, request, &connection, &long_bodies).await;
            if webhook.health.is_closing() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            connection.enter(Phase::Idle, Some(IDLE));
            Ok::<_, Infallible>(response)
        }
    });
    let served =
        http1::Builder::new().max_buf_size(LONGEST_HEAD).serve_connection(TokioIo::new(stream), service);
    let _ = served.await;
}

async fn answer(
    webhook: &Webhook,
    request: Request<Incoming>,
    connection: &Connection,
    long_bodies: &Semaphore,
) -> Response<Full<Bytes>> {
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, format!("POST an AdmissionReview to {PATH}\n"));
    }
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "POST only\n".to_owned());
    }
    // The body has a deadline of its own, so that its client gets an answer.
    connection.enter(Phase::Arriving, None);
    let review = match tokio::time::timeout(BODY_WITHIN, read_review(request.into_body(), long_bodies)).await
    {
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n".to_owned()),
        Ok(Err(refusal)) => return refusal,
        Ok(Ok(review)) => review,
    };
    connection.enter(Phase::Answering, None);
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

/// Reads a review; long ones take turns.
async fn read_review(mut body: Incoming, turns: &Semaphore) -> Result<EvictionReview, Response<Full<Bytes>>> {
    let (mut bytes, mut turn) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| plain(StatusCode::BAD_REQUEST, format!("{error}\n")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > LONGEST_BODY {
            let why = format!("a review has at most {LONGEST_BODY} bytes\n");
            return Err(plain(StatusCode::PAYLOAD_TOO_LARGE, why));
        }
        if bytes.len() + data.len() > USUAL_BODY && turn.is_none() {
            turn = turns.acquire().await.ok();
        }
        bytes.extend_from_slice(&data);
    }
    parse(&bytes).map_err(|error| {
        tracing::warn!(%error, "can't read a review; answering 400");
        plain(StatusCode::BAD_REQUEST, format!("{error}\n"))
    })
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
