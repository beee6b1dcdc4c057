//! A pod's proxy. The API server forwards a GET to a port of the pod and passes the answer on as it arrives.

use super::operation::Operation;
use crate::store::object::Key;
use crate::store::status::ApiStatus;
use crate::wire::reply::{ApiReply, StreamCut};
use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Request, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io;
use tokio::net::TcpStream;
use tower::BoxError;

/// Answers a GET of `pods/<name>:<port>/proxy/<path>`, also for loopback, which a real API server forbids.
pub(super) async fn get(operation: &Operation<'_>) -> Result<ApiReply, ApiStatus> {
    let (name, port) = name_and_port(&operation.target.name)?;
    let key = Key::new(&*operation.target.namespace, name);
    let pod = operation.api.store.get(operation.resource, &key);
    let pod = pod.ok_or_else(|| ApiStatus::not_found(operation.resource.subject(name)))?;
    let ip = pod.value.pointer("/status/podIP").and_then(Value::as_str);
    let ip = ip.ok_or_else(|| ApiStatus::bad_request("address not allowed"))?;
    let ip = if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
    let address = format!("{ip}:{port}");
    forwarded(operation, &address).await.map_err(|error| {
        let message = format!("error trying to reach service: {error}");
        ApiStatus::failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    })
}

/// Parses `name:port`. TLS towards pods is not simulated.
fn name_and_port(id: &str) -> Result<(&str, u16), ApiStatus> {
    let invalid = || ApiStatus::bad_request(format!("invalid pod request {id:?}"));
    let (name, port) = id.split_once(':').ok_or_else(invalid)?;
    port.parse().map(|port| (name, port)).map_err(|_| invalid())
}

async fn forwarded(operation: &Operation<'_>, address: &str) -> Result<ApiReply, BoxError> {
    let refused = |error: io::Error| format!("dial tcp {address}: connect: {}", error.kind());
    let stream = TcpStream::connect(address).await.map_err(refused)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let path = if operation.target.rest.is_empty() { "/" } else { &operation.target.rest };
    let query = operation.asked.head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let request = Request::get(format!("{path}{query}"))
        .header(HOST, address)
        .header(ACCEPT, operation.asked.header(&ACCEPT))
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await.map_err(|_| "EOF")?;
    let (mut parts, body) = answer.into_parts();
    parts.version = Version::default();
    for of_connection in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(of_connection);
    }
    // The connection stays open as long as the sender lives.
    let body = body.map_err(move |_| {
        let _ = &sender;
        StreamCut
    });
    Ok(ApiReply::from_parts(parts, body.boxed_unsync()))
}
