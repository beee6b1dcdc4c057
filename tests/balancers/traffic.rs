//! Clients: constant traffic with a new connection for each request, and connections that stay open.

use crate::backend::HOLD;
use nodegate_testbed::prober::{Prober, Saw, exchange};
use nodegate_testbed::{ProbeReply, http, until};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 4;
/// Enough to show a gap of some milliseconds.
const REQUESTS_A_SECOND: u32 = 100;
/// Far more than a request takes, or the next piece of an endless answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Starts traffic with a new connection for each request; it records the name of the node that answered.
pub(crate) fn traffic(to: SocketAddr) -> Prober {
    Prober::start(to, |to| request(to, "/"), REQUESTS_A_SECOND, CLIENTS)
}

/// Sends one request on a new connection, and returns the name of the node that answered.
pub(crate) fn request(to: SocketAddr, path: &str) -> Saw {
    exchange(to, &format!("GET {path} HTTP/1.0\r\nhost: x\r\n\r\n"), TIMEOUT, |text| match ProbeReply::parse(
        text,
    ) {
        Some(ProbeReply { status: 200, body, .. }) if !body.is_empty() => Some(Saw::Answer(200, body)),
        _ => Some(Saw::Failed(format!("not an answer: {:?}", text.lines().next().unwrap_or_default()))),
    })
}

/// A request with an endless answer, which a thread reads.
pub(crate) struct Held {
    /// The time of the last piece; `None` once the answer has ended.
    last: Arc<Mutex<Option<Instant>>>,
    stream: TcpStream,
}

impl Held {
    pub(crate) fn on(node: &str, to: SocketAddr) -> Self {
        until("an answer that goes on, from the node", || Self::open(node, to).ok().flatten())
    }

    fn open(node: &str, to: SocketAddr) -> io::Result<Option<Self>> {
        let mut stream = http::connect(to)?;
        write!(stream, "GET {HOLD} HTTP/1.0\r\nhost: x\r\n\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while !lines.next().ok_or(ErrorKind::UnexpectedEof)??.is_empty() {}
        if lines.next().ok_or(ErrorKind::UnexpectedEof)?? != node {
            return Ok(None);
        }
        let last = Arc::new(Mutex::new(Some(Instant::now())));
        let heard = last.clone();
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|_| *heard.lock().unwrap() = Some(Instant::now()));
            *heard.lock().unwrap() = None;
        });
        Ok(Some(Self { last, stream }))
    }

    pub(crate) fn works(&self) -> bool {
        let asked = Instant::now();
        while asked.elapsed() < TIMEOUT {
            match *self.last.lock().unwrap() {
                Some(last) if last <= asked => {}
                last => return last.is_some(),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
