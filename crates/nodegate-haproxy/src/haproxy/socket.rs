//! Commands to HAProxy over one of its sockets: one connection, one line, one answer.

use crate::failure::Failure;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The timeout for an answer. A HAProxy that takes longer is frozen, or overloaded.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of an answer. The states of 100,000 servers are 10 MB.
const MAX_ANSWER: usize = 32 << 20;
/// The error of a command to HAProxy.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// No process listens on the socket.
    #[error("HAProxy is not running: {0}: {1}")]
    Absent(PathBuf, io::Error),
    /// A process may listen, but the socket can't be reached.
    #[error("HAProxy can't be reached at {0}: {1}")]
    Unreachable(PathBuf, io::Error),
    /// A process listens and does not answer.
    #[error("HAProxy does not answer at {0} within {secs} s", secs = .1.as_secs())]
    Frozen(PathBuf, Duration),
    /// The connection broke.
    #[error("HAProxy's answer at {0} can't be read: {1}")]
    Broken(PathBuf, io::Error),
}

impl From<SocketError> for Failure {
    fn from(error: SocketError) -> Self {
        Self::new("reload", error)
    }
}

/// Sends one line and reads the answer to its end.
pub async fn ask(path: &Path, line: &str) -> Result<String, SocketError> {
    ask_patiently(path, line, TIMEOUT).await
}

/// Sends one line like [`ask`], and waits up to `patience` for the end of the answer.
pub async fn ask_patiently(path: &Path, line: &str, patience: Duration) -> Result<String, SocketError> {
    match tokio::time::timeout(patience, converse(path, line)).await {
        Ok(answer) => answer,
        Err(_) => Err(SocketError::Frozen(path.to_owned(), patience)),
    }
}

async fn converse(path: &Path, line: &str) -> Result<String, SocketError> {
    let broken = |error| SocketError::Broken(path.to_owned(), error);
    let mut stream = UnixStream::connect(path).await.map_err(|error| no_connection(path, error))?;
    stream.write_all(line.as_bytes()).await.map_err(broken)?;
    stream.write_all(b"\n").await.map_err(broken)?;
    // The master keeps the connection open for more commands until the client closes its side.
    stream.shutdown().await.map_err(broken)?;
    let mut answer = Vec::new();
    let mut limited = stream.take(MAX_ANSWER as u64 + 1);
    limited.read_to_end(&mut answer).await.map_err(broken)?;
    if answer.len() > MAX_ANSWER {
        return Err(broken(io::Error::other("it is too long")));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn no_connection(path: &Path, error: io::Error) -> SocketError {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => SocketError::Absent(path, error),
        // A full backlog means that the process has stopped accepting connections.
        io::ErrorKind::WouldBlock => SocketError::Frozen(path, TIMEOUT),
        _ => SocketError::Unreachable(path, error),
    }
}
