//! The load, the same for every peer. Each client is one blocking thread, so the generator adds no overhead
//! but the kernel's.

use crate::latencies::Latencies;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The use of connections by the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Each probe opens a connection.
    New,
    /// Each client sends all of its probes on one connection.
    Kept,
}

impl Connections {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new connection",
            Self::Kept => "kept connection",
        }
    }
}

/// The load on one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Connections,
    pub(crate) clients: u32,
}

/// The end of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    After(Duration),
    Requests(u64),
}

/// The results of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) latencies: Latencies,
    pub(crate) elapsed: Duration,
}

const CLOSING: &[u8] =
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:25001\r\nUser-Agent: probe\r\nAccept: */*\r\nConnection: close\r\n\r\n";
const KEEPING: &[u8] =
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:25001\r\nUser-Agent: probe\r\nAccept: */*\r\n\r\n";

/// A timeout longer than any peer takes. A probe that reaches it has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

impl Load {
    /// Runs the load until `end`.
    pub(crate) fn run(self, end: End) -> io::Result<Outcome> {
        let started = Instant::now();
        let left = AtomicI64::new(match end {
            End::After(_) => i64::MAX,
            End::Requests(requests) => requests.cast_signed(),
        });
        let deadline = match end {
            End::After(duration) => started + duration,
            End::Requests(_) => started + Duration::from_hours(1),
        };
        let again = || Instant::now() < deadline && left.fetch_sub(1, Ordering::Relaxed) > 0;
        let latencies = thread::scope(|scope| {
            let client = || self.client(again);
            let clients: Vec<_> = (0..self.clients).map(|_| scope.spawn(client)).collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("a client does not panic"))
                .collect::<io::Result<_>>()
        })?;
        Ok(Outcome { latencies, elapsed: started.elapsed() })
    }

    fn client(self, again: impl Fn() -> bool) -> io::Result<Latencies> {
        let mut latencies = Latencies::default();
        let mut prober = Prober::new(self.address, self.connections);
        while again() {
            let due = Instant::now();
            let status = prober.probe()?;
            latencies.add(due.elapsed());
            if status != 200 {
                return Err(io::Error::other(format!("{} answered {status}", self.address)));
            }
        }
        Ok(latencies)
    }
}

/// A client that sends one probe after the other.
pub(crate) struct Prober {
    address: SocketAddr,
    connections: Connections,
    kept: Option<TcpStream>,
    answer: Vec<u8>,
}

impl Prober {
    pub(crate) fn new(address: SocketAddr, connections: Connections) -> Self {
        Self { address, connections, kept: None, answer: Vec::with_capacity(4096) }
    }

    /// Sends one probe and returns the status code.
    pub(crate) fn probe(&mut self) -> io::Result<u16> {
        self.answer.clear();
        match self.connections {
            Connections::New => {
                let mut stream = connect(self.address)?;
                stream.write_all(CLOSING)?;
                stream.read_to_end(&mut self.answer)?;
            }
            Connections::Kept => {
                let stream = match &mut self.kept {
                    Some(stream) => stream,
                    none => none.insert(connect(self.address)?),
                };
                stream.write_all(KEEPING)?;
                read_answer(stream, &mut self.answer)?;
            }
        }
        let status = self.answer.get(9..12).and_then(|code| str::from_utf8(code).ok());
        status.and_then(|code| code.parse().ok()).ok_or_else(|| io::Error::other("no HTTP answer"))
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 4096];
    while !is_complete(answer) {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => answer.extend_from_slice(chunk.get(..len).unwrap_or_default()),
        }
    }
    Ok(())
}

fn is_complete(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let (head, body) = answer.split_at(end + 4);
    let head = str::from_utf8(head).unwrap_or_default();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    length.is_none_or(|length| body.len() >= length)
}
