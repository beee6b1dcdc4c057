//! A client that shows answers and streams as they come.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use nodegate_kube_sim::{ADMIN_TOKEN, ApiServer, Builder, Sim};
use serde_json::Value;
use tokio::net::TcpStream;

/// A timeout that is long enough for a busy machine. Without an error, no test waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Header names and values. An empty `Authorization` sends none.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

pub(crate) async fn start(builder: Builder) -> Sim {
    builder.start().await.expect("the simulator starts")
}

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

pub(crate) struct Stream {
    pub(crate) code: u16,
    headers: HeaderMap,
    body: Incoming,
    buffer: Vec<u8>,
    _connection: SendRequest<Full<Bytes>>,
}

/// The result of waiting for an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Event(Value),
    Silence,
    End,
}

impl Next {
    pub(crate) fn event(self) -> Value {
        match self {
            Next::Event(value) => value,
            other => panic!("expected an event, got {other:?}"),
        }
    }
}

async fn open(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> std::io::Result<Stream> {
    let stream = TcpStream::connect(server.address()).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("Host", "sim");
    if !headers.iter().any(|(key, _)| *key == "Authorization") {
        request = request.header("Authorization", format!("Bearer {ADMIN_TOKEN}"));
    }
    for (key, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*key, *value);
    }
    let request = request.body(Full::from(body.to_owned())).expect("a request");
    let (parts, body) = sender.send_request(request).await.map_err(std::io::Error::other)?.into_parts();
    let (code, headers) = (parts.status.as_u16(), parts.headers);
    Ok(Stream { code, headers, body, buffer: Vec::new(), _connection: sender })
}

impl Stream {
    pub(crate) async fn next_within(&mut self, patience: Duration) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Next::Event(serde_json::from_slice(&line).expect("an event"));
            }
            match tokio::time::timeout(patience, self.body.frame()).await {
                Err(_) => return Next::Silence,
                Ok(None) => return Next::End,
                Ok(Some(frame)) => {
                    self.buffer.extend(frame.expect("a whole stream").into_data().unwrap_or_default());
                }
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Next {
        self.next_within(DEADLINE).await
    }
}

pub(crate) async fn try_send(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> std::io::Result<Answer> {
    let Stream { code, headers, body, _connection, .. } = open(server, method, path, headers, body).await?;
    Ok(Answer { code, headers, body: body.collect().await.map_err(std::io::Error::other)?.to_bytes() })
}

pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> Answer {
    let answer = tokio::time::timeout(DEADLINE, try_send(server, method, path, headers, body));
    answer.await.expect("in time").expect(path)
}

pub(crate) async fn get(server: &ApiServer, path: &str) -> Answer {
    send(server, "GET", path, &[], "").await
}

pub(crate) async fn watch(server: &ApiServer, path: &str) -> Stream {
    watch_as(server, path, &[]).await
}

pub(crate) async fn watch_as(server: &ApiServer, path: &str, headers: Headers<'_>) -> Stream {
    let stream = open(server, "GET", path, headers, "").await.expect(path);
    assert_eq!(stream.code, 200, "{path}");
    stream
}

/// Polls until `done` returns true. Panics with `what` at the deadline.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < DEADLINE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
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
