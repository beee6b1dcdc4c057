//! The service on a node: says the node's name, and remembers when who came.

use nodegate_testbed::until;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What asks for an answer that goes on.
pub(crate) const HOLD: &str = "/hold";
/// Between two pieces of it.
const PIECES: Duration = Duration::from_millis(100);
/// More than a proxy keeps back before it hands on what it has.
const PIECE: usize = 16 << 10;

pub(crate) struct Backend {
    seen: Arc<Mutex<Vec<Instant>>>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    /// The listening socket: shut down, it wakes who accepts, wherever that is.
    socket: TcpStream,
    thread: JoinHandle<()>,
}

impl Backend {
    pub(crate) fn start(name: &'static str, ip: IpAddr, port: u16) -> Self {
        let address = SocketAddr::new(ip, port);
        // A process that another story just starts holds what was listening there until it runs its own program.
        let listener = until("the service's port", || TcpListener::bind(address).ok());
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

    /// How many connections with a request there were. A balancer's own checks send none.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.lock().unwrap().len() as u64
    }

    /// When the last of them came.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.seen.lock().unwrap().last().copied()
    }

    /// How many have come since then.
    pub(crate) fn since(&self, then: Instant) -> usize {
        self.seen.lock().unwrap().iter().rev().take_while(|at| **at > then).count()
    }

    /// Ends as an evicted pod does: nothing new, and what there is goes on.
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
    // The rest of the head; a client that closes early has its answer all the same.
    lines.find(String::is_empty);
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
    let _ = write!(stream, "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    let _ = stream.shutdown(Shutdown::Write);
}
