//! The service on a node: says the node's name, and remembers who came when.

use nodegate_testbed::until;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What asks for a connection that stays: each `ping` is then answered.
pub(crate) const HOLD: &str = "HOLD";

pub(crate) struct Backend {
    address: SocketAddr,
    seen: Arc<Seen>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Seen {
    stopped: AtomicBool,
    connections: AtomicU64,
    last: Mutex<Option<Instant>>,
}

impl Backend {
    pub(crate) fn start(name: &'static str, ip: IpAddr, port: u16) -> Self {
        let address = SocketAddr::new(ip, port);
        // A process that another story just starts holds what was listening there until it runs its own program.
        let listener = until("the service's port", || TcpListener::bind(address).ok());
        let seen = Arc::new(Seen::default());
        let shared = seen.clone();
        let listening = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let seen = shared.clone();
                thread::spawn(move || serve(name, &stream, &seen));
            }
        });
        Self { address, seen, listening: Mutex::new(Some(listening)) }
    }

    /// How many connections with a request there were. A balancer's own checks send none.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// When the last of them came.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.seen.last.lock().unwrap()
    }

    /// Whether nobody has come for so long.
    pub(crate) fn quiet_for(&self, time: Duration) -> bool {
        self.last().is_none_or(|last| last.elapsed() > time)
    }

    /// Ends as an evicted pod does: nothing new, and what there is goes on.
    pub(crate) fn stop(&self) {
        let Some(listening) = self.listening.lock().unwrap().take() else { return };
        self.seen.stopped.store(true, Ordering::Relaxed);
        // The listener ends with the next connection.
        drop(TcpStream::connect(self.address));
        listening.join().unwrap();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(name: &str, mut stream: &TcpStream, seen: &Seen) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    seen.connections.fetch_add(1, Ordering::Relaxed);
    *seen.last.lock().unwrap() = Some(Instant::now());
    if first.starts_with(HOLD) {
        let mut says = |text: &str| writeln!(stream, "{text}").is_ok();
        let _ = says(name) && lines.all(|line| says(&line));
        return;
    }
    // The rest of the head; a client that closes early has its answer all the same.
    lines.find(String::is_empty);
    let _ = write!(stream, "HTTP/1.0 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
    let _ = stream.shutdown(Shutdown::Write);
}
