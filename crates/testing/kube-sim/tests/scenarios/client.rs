//! A client that calls the API server as a service, and shows answers and streams as they come.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use nodegate_kube_sim::{ADMIN_TOKEN, ResponseBody, Sim};
use serde_json::Value;
use tower::ServiceExt as _;

/// Header names and values. An empty `Authorization` sends none.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

async fn ask(
    sim: &Sim,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> Response<ResponseBody> {
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

pub(crate) async fn send(sim: &Sim, method: &str, path: &str, headers: Headers<'_>, body: &str) -> Answer {
    let (parts, body) = ask(sim, method, path, headers, body).await.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Answer { code: parts.status.as_u16(), headers: parts.headers, body }
}

pub(crate) async fn get(sim: &Sim, path: &str) -> Answer {
    send(sim, "GET", path, &[], "").await
}

/// A watch. Each of its events is a frame.
pub(crate) struct Stream(ResponseBody);

pub(crate) async fn watch(sim: &Sim, path: &str, headers: Headers<'_>) -> Stream {
    let answer = ask(sim, "GET", path, headers, "").await;
    assert_eq!(answer.status(), 200, "{path}");
    Stream(answer.into_body())
}

impl Stream {
    /// Waits for the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = self.0.frame().await?.expect("a whole stream").into_data().expect("data");
        Some(serde_json::from_slice(&line).expect("an event"))
    }

    pub(crate) async fn event(&mut self) -> Value {
        self.next().await.expect("an event")
    }
}

/// Returns the status code and the body of a captured answer.
pub(crate) fn captured(name: &str) -> (u16, String) {
    let path = format!("{}/fixtures/{name}.http", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path).replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").expect("head and body");
    let code = head.lines().nth(1).and_then(|l| l.split(' ').nth(1)).and_then(|c| c.parse().ok());
    (code.expect("a code"), body.trim_end().to_owned())
}
