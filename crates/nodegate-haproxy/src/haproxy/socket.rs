//! Commands to HAProxy over one of its sockets: one connection, one line, one answer.

use crate::failure::Failure;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The timeout for an answer. A HAProxy that takes longer is frozen, or overloaded.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of an answer. The states of 100,000 servers are 10 MB.
const MAX_ANSWER: u64 = 32 << 20;

/// The kind of the failure that no process listens on the socket.
pub const ABSENT: &str = "absent";

/// Sends one line and reads the answer to its end.
pub async fn ask(path: &Path, line: &str) -> Result<String, Failure> {
    ask_patiently(path, line, TIMEOUT).await
}

/// Sends one line like [`ask`], and waits up to `patience` for the end of the answer.
pub async fn ask_patiently(path: &Path, line: &str, patience: Duration) -> Result<String, Failure> {
    let at = path.display();
    let failed =
        |error: &dyn Display| Failure::new("reload", format!("HAProxy does not answer: {at}: {error}"));
    let answer = async {
        let mut stream = UnixStream::connect(path).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                Failure::new(ABSENT, format!("HAProxy is not running: {at}: {error}"))
            }
            _ => failed(&error),
        })?;
        talk(&mut stream, line).await.map_err(|error| failed(&error))
    };
    let late = || failed(&format!("no answer within {} s", patience.as_secs()));
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(late()))
}

async fn talk(stream: &mut UnixStream, line: &str) -> io::Result<String> {
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    // The master keeps the connection open for more commands until the client closes its side.
    stream.shutdown().await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER + 1).read_to_end(&mut answer).await?;
    if answer.len() as u64 > MAX_ANSWER {
        return Err(io::Error::other("the answer is too long"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
