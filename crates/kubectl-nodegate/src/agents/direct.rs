//! One GET on a connection of its own, bounded in size; the caller bounds the time.

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

/// The longest head of an answer; hyper's own bound is 400 kB.
const LONGEST_HEAD: usize = 16 << 10;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GetError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("the connection was closed without an answer; perhaps --allow-from does not name this machine")]
    Closed,
    #[error("the answer is not HTTP")]
    NotHttp,
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl GetError {
    /// In few words.
    pub(crate) fn short(&self) -> &'static str {
        match self {
            Self::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => "connection refused",
            Self::Connect(_) => "no connection",
            Self::Closed => "closed without an answer",
            Self::NotHttp => "not HTTP",
            Self::TooLong(_) => "answer too long",
            Self::Broken(_) => "connection broken",
        }
    }
}

/// Gives the status and the body.
pub(crate) async fn get(address: SocketAddr, path: &str, most: usize) -> Result<(u16, Bytes), GetError> {
    let stream = TcpStream::connect(address).await.map_err(GetError::Connect)?;
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
        let body =
            Limited::new(answer.into_body(), most).collect().await.map_err(|error| cut(&*error, most))?;
        Ok((status, body.to_bytes()))
    };
    // Both are dropped together, and with them the connection.
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // What it read last may be the whole answer.
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

fn cut(error: &(dyn StdError + 'static), most: usize) -> GetError {
    if error.is::<LengthLimitError>() { GetError::TooLong(most) } else { GetError::Broken(innermost(error)) }
}

fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
