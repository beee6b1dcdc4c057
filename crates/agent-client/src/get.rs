//! Sends one GET to an agent on its own connection, for all commands and the gate. It bounds the size of the answer;
//! the caller bounds the time.

use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, HOST};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// The longest accepted body. Fifty flips, 256 probers and a Node with hundreds of labels stay well below.
pub const MOST: usize = 1 << 20;
/// The longest accepted response head; hyper's own limit is 400 kB.
const LONGEST_HEAD: usize = 16 << 10;

/// The reason why a GET failed.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// The TCP connection could not be opened.
    #[error("could not connect: {0}")]
    Connect(io::Error),
    /// The peer accepted the connection and closed it.
    #[error("the connection was closed without an answer; perhaps --allow-from does not name this machine")]
    Closed,
    /// The received bytes are not HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The body exceeds [`MOST`].
    #[error("the answer is longer than {MOST} bytes")]
    TooLong,
    /// The connection ended within the answer.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl GetError {
    /// Returns a short form for a table.
    pub fn short(&self) -> &'static str {
        match self {
            Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => "connection refused",
            Self::Connect(_) => "no connection",
            Self::Closed => "closed without an answer",
            Self::NotHttp => "not HTTP",
            Self::TooLong => "answer too long",
            Self::Broken(_) => "connection broken",
        }
    }
}

/// The HTTP response of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReply {
    /// The HTTP status code.
    pub status: u16,
    /// The body, of at most [`MOST`] bytes.
    pub body: Bytes,
}

/// Gets a path from the agent at the first of these addresses that accepts a connection. Dropping the future closes
/// the connection.
pub async fn get(addresses: &[SocketAddr], path: &str) -> Result<AgentReply, GetError> {
    let stream = TcpStream::connect(addresses).await.map_err(GetError::Connect)?;
    let address = stream.peer_addr().map_err(GetError::Connect)?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(LONGEST_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(&error))?;
    let exchange = async {
        let request = Request::get(path)
            .header(HOST, address.to_string())
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| GetError::Broken(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|error| cut(&*error))?;
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

fn broken(error: &hyper::Error) -> GetError {
    if error.is_parse() || error.is_parse_too_large() {
        return GetError::NotHttp;
    }
    let reset = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
    };
    let was_reset = error.source().and_then(|source| source.downcast_ref()).is_some_and(reset);
    if was_reset || error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return GetError::Closed;
    }
    GetError::Broken(innermost(error))
}

fn cut(error: &(dyn StdError + 'static)) -> GetError {
    if error.is::<LengthLimitError>() { GetError::TooLong } else { GetError::Broken(innermost(error)) }
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::StubServer;
    use std::time::Duration;

    fn get_from(server: &StubServer) -> Result<AgentReply, GetError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let within = Duration::from_secs(30);
        runtime.block_on(async { tokio::time::timeout(within, get(&[server.address()], "/")).await }).unwrap()
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_not_beyond_the_limit() {
        let of_length =
            |length| get_from(&StubServer::saying(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(length))));
        assert_eq!(of_length(MOST).unwrap().body.len(), MOST);
        assert!(matches!(of_length(MOST + 1), Err(GetError::TooLong)));
    }

    #[test]
    fn what_is_no_answer_is_called_so() {
        for (said, error) in [
            ("", "closed without an answer"),
            ("SSH-2.0-OpenSSH_9.2p1\r\n", "not HTTP"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", "connection"),
        ] {
            let told = get_from(&StubServer::saying(said)).unwrap_err().to_string();
            assert!(told.contains(error), "{said:?}: {told}");
        }
    }
}
