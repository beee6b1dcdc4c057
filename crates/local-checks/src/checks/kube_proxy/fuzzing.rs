//! The parser of kube-proxy's answers.

use super::healthz::{MaxAge, judge};
use crate::http_get::{HttpGet, MAX_BODY};
use crate::url::HttpUrl;
use http::StatusCode;
use hyper_util::rt::TokioIo;
use nodegate_readiness::Outcome;
use tokio::net::UnixStream;

/// Returns the outcome of an answer with this status and body; `None` if the status is invalid.
pub fn answer(status: u16, body: &[u8]) -> Option<Outcome> {
    Some(judge(StatusCode::from_u16(status).ok()?, body, MaxAge::default()))
}

/// Returns the outcome of a request to the peer of a connection.
pub async fn connection(stream: UnixStream) -> Outcome {
    let healthz = HttpGet::new(HttpUrl::local(10256, "/healthz"));
    match healthz.over(Box::new(TokioIo::new(stream)), MAX_BODY).await {
        Ok(reply) => judge(reply.status, &reply.body, MaxAge::default()),
        Err(error) => Outcome::Fail(error.into()),
    }
}
