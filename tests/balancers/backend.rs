//! The service on a node: it answers with the node's name and records the time of each request.

use nodegate_testbed::until;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The path of an endless answer.
pub(crate) const HOLD: &str = "/hold";
/// The path of a slow answer, and its delay.
pub(crate) const SLOW: &str = "/slow";
const DELAY: Duration = Duration::from_millis(1_500);
/// The time between two pieces of the endless answer.
const PIECES: Duration = Duration::from_millis(100);
/// The size of a piece: more than a proxy buffers before it forwards.
const PIECE: usize = 16 << 10;

pub(crate) struct Backend {
    seen: Arc<Mutex<Vec<Instant>>>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    /// The listening socket; shutting it down wakes a thread that blocks in `accept`.
    socket: TcpStream,
    thread: JoinHandle<()>,
}

impl Backend {
    pub(crate) fn start(name: &'static str, port: u16) -> Self {
        // A process that another test is just starting holds inherited listeners until it runs its own
        // program.
        let listener = until("the service's port", || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).ok());
        let socket = TcpStream::from(OwnedFd::from(listener.try_clone().unwrap()));
        let seen = Arc::<Mutex<Vec<Instant>>>::default();
        let shared = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = shared.clone();
                thread::spawn(move || serve(name, &stream, &seen));
            }
        });
        Self { seen, listening: Mutex::new(Some(Listening { socket, thread })) }
    }

    /// Returns the number of connections with a request. A balancer's own checks send none.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.lock().unwrap().len() as u64
    }

    /// Returns the time of the last of them.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.seen.lock().unwrap().last().copied()
    }

    /// Returns the number of them since `then`.
    pub(crate) fn since(&self, then: Instant) -> usize {
        self.seen.lock().unwrap().iter().rev().take_while(|at| **at > then).count()
    }

    /// Ends as an evicted pod does: it accepts no new connections and finishes the open ones.
    pub(crate) fn stop(&self) {
        let Some(listening) = self.listening.lock().unwrap().take() else { return };
        listening.socket.shutdown(Shutdown::Both).unwrap();
        listening.thread.join().unwrap();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(name: &str, mut stream: &TcpStream, seen: &Mutex<Vec<Instant>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    seen.lock().unwrap().push(Instant::now());
    // Reads the rest of the head. A client that closes early gets its answer all the same.
    let head: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let header =
        |name: &str| head.iter().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned));
    if header("upgrade: ").is_some() {
        let _ = write!(
            stream,
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"
        );
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
