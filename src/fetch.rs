//! One GET over HTTP/1.0, bounded in time and size. The agent's own client for the API server is no fit: it trusts its
//! server.

use crate::target::Target;
use nodegate_local_checks::resolve;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// Fifty flips, sixteen Services and a Node with hundreds of labels are well below.
const MOST: usize = 1 << 20;

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

/// What a wait for each step ends with.
const NO_NAME: &str = "the name was not found";
const NO_CONNECTION: &str = "no connection";
const NO_ANSWER: &str = "no whole answer";

/// How far it has come.
enum Step {
    /// What is being waited for, in words that tell what has not happened.
    Waiting(&'static str),
    Done(Result<Answer, FetchError>),
}

/// Gets a path. A thread does the work, so that the timeout holds for the lookup of the name, too; it ends with the timeout.
pub(crate) fn get(target: &Target, path: &str, timeout: Duration) -> Result<Answer, FetchError> {
    let deadline = nodegate_clock::now() + timeout;
    let (steps, done) = channel();
    let (target, path) = (target.clone(), path.to_owned());
    thread::Builder::new()
        .spawn(move || {
            let result = exchange(&target, &path, &Limit { deadline, timeout }, &steps);
            // The receiver goes away when it has waited for long enough.
            let _ = steps.send(Step::Done(result));
        })
        .map_err(FetchError::Thread)?;
    let mut phase = NO_NAME;
    loop {
        match done.recv_timeout(deadline.saturating_duration_since(nodegate_clock::now())) {
            Ok(Step::Waiting(next)) => phase = next,
            Ok(Step::Done(result)) => return result,
            Err(_) => return Err(FetchError::Timeout { phase, timeout }),
        }
    }
}

/// How long it may take.
struct Limit {
    deadline: Instant,
    timeout: Duration,
}

impl Limit {
    /// What is left for this; never zero, which sockets take for no timeout or refuse.
    fn left(&self, phase: &'static str) -> Result<Duration, FetchError> {
        let left = self.deadline.saturating_duration_since(nodegate_clock::now());
        if left.is_zero() { Err(self.passed(phase)) } else { Ok(left) }
    }

    /// Whoever is told first, by the socket or by the thread that waits, says the same.
    fn passed(&self, phase: &'static str) -> FetchError {
        FetchError::Timeout { phase, timeout: self.timeout }
    }
}

fn exchange(target: &Target, path: &str, limit: &Limit, steps: &Sender<Step>) -> Result<Answer, FetchError> {
    let tell = |phase| drop(steps.send(Step::Waiting(phase)));
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| FetchError::Lookup(error.to_string()))?;
    let lookup = async {
        tokio::time::timeout(limit.left(NO_NAME)?, resolve(&target.host))
            .await
            .map_err(|_| limit.passed(NO_NAME))
    };
    let addresses = runtime.block_on(lookup)?.map_err(FetchError::Lookup)?;
    tell(NO_CONNECTION);
    let mut stream = Err(FetchError::Lookup("no address".to_owned()));
    for ip in addresses {
        let address = SocketAddr::new(ip, target.port);
        let left = limit.left(NO_CONNECTION)?;
        stream = TcpStream::connect_timeout(&address, left).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => limit.passed(NO_CONNECTION),
            _ => FetchError::Connect(error),
        });
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    tell(NO_ANSWER);
    let request = format!("GET {path} HTTP/1.0\r\nHost: {target}\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(limit.left(NO_ANSWER)?)).map_err(FetchError::Broken)?;
    stream.write_all(request.as_bytes()).map_err(|error| broken(error, limit))?;
    let bytes = read(&mut stream, limit)?;
    parse(&bytes).ok_or(FetchError::NotHttp)
}

/// Reads to the end. The deadline is looked at before each part: a server that goes on sending does not put it off.
fn read(stream: &mut TcpStream, limit: &Limit) -> Result<Vec<u8>, FetchError> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(limit.left(NO_ANSWER)?)).map_err(FetchError::Broken)?;
        match stream.read(&mut part) {
            Ok(0) if bytes.is_empty() => return Err(FetchError::Closed),
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(part.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => match broken(error, limit) {
                FetchError::Broken(_) if bytes.is_empty() => return Err(FetchError::Closed),
                error => return Err(error),
            },
        }
        if bytes.len() > MOST {
            return Err(FetchError::TooLong);
        }
    }
}

fn broken(error: io::Error, limit: &Limit) -> FetchError {
    match error.kind() {
        // Linux calls a timeout of a socket the former.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => limit.passed(NO_ANSWER),
        _ => FetchError::Broken(error),
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

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::{Server, hang};

    /// On this thread: what is seen is that the work ends, not that nobody waits for it.
    fn exchange_with(server: &Server, timeout: Duration) -> Result<Answer, FetchError> {
        let target = Target::at(server.address().ip(), server.address().port());
        let deadline = nodegate_clock::now() + timeout;
        exchange(&target, "/", &Limit { deadline, timeout }, &channel().0)
    }

    #[test]
    fn the_work_ends_with_the_deadline_whatever_the_server_does() {
        let drip = |stream: &mut TcpStream| {
            while stream.write_all(b"H").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        };
        for server in [Server::start(drip), Server::start(hang)] {
            let began = nodegate_clock::now();
            let error = exchange_with(&server, Duration::from_millis(300)).err().unwrap();
            assert_eq!(error.to_string(), "no whole answer within 300ms");
            let took = nodegate_clock::now() - began;
            assert!(took < Duration::from_secs(10), "{took:?}");
        }
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_not_beyond_the_limit() {
        let of_length = |length| {
            let server = Server::saying(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(length)));
            exchange_with(&server, Duration::from_secs(10))
        };
        assert_eq!(of_length(100_000).unwrap().body.len(), 100_000);
        assert!(matches!(of_length(MOST), Err(FetchError::TooLong)));
    }
}
