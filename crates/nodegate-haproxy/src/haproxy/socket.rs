//! Commands to HAProxy over one of its sockets: one connection, one line, one answer.

use crate::haproxy::version::Version;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The timeout for an answer. A HAProxy that takes longer is frozen, or overloaded.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum length of an answer. The states of 100,000 servers are 10 MB.
const MAX_ANSWER: usize = 32 << 20;
/// The maximum length of a line of commands. HAProxy reads a line into a buffer of 16 kB.
const MAX_LINE: usize = 8 << 10;

/// The maximum number of commands with long answers on a connection. HAProxy answers this many within
/// [`TIMEOUT`], even with the states of 500 servers each.
const FEW: usize = 16;

/// The socket on which HAProxy's master or worker takes commands.
#[derive(Clone, Debug)]
pub enum Runtime {
    /// The `stats socket` of the worker itself, with `level admin`.
    Worker(PathBuf),
    /// The socket of the master (`-S`), which passes commands on to the current worker.
    Master(PathBuf),
}

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

impl Runtime {
    fn path(&self) -> &Path {
        match self {
            Self::Worker(path) | Self::Master(path) => path,
        }
    }

    fn prefix(&self) -> &'static str {
        match self {
            Self::Worker(_) => "",
            Self::Master(_) => "@1 ",
        }
    }

    /// Sends one command and returns its answer.
    pub async fn ask(&self, command: &str) -> Result<String, SocketError> {
        ask(self.path(), &format!("{}{command}", self.prefix())).await
    }

    /// Sends many commands, a few on each connection. Returns all of their answers, one after the other.
    pub async fn ask_each(&self, commands: &[String]) -> Result<String, SocketError> {
        let mut answers = String::new();
        for line in self.lines(commands, FEW) {
            answers.push_str(&self.send(&line).await?);
        }
        Ok(answers)
    }

    /// Sends many commands that answer little or nothing. Returns the lines of the answers.
    pub async fn tell(&self, commands: &[String]) -> Result<Vec<String>, SocketError> {
        let mut said = Vec::new();
        for line in self.lines(commands, usize::MAX) {
            collect(&mut said, &self.send(&line).await?);
        }
        Ok(said)
    }

    /// Joins the commands into lines that HAProxy can read, with at most `most` commands each.
    fn lines(&self, commands: &[String], most: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut room = 0;
        for command in commands {
            let command = format!("{}{command}", self.prefix());
            let fits = |line: &&mut String| room > 0 && line.len() + command.len() < MAX_LINE;
            if let Some(line) = lines.last_mut().filter(fits) {
                line.push(';');
                line.push_str(&command);
            } else {
                lines.push(command);
                room = most;
            }
            room -= 1;
        }
        lines
    }

    async fn send(&self, line: &str) -> Result<String, SocketError> {
        debug_assert!(line.len() <= MAX_LINE, "{} bytes are more than HAProxy reads", line.len());
        ask(self.path(), line).await
    }

    /// Returns the ID of the process that serves traffic now.
    pub async fn worker_pid(&self) -> Result<Option<u32>, SocketError> {
        let info = self.ask("show info").await?;
        Ok(info.lines().find_map(|line| line.strip_prefix("Pid: ")).and_then(|pid| pid.trim().parse().ok()))
    }

    /// Returns the version of the process that serves traffic now.
    pub async fn version(&self) -> Result<Option<Version>, SocketError> {
        let info = self.ask("show info").await?;
        Ok(info.lines().find_map(|line| line.strip_prefix("Version: ")).and_then(Version::parse))
    }
}

/// Returns the commands that take a server out of maintenance and keep it down until a check succeeds.
/// HAProxy assumes that a server out of maintenance is up. It would get traffic between two commands, so it
/// is drained first.
pub fn ready_but_down(server: &str) -> [String; 3] {
    ["state drain", "health down", "state ready"].map(|words| format!("set server {server} {words}"))
}

fn collect(said: &mut Vec<String>, answer: &str) {
    let lines = answer.lines().map(str::trim).filter(|line| !line.is_empty());
    said.extend(lines.take(100).map(|line| line.chars().take(300).collect()));
}
