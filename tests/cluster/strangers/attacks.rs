//! Attacks of strangers on a port.

use nodegate_testbed::http::{is_closed, read_answer};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The longest time that an attacker waits for anything.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A set of strangers, each at an address of its own; dropping it stops them.
pub(crate) struct Attack {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    began: Instant,
    threads: Vec<JoinHandle<()>>,
}

/// One of the strangers.
pub(crate) struct Stranger {
    number: u8,
    to: SocketAddr,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
}

impl Attack {
    pub(crate) fn start(
        to: SocketAddr,
        strangers: u8,
        act: impl Fn(&Stranger) + Send + Clone + 'static,
    ) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let begin = |number| {
            let stranger = Stranger { number, to, stop: Arc::clone(&stop), asked: Arc::clone(&asked) };
            let act = act.clone();
            thread::spawn(move || act(&stranger))
        };
        let threads = (1..=strangers).map(begin).collect();
        Self { stop, asked, began: Instant::now(), threads }
    }

    /// Returns the requests per second that they have sent.
    #[expect(clippy::cast_precision_loss, reason = "millions at most")]
    pub(crate) fn rate(&self) -> f64 {
        self.asked.load(Ordering::Relaxed) as f64 / self.began.elapsed().as_secs_f64()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Stranger {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn asked(&self, count: u64) {
        self.asked.fetch_add(count, Ordering::Relaxed);
    }

    /// Connects from the stranger's own address.
    fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::new(127, 9, 0, self.number), 0)).into())?;
        socket.connect_timeout(&self.to.into(), TIMEOUT)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    }

    /// Sends one request on a connection of its own and reads the answer.
    fn ask(&self, head: &str) {
        self.asked(1);
        let Ok(mut stream) = self.connect() else { return };
        if stream.write_all(head.as_bytes()).is_ok() {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    }

    /// Runs `act` at this rate per second, unless it takes longer.
    fn at(&self, rate: u32, mut act: impl FnMut(u64)) {
        let every = Duration::from_secs(1) / rate;
        let mut due = Instant::now();
        for number in 0.. {
            if !self.goes_on() {
                return;
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            act(number);
            due = (due + every).max(Instant::now());
        }
    }
}

/// Requests the status on this number of connections, and reads nothing.
pub(crate) fn never_reads(stranger: &Stranger, connections: usize) {
    let requests = "GET /status.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(16);
    let mut held: Vec<Option<TcpStream>> = (0..connections).map(|_| None).collect();
    while stranger.goes_on() {
        for slot in &mut held {
            // Peeks without reading: the attack is not to read.
            let gone = slot.as_ref().is_none_or(|stream| matches!(stream.peek(&mut [0]), Ok(0)));
            if gone && let Ok(mut stream) = stranger.connect() {
                let _ = stream.write_all(requests.as_bytes());
                let _ = stream.set_nonblocking(true);
                stranger.asked(16);
                *slot = Some(stream);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Uses as many prober names as an address may have, each as long as a header can be, and sometimes requests
/// the status.
pub(crate) fn has_long_names(stranger: &Stranger, rate: u32) {
    stranger.at(rate, |number| {
        let (name, address) = (number % 128, stranger.number);
        let ballast = "x".repeat(if number % 2 == 0 { 6000 } else { 400 });
        stranger.ask(&format!(
            "GET /health?{number} HTTP/1.0\r\nX-Haproxy-Server-State: UP 2/3; name={ballast}/s{name}; node=lb{address}\r\n\r\n"
        ));
        if number % 16 == 0 {
            stranger.ask("GET /status.json?pretty HTTP/1.0\r\n\r\n");
        }
    });
}

/// Sends one HEAD request for the status after the other, without waiting for an answer.
pub(crate) fn pipelines_heads(stranger: &Stranger) {
    let requests = "HEAD /status.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    let mut buffer = vec![0; 1 << 16];
    while stranger.goes_on() {
        let Ok(mut stream) = stranger.connect() else { continue };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        let mut sent = 0;
        while stranger.goes_on() {
            let wrote = match stream.write(&requests.as_bytes()[sent % requests.len()..]) {
                Ok(wrote) => wrote,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => break,
            };
            sent += wrote;
            match stream.read(&mut buffer) {
                Ok(0) => break,
                // Counts answers, because requests in the attacker's own buffers are no load.
                Ok(read) => stranger.asked(
                    buffer[..read]
                        .split(|byte| *byte == b'\n')
                        .filter(|line| line.starts_with(b"HTTP/1.1 "))
                        .count() as u64,
                ),
                Err(error) if error.kind() != ErrorKind::WouldBlock => break,
                _ if wrote == 0 => thread::sleep(Duration::from_millis(1)),
                _ => {}
            }
        }
    }
}

/// Keeps this number of connections busy: sends a request on all of them, and then reads all answers.
pub(crate) fn keeps_busy(stranger: &Stranger, connections: usize) {
    let request = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut held: Vec<TcpStream> = Vec::new();
    while stranger.goes_on() {
        while held.len() < connections && stranger.goes_on() {
            held.extend(stranger.connect());
        }
        for stream in &mut held {
            stranger.asked(1);
            let _ = stream.write_all(request.as_bytes());
        }
        held.retain_mut(|stream| matches!(read_answer(stream), Ok(Some(_))) && !is_closed_now(stream));
    }
}

fn is_closed_now(stream: &mut TcpStream) -> bool {
    let closed = is_closed(stream);
    closed || stream.set_nonblocking(false).is_err()
}

/// Sends a different request on each connection.
pub(crate) fn sends_new_queries(stranger: &Stranger, rate: u32) {
    stranger.at(rate, |number| {
        stranger.ask(&format!("GET /health?{}-{number} HTTP/1.0\r\n\r\n", stranger.number));
    });
}

/// Holds this number of connections. Every fourth stranger sends a byte of an endless head on each again and again, the
/// others send nothing.
pub(crate) fn sends_slowly(stranger: &Stranger, connections: usize) {
    let mut held: Vec<TcpStream> = Vec::new();
    while stranger.goes_on() {
        while held.len() < connections && stranger.goes_on() {
            stranger.asked(1);
            held.extend(stranger.connect());
        }
        held.retain_mut(|stream| {
            !is_closed(stream) && (!stranger.number.is_multiple_of(4) || stream.write_all(b"a").is_ok())
        });
        thread::sleep(Duration::from_millis(100));
    }
}
