//! Queries an agent on a connection of its own, for all commands and the gate. The size of the answer is bounded.

use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, HOST};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nodegate_agent_api::{DRAIN_PATH, DrainSummary, STATUS_PATH, Status, WaitReply};
use nodegate_program::{last_cause, os_words, sanitize};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;

/// The longest accepted body. Fifty flips, 256 probers and a Node with hundreds of labels stay well below.
pub const MAX_REPLY: usize = 1 << 20;
/// The longest accepted response head; hyper's own limit is 400 kB.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The reason why a query of an agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The name of the host could not be looked up.
    #[error("could not look the name up: {0}; correct it, or give an address")]
    Lookup(String),
    /// The TCP connection could not be opened.
    #[error("could not connect: {}; does an agent run there, on this port?", os_words(.0))]
    Connect(io::Error),
    /// The peer accepted the connection and closed it.
    #[error("the connection was closed without an answer; perhaps --allow-from does not name this machine")]
    Closed,
    /// The received bytes are not HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The body exceeds [`MAX_REPLY`].
    #[error("the answer is longer than {MAX_REPLY} bytes")]
    TooLong,
    /// The connection ended within the answer.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// The whole answer did not arrive in time.
    #[error("no whole answer within {}", humantime::format_duration(*.0))]
    Late(Duration),
    /// The answer has another status than 200.
    #[error("{0} answered HTTP {1}{hint}", hint = hint(.0, *.1))]
    Refused(&'static str, u16),
    /// The answer does not come from a nodegate agent.
    #[error("the answer to {0} is not one of nodegate: {1}")]
    Foreign(&'static str, serde_json::Error),
}

fn hint(path: &str, code: u16) -> &'static str {
    if code == 404 && path == STATUS_PATH { "; an agent with --metrics-addr answers there" } else { "" }
}

/// The HTTP response of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReply {
    /// The HTTP status code.
    pub status: u16,
    /// The body, of at most [`MAX_REPLY`] bytes.
    pub body: Bytes,
}

/// The JSON of an agent, which names its Node.
pub trait AgentJson: DeserializeOwned {
    /// The path at which it is asked for, without the query.
    const PATH: &'static str;
    /// The codes of an answer that has it.
    const CODES: &'static [u16] = &[200];

    /// Returns the name and the UID of the Node.
    fn node(&self) -> (Option<&str>, Option<&str>);
}

impl AgentJson for Status {
    const PATH: &'static str = STATUS_PATH;

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.node.as_deref(), self.uid.as_deref())
    }
}

impl AgentJson for DrainSummary {
    const PATH: &'static str = DRAIN_PATH;

    fn node(&self) -> (Option<&str>, Option<&str>) {
        (self.node.as_deref(), self.uid.as_deref())
    }
}

impl AgentJson for WaitReply {
    const PATH: &'static str = "/wait";
    /// 504 while the goal is not reached.
    const CODES: &'static [u16] = &[200, 504];

    fn node(&self) -> (Option<&str>, Option<&str>) {
        self.drain.node()
    }
}

/// Queries the agent at the first of these addresses that accepts a connection for the progress of a drain. The caller
/// confirms the identity of the agent.
pub async fn ask_drain(addresses: &[SocketAddr], within: Duration) -> Result<DrainSummary, AskError> {
    parse(&get(addresses, DRAIN_PATH, within).await?)
}

/// Parses an answer.
pub fn parse<T: AgentJson>(reply: &AgentReply) -> Result<T, AskError> {
    if !T::CODES.contains(&reply.status) {
        return Err(AskError::Refused(T::PATH, reply.status));
    }
    serde_json::from_slice(&reply.body).map_err(|error| AskError::Foreign(T::PATH, error))
}

/// Gets a path from the agent at the first of these addresses that accepts a connection. Dropping the future closes
/// the connection.
pub async fn get(addresses: &[SocketAddr], path: &str, within: Duration) -> Result<AgentReply, AskError> {
    let got = tokio::time::timeout(within, exchange(addresses, path)).await;
    got.map_err(|_| AskError::Late(within))?
}

async fn exchange(addresses: &[SocketAddr], path: &str) -> Result<AgentReply, AskError> {
    let stream = TcpStream::connect(addresses).await.map_err(AskError::Connect)?;
    let address = stream.peer_addr().map_err(AskError::Connect)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    let exchange = async {
        let request = Request::get(path)
            .header(HOST, address.to_string())
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| AskError::Broken(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        let body =
            Limited::new(answer.into_body(), MAX_REPLY).collect().await.map_err(|error| cut(&*error))?;
        Ok(AgentReply { status, body: body.to_bytes() })
    };
    // Dropping both closes the connection.
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The last read may have completed the answer.
        _ = connection => exchange.await,
    }
}

fn broken(error: &hyper::Error) -> AskError {
    if error.is_parse() || error.is_parse_too_large() {
        return AskError::NotHttp;
    }
    let reset = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    let was_reset = error.source().and_then(|source| source.downcast_ref()).is_some_and(reset);
    if was_reset || error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return AskError::Closed;
    }
    AskError::Broken(last_cause(error))
}

fn cut(error: &(dyn StdError + 'static)) -> AskError {
    if error.is::<LengthLimitError>() { AskError::TooLong } else { AskError::Broken(last_cause(error)) }
}

/// Returns the agent's message in an error answer, in brackets; nothing if there is none.
pub fn refusal(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = body.get("error").and_then(Value::as_str);
    said.map_or(String::new(), |said| format!(" ({})", sanitize(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::StubServer;

    fn get_from(server: &StubServer) -> Result<AgentReply, AskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(get(&[server.address()], "/", Duration::from_secs(30)))
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_not_beyond_the_limit() {
        let of_length =
            |length| get_from(&StubServer::saying(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(length))));
        assert_eq!(of_length(MAX_REPLY).unwrap().body.len(), MAX_REPLY);
        assert!(matches!(of_length(MAX_REPLY + 1), Err(AskError::TooLong)));
    }

    #[test]
    fn what_is_no_answer_is_called_so() {
        let long_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n{{}}", "x".repeat(100_000));
        for (said, error) in [
            ("", "closed without an answer"),
            (&*long_head, "not HTTP"),
            ("SSH-2.0-OpenSSH_9.2p1\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "connection"),
        ] {
            let message = get_from(&StubServer::saying(said.to_owned())).unwrap_err().to_string();
            assert!(message.contains(error), "{said:?}: {message}");
        }
    }
}
