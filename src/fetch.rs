//! One GET over HTTP/1.0, bounded in time and size. The agent's own client for the API server is no fit: it trusts its
//! server.

use crate::target::Target;
use nodegate_local_checks::resolve;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;

/// Fifty flips, sixteen Services and a Node with hundreds of labels are well below.
const MOST: u64 = 1 << 20;

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("could not start a thread: {0}")]
    Thread(io::Error),
    #[error("could not look the name up: {0}")]
    Lookup(String),
    #[error("could not connect: {0}")]
    Connect(io::Error),
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    #[error("{phase} within {}", humantime::format_duration(*timeout))]
    Timeout { phase: &'static str, timeout: Duration },
    #[error("the connection was closed without an answer; perhaps --allow-from does not name this machine")]
    Closed,
    #[error("the answer is longer than {MOST} bytes")]
    TooLong,
    #[error("the answer is not HTTP")]
    NotHttp,
}

/// What a wait for a connection ends with.
const NO_CONNECTION: &str = "no connection";

/// How far it has come.
enum Step {
    /// What is being waited for, in words that tell what has not happened.
    Waiting(&'static str),
    Done(Result<Answer, FetchError>),
}

/// Gets a path. A thread does the work, so that the timeout holds for all of it; it ends with the process.
pub(crate) fn get(target: &Target, path: &str, timeout: Duration) -> Result<Answer, FetchError> {
    let deadline = nodegate_clock::now() + timeout;
    let (steps, done) = channel();
    let (target, path) = (target.clone(), path.to_owned());
    thread::Builder::new()
        .spawn(move || {
            let result = exchange(&target, &path, timeout, &steps);
            // The receiver goes away when it has waited for long enough.
            let _ = steps.send(Step::Done(result));
        })
        .map_err(FetchError::Thread)?;
    let mut phase = "the name was not found";
    loop {
        match done.recv_timeout(deadline.saturating_duration_since(nodegate_clock::now())) {
            Ok(Step::Waiting(next)) => phase = next,
            Ok(Step::Done(result)) => return result,
            Err(_) => return Err(FetchError::Timeout { phase, timeout }),
        }
    }
}

fn exchange(
    target: &Target,
    path: &str,
    timeout: Duration,
    steps: &Sender<Step>,
) -> Result<Answer, FetchError> {
    let tell = |phase| drop(steps.send(Step::Waiting(phase)));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| FetchError::Lookup(error.to_string()))?;
    let addresses = runtime.block_on(resolve(&target.host)).map_err(FetchError::Lookup)?;
    tell(NO_CONNECTION);
    let mut stream = Err(FetchError::Lookup("no address".to_owned()));
    for ip in addresses {
        let address = SocketAddr::new(ip, target.port);
        stream = TcpStream::connect_timeout(&address, timeout).map_err(|error| match error.kind() {
            // Both wait as long; whoever is told first says the same.
            io::ErrorKind::TimedOut => FetchError::Timeout { phase: NO_CONNECTION, timeout },
            _ => FetchError::Connect(error),
        });
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    tell("no whole answer");
    let request = format!("GET {path} HTTP/1.0\r\nHost: {target}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(FetchError::Broken)?;
    let mut bytes = Vec::new();
    match stream.take(MOST + 1).read_to_end(&mut bytes) {
        _ if bytes.is_empty() => Err(FetchError::Closed),
        Err(error) => Err(FetchError::Broken(error)),
        Ok(_) if bytes.len() as u64 > MOST => Err(FetchError::TooLong),
        Ok(_) => parse(&bytes).ok_or(FetchError::NotHttp),
    }
}

/// Takes a response of HTTP/1.0 or 1.1 apart; its body ends with the connection.
fn parse(bytes: &[u8]) -> Option<Answer> {
    const BLANK: &[u8] = b"\r\n\r\n";
    let end = bytes.windows(BLANK.len()).position(|window| window == BLANK)?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let status = words.next()?.parse().ok()?;
    Some(Answer { status, body: bytes.get(end + BLANK.len()..)?.to_vec() })
}
