//! A client that calls the API server as a service.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use nodegate_kube_sim::{ADMIN_TOKEN, ResponseBody, Sim};
use serde_json::Value;
use tower::ServiceExt as _;

/// Header names and values. An empty `Authorization` sends none.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// Sends a request, as in `GET /version`.
pub(crate) async fn ask(sim: &Sim, line: &str, headers: Headers<'_>, body: &str) -> Response<ResponseBody> {
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(key, _)| *key == "Authorization") {
        request = request.header("Authorization", format!("Bearer {ADMIN_TOKEN}"));
    }
    for (key, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*key, *value);
    }
    let request = request.body(Full::<Bytes>::from(body.to_owned())).expect("a request");
    sim.servers().remove(0).oneshot(request).await.expect(path)
}

/// Returns the status code and the body, which is JSON or a text.
pub(crate) async fn send(sim: &Sim, line: &str, headers: Headers<'_>, body: &str) -> (u16, Value) {
    let (parts, body) = ask(sim, line, headers, body).await.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    (parts.status.as_u16(), parsed(&String::from_utf8_lossy(&body)))
}

pub(crate) async fn get(sim: &Sim, path: &str) -> Value {
    send(sim, &format!("GET {path}"), &[], "").await.1
}

/// Waits for the next event of a watch, each of which is a frame; `None` at the end.
pub(crate) async fn event(watch: &mut Response<ResponseBody>) -> Option<Value> {
    let line = watch.body_mut().frame().await?.expect("a whole stream").into_data().expect("data");
    Some(serde_json::from_slice(&line).expect("an event"))
}

/// Returns the status code and the body of a captured answer.
pub(crate) fn captured(name: &str) -> (u16, Value) {
    let path = format!("{}/fixtures/{name}.http", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path).replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").expect("head and body");
    let code = head.lines().nth(1).and_then(|l| l.split(' ').nth(1)).and_then(|c| c.parse().ok());
    (code.expect("a code"), parsed(body))
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.trim_end().into())
}
