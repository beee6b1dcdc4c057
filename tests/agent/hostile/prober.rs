//! A load balancer that behaves well: a new connection for each probe, and a kept one beside.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// 50 probes a second of each kind.
const PAUSE: Duration = Duration::from_millis(20);

const PATIENCE: Duration = Duration::from_secs(30);

const READY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;
const CORDONED: &str = r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#;

pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    probes: Arc<AtomicUsize>,
    thread: JoinHandle<Tally>,
}

/// What it has seen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Answers that were right, of each kind.
    pub(crate) new: usize,
    pub(crate) kept: usize,
    /// Answers that were not, or that did not come.
    pub(crate) wrong: Vec<String>,
    /// How often the kept connection was closed between two answers.
    pub(crate) lost: usize,
    pub(crate) slowest: Duration,
}

impl Prober {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let (stop, probes) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (stopped, count) = (stop.clone(), probes.clone());
        let thread = std::thread::spawn(move || {
            let mut tally = Tally::default();
            let mut kept = None;
            while !stopped.load(Ordering::Relaxed) {
                tally.probe_anew(to);
                tally.probe_kept(to, &mut kept);
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            tally
        });
        Self { stop, probes, thread }
    }

    /// How many rounds it has made.
    pub(crate) fn rounds(&self) -> usize {
        self.probes.load(Ordering::Relaxed)
    }

    pub(crate) fn end(self) -> Tally {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&to, PATIENCE).expect("the kernel accepts");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// One answer; `None` if the connection ended before its first byte.
fn ask(stream: &mut TcpStream, connection: &str) -> Result<Option<String>, String> {
    let request = format!("GET /health HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return Ok(None);
    }
    let mut answer = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) if answer.is_empty() => return Ok(None),
            Ok(0) => return Err(format!("cut after {:?}", String::from_utf8_lossy(&answer))),
            Ok(read) => answer.extend_from_slice(&chunk[..read]),
            Err(error) => return Err(error.to_string()),
        }
        if answer.ends_with(b"\"total_duration_ms\":0}") {
            return Ok(Some(String::from_utf8_lossy(&answer).into_owned()));
        }
    }
}

fn is_right(answer: &str) -> bool {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    match body {
        READY => head.starts_with("HTTP/1.1 200 "),
        CORDONED => head.starts_with("HTTP/1.1 503 "),
        _ => false,
    }
}

impl Tally {
    fn probe_anew(&mut self, to: SocketAddr) {
        let start = Instant::now();
        match ask(&mut connect(to), "close") {
            Ok(Some(answer)) if is_right(&answer) => self.new += 1,
            other => self.wrong.push(format!("new connection: {other:?}")),
        }
        self.slowest = self.slowest.max(start.elapsed());
    }

    fn probe_kept(&mut self, to: SocketAddr, kept: &mut Option<TcpStream>) {
        let start = Instant::now();
        let mut stream = kept.take().unwrap_or_else(|| connect(to));
        match ask(&mut stream, "keep-alive") {
            Ok(Some(answer)) if is_right(&answer) => {
                self.kept += 1;
                *kept = Some(stream);
            }
            Ok(None) => self.lost += 1,
            other => self.wrong.push(format!("kept connection: {other:?}")),
        }
        self.slowest = self.slowest.max(start.elapsed());
    }
}
