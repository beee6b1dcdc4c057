//! A small HTTP client, so that the tests see the exact bytes on the wire.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nodegate_kube_sim::{ADMIN_TOKEN, ApiServer, Builder, Sim};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// A timeout that is long enough for a busy machine. Without an error, no test waits this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Header names and values. An empty value removes a default header.
pub(crate) type Headers<'a> = &'a [(&'a str, &'a str)];

/// A server that the client can send requests to.
pub(crate) trait Served {
    fn address(&self) -> SocketAddr;
}

impl Served for Sim {
    fn address(&self) -> SocketAddr {
        Sim::address(self)
    }
}

impl Served for ApiServer {
    fn address(&self) -> SocketAddr {
        ApiServer::address(self)
    }
}

impl Served for SocketAddr {
    fn address(&self) -> SocketAddr {
        *self
    }
}

pub(crate) async fn start(builder: Builder) -> Sim {
    builder.start().await.expect("the simulator starts")
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
    }
}

pub(crate) struct Stream {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    buffer: Vec<u8>,
}

/// The result of waiting for an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Event(Value),
    Garbage(String),
    Silence,
    End,
    Broken,
}

impl Next {
    pub(crate) fn event(self) -> Value {
        match self {
            Next::Event(value) => value,
            other => panic!("expected an event, got {other:?}"),
        }
    }
}

pub(crate) async fn open(
    sim: &impl Served,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> std::io::Result<Stream> {
    let mut stream = TcpStream::connect(sim.address()).await?;
    let mut request =
        format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n", sim.address(), body.len());
    if !headers.iter().any(|(k, _)| *k == "Authorization") {
        let _ = write!(request, "Authorization: Bearer {ADMIN_TOKEN}\r\n");
    }
    for (key, value) in headers.iter().filter(|(_, v)| !v.is_empty()) {
        let _ = write!(request, "{key}: {value}\r\n");
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let code = line.split(' ').nth(1).and_then(|c| c.parse().ok());
    let code = code.ok_or_else(|| std::io::Error::other(format!("no status line: {line:?}")))?;
    let mut all = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).await?;
        match line.trim_end().split_once(": ") {
            Some((key, value)) => all.push((key.to_owned(), value.to_owned())),
            None => break,
        }
    }
    let chunked = all.iter().any(|(k, v)| k == "Transfer-Encoding" && v == "chunked");
    Ok(Stream { code, headers: all, reader, chunked, buffer: Vec::new() })
}

impl Stream {
    /// Reads the next chunk. An empty one is the proper end.
    async fn chunk(&mut self) -> std::io::Result<Vec<u8>> {
        let mut size = String::new();
        if self.reader.read_line(&mut size).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
        let mut data = vec![0; size + 2];
        self.reader.read_exact(&mut data).await?;
        data.truncate(size);
        Ok(data)
    }

    pub(crate) async fn next_within(&mut self, patience: Duration) -> Next {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(value) => Next::Event(value),
                    Err(_) => Next::Garbage(String::from_utf8_lossy(&line).into_owned()),
                };
            }
            match tokio::time::timeout(patience, self.chunk()).await {
                Err(_) => return Next::Silence,
                Ok(Err(_)) => return Next::Broken,
                Ok(Ok(data)) if data.is_empty() => return Next::End,
                Ok(Ok(data)) => self.buffer.extend(data),
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Next {
        self.next_within(DEADLINE).await
    }

    async fn rest(mut self) -> std::io::Result<Answer> {
        let mut body = Vec::new();
        if self.chunked {
            loop {
                let data = self.chunk().await?;
                if data.is_empty() {
                    break;
                }
                body.extend(data);
            }
        } else if let Some((_, length)) = self.headers.iter().find(|(k, _)| k == "Content-Length") {
            body = vec![0; length.parse().expect("a length")];
            self.reader.read_exact(&mut body).await?;
        }
        Ok(Answer { code: self.code, headers: self.headers, body })
    }
}

pub(crate) async fn try_send(
    sim: &impl Served,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> std::io::Result<Answer> {
    open(sim, method, path, headers, body).await?.rest().await
}

pub(crate) async fn send(
    sim: &impl Served,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> Answer {
    tokio::time::timeout(DEADLINE, try_send(sim, method, path, headers, body))
        .await
        .expect("in time")
        .expect(path)
}

pub(crate) async fn get(sim: &impl Served, path: &str) -> Answer {
    send(sim, "GET", path, &[], "").await
}

pub(crate) async fn watch(sim: &impl Served, path: &str) -> Stream {
    let stream = open(sim, "GET", path, &[], "").await.expect(path);
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

/// Returns the status code, the interesting headers and the body of a captured answer.
pub(crate) fn captured(name: &str) -> (u16, String) {
    let path = format!("{}/fixtures/{name}.http", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    let text = text.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n").expect("head and body");
    let code = head.lines().nth(1).and_then(|l| l.split(' ').nth(1)).and_then(|c| c.parse().ok());
    (code.expect("a code"), body.trim_end().to_owned())
}
