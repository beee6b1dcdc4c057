//! The load balancers: a thousand probes a second from one thread, each judged at once. (The testbed's prober
//! keeps every answer, and has a thread for each client.)

use super::judge::{Judge, Seen};
use super::machine::Machine;
use nodegate_simulation::truth::{ProbeKind, SimulatedAnswer};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::MissedTickBehavior;

/// The interval of each balancer; with forty of them, a thousand probes a second.
const PERIOD: Duration = Duration::from_millis(40);
const BALANCERS: u32 = 40;
/// A balancer's own timeout: a probe without an answer by then has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of complaints that each line of the table keeps in full.
const COMPLAINTS: usize = 10;

/// The addresses of the agent.
#[derive(Clone, Copy)]
pub(crate) struct Doors {
    pub(crate) http: SocketAddr,
    pub(crate) agent_check: SocketAddr,
}

/// The results of the probes since the last `take`.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) probes: u64,
    pub(crate) wrong: u64,
    pub(crate) failed: u64,
    /// Microseconds from the first packet to the whole answer.
    pub(crate) latencies: Vec<u32>,
    /// The longest lag of the machine that the oracle allowed for.
    pub(crate) lag: Duration,
    pub(crate) complaints: Vec<String>,
}

/// The running balancers.
pub(crate) struct Balancers {
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    doors: Doors,
    judge: Arc<Mutex<Judge>>,
    machine: Arc<Machine>,
    tally: Arc<Mutex<Tally>>,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl Balancers {
    pub(crate) fn start(doors: Doors, judge: Arc<Mutex<Judge>>, machine: Arc<Machine>) -> Self {
        let tally: Arc<Mutex<Tally>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let shared =
            Shared { doors, judge, machine, tally: tally.clone(), stop: stop.clone(), began: Instant::now() };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let balancers: Vec<_> =
                    (0..BALANCERS).map(|number| tokio::spawn(balance(shared.clone(), number))).collect();
                for balancer in balancers {
                    balancer.await.unwrap();
                }
            });
        });
        Self { tally, stop, thread: Some(thread) }
    }

    /// Returns the results since the last call.
    pub(crate) fn take(&self) -> Tally {
        std::mem::take(&mut self.tally.lock().unwrap())
    }
}

impl Drop for Balancers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the kind of probe, and true for a kept connection: half of the balancers open one for each probe;
/// the others keep theirs, if the protocol allows it.
fn habit(number: u32) -> (ProbeKind, bool) {
    match number % 20 {
        0..8 => (ProbeKind::Health, false),
        8..12 => (ProbeKind::Health, true),
        12 | 13 => (ProbeKind::Drain, false),
        14 | 15 => (ProbeKind::Drain, true),
        16 => (ProbeKind::NodeCheck, false),
        17 => (ProbeKind::NodeCheck, true),
        18 => (ProbeKind::AgentCheck, false),
        _ => (ProbeKind::Conditions, true),
    }
}

async fn balance(shared: Shared, number: u32) {
    let (kind, keeps) = habit(number);
    let mut kept = None;
    let start = tokio::time::Instant::now() + PERIOD * number / BALANCERS;
    let mut ticks = tokio::time::interval_at(start, PERIOD);
    // Late probes are still sent, so a busy machine causes bursts and not fewer probes.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !shared.stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let sent = Instant::now();
        let asked = tokio::time::timeout(PATIENCE, ask(shared.doors, kind, keeps, &mut kept)).await;
        let received = Instant::now();
        let answer = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if answer.is_err() {
            kept = None;
        }
        shared.record(kind, answer, sent, received);
    }
}

impl Shared {
    fn record(&self, kind: ProbeKind, answer: io::Result<SimulatedAnswer>, sent: Instant, received: Instant) {
        let lag = self.machine.lag();
        let judged = match answer {
            Ok(answer) => {
                let seen = Seen { kind, answer, sent, received };
                Ok(self.judge.lock().unwrap().judge(&seen, lag))
            }
            Err(error) => Err(error),
        };
        let mut tally = self.tally.lock().unwrap();
        tally.probes += 1;
        tally.lag = tally.lag.max(lag);
        tally.latencies.push(u32::try_from((received - sent).as_micros()).unwrap_or(u32::MAX));
        let complaint = match judged {
            Ok(Ok(())) => return,
            Ok(Err(wrong)) => {
                tally.wrong += 1;
                wrong
            }
            Err(error) => {
                tally.failed += 1;
                format!("{kind:?} failed: {error}")
            }
        };
        if tally.complaints.len() < COMPLAINTS {
            let when = (sent - self.began).as_secs_f64();
            tally.complaints.push(format!("at {when:.3} s {complaint}"));
        }
    }
}

fn request(kind: ProbeKind, keeps: bool) -> String {
    let path = match kind {
        ProbeKind::Health | ProbeKind::AgentCheck => "/health",
        ProbeKind::Drain => "/health?drain=404",
        ProbeKind::NodeCheck => "/nodecheck",
        ProbeKind::Conditions => "/health?check=node_ready,custom_conditions",
    };
    let connection = if keeps { "keep-alive" } else { "close" };
    format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: {connection}\r\n\r\n")
}

async fn ask(
    doors: Doors,
    kind: ProbeKind,
    keeps: bool,
    kept: &mut Option<TcpStream>,
) -> io::Result<SimulatedAnswer> {
    if kind == ProbeKind::AgentCheck {
        let mut text = String::new();
        TcpStream::connect(doors.agent_check).await?.read_to_string(&mut text).await?;
        return Ok(SimulatedAnswer::new(0, &text));
    }
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => TcpStream::connect(doors.http).await?,
    };
    stream.write_all(request(kind, keeps).as_bytes()).await?;
    let answer = read_answer(&mut stream).await?;
    if keeps {
        *kept = Some(stream);
    }
    Ok(answer)
}

async fn read_answer(stream: &mut TcpStream) -> io::Result<SimulatedAnswer> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = std::str::from_utf8(&bytes[..end]).map_err(|_| broken("a head that is no text"))?;
            let status = head.get(9..12).and_then(|code| code.parse().ok()).ok_or_else(|| broken(head))?;
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            let whole = end + 4 + length.ok_or_else(|| broken("no content-length"))?;
            if bytes.len() == whole {
                return Ok(SimulatedAnswer { status, body: bytes[end + 4..].into() });
            }
            if bytes.len() > whole {
                return Err(broken("more than was announced"));
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
