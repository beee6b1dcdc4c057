//! The service on a node: it answers with the node's name and records the time of each request.

use nodegate_testbed::stub::StubServer;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The path of an endless answer.
pub(crate) const HOLD: &str = "/hold";
/// The path of a slow answer, and its delay.
pub(crate) const SLOW: &str = "/slow";
const DELAY: Duration = Duration::from_millis(1_500);
const PIECES: Duration = Duration::from_millis(100);
/// The size of a piece: more than a proxy buffers before it forwards.
const PIECE: usize = 16 << 10;

pub(crate) struct Backend {
    server: StubServer,
    seen: Arc<Mutex<Vec<Instant>>>,
}

impl Backend {
    pub(crate) fn start(name: &'static str, port: u16) -> Self {
        let seen = Arc::<Mutex<Vec<Instant>>>::default();
        let shared = Arc::clone(&seen);
        let answer = move |request: &str, stream: &mut TcpStream| serve(name, request, stream, &shared);
        Self { server: StubServer::start_at((Ipv4Addr::UNSPECIFIED, port).into(), answer), seen }
    }

    /// Returns the number of connections with a request. A balancer's own checks send none.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.lock().unwrap().len() as u64
    }

    pub(crate) fn last(&self) -> Option<Instant> {
        self.seen.lock().unwrap().last().copied()
    }

    pub(crate) fn since(&self, then: Instant) -> usize {
        self.seen.lock().unwrap().iter().rev().take_while(|at| **at > then).count()
    }

    /// Ends as an evicted pod does: it accepts no new connections and finishes the open ones.
    pub(crate) fn stop(&self) {
        self.server.stop();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(name: &str, request: &str, mut stream: &TcpStream, seen: &Mutex<Vec<Instant>>) {
    let Some(first) = request.lines().next() else { return };
    seen.lock().unwrap().push(Instant::now());
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let header = |name: &str| {
        request.lines().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned))
    };
    if header("upgrade: ").is_some() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        return lines.for_each(|line| drop(writeln!(stream, "{name} {line}")));
    }
    // A body is one line.
    if header("content-length: ").is_some_and(|length| length != "0") {
        lines.next();
    }
    if first.contains(HOLD) {
        let piece = format!("{}\n", " ".repeat(PIECE));
        let mut says = |text: &str| stream.write_all(text.as_bytes()).is_ok();
        let mut goes_on = says(&format!("HTTP/1.0 200 OK\r\n\r\n{name}\n"));
        while goes_on {
            goes_on = says(&piece);
            thread::sleep(PIECES);
        }
        return;
    }
    if first.contains(SLOW) {
        thread::sleep(DELAY);
    }
    // The path of a request may be the status of its answer.
    let status = first.split(['/', ' ']).find_map(|word| word.parse::<u16>().ok()).unwrap_or(200);
    let _ = write!(stream, "HTTP/1.0 {status} X\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    let _ = stream.shutdown(Shutdown::Write);
}
