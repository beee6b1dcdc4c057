//! The load balancers: a thousand probes a second from one thread, each judged at once. (The testbed's prober
//! keeps every answer, and has a thread for each client.)

use super::judge::{Judge, Seen};
use nodegate_simulation::truth::{ProbeKind, SimulatedAnswer};
use std::collections::VecDeque;
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
/// The interval at which the machine's delay is measured, and the time after which a delay has no effect any more.
const MEASURED_EVERY: Duration = Duration::from_millis(5);
const RECENT: Duration = Duration::from_millis(1500);

/// The ports of the agent.
#[derive(Clone, Copy)]
pub(crate) struct AgentPorts {
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
    /// The longest delay of the machine that the oracle allowed for.
    pub(crate) lag: Duration,
    pub(crate) complaints: Vec<String>,
}

/// The running balancers. Drop stops them.
pub(crate) struct Balancers {
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Shared {
    ports: AgentPorts,
    judge: Arc<Mutex<Judge>>,
    tally: Arc<Mutex<Tally>>,
    /// The recent delays of a task that sleeps and wakes: the oracle need not guess how busy the machine is.
    lags: Arc<Mutex<VecDeque<(Instant, Duration)>>>,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl Balancers {
    pub(crate) fn start(ports: AgentPorts, judge: Arc<Mutex<Judge>>) -> Self {
        let shared = Shared {
            ports,
            judge,
            tally: Arc::default(),
            lags: Arc::default(),
            stop: Arc::default(),
            began: Instant::now(),
        };
        let running = shared.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::spawn(running.clone().measure());
                let balance = |number| tokio::spawn(running.clone().balance(number));
                for balancer in (0..BALANCERS).map(balance).collect::<Vec<_>>() {
                    balancer.await.unwrap();
                }
            });
        });
        Self { shared, thread: Some(thread) }
    }

    /// Returns the results since the last call.
    pub(crate) fn take(&self) -> Tally {
        std::mem::take(&mut self.shared.tally.lock().unwrap())
    }

    /// Returns the longest recent delay of the machine.
    pub(crate) fn lag(&self) -> Duration {
        self.shared.lag()
    }
}

impl Drop for Balancers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    async fn measure(self) {
        loop {
            let due = Instant::now() + MEASURED_EVERY;
            tokio::time::sleep_until(due.into()).await;
            let now = Instant::now();
            let mut lags = self.lags.lock().unwrap();
            lags.push_back((now, now - due));
            while lags.front().is_some_and(|(at, _)| now.duration_since(*at) > RECENT) {
                lags.pop_front();
            }
        }
    }

    fn lag(&self) -> Duration {
        self.lags.lock().unwrap().iter().map(|(_, lag)| *lag).max().unwrap_or_default()
    }

    async fn balance(self, number: u32) {
        // Half of the balancers open a connection for each probe; the others keep theirs, if the protocol allows it.
        let keeps = number.is_multiple_of(2);
        let kind = ProbeKind::ALL[number as usize / 2 % ProbeKind::ALL.len()];
        let mut kept = None;
        let start = tokio::time::Instant::now() + PERIOD * number / BALANCERS;
        let mut ticks = tokio::time::interval_at(start, PERIOD);
        // Late probes are still sent, so a busy machine causes bursts and not fewer probes.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while !self.stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            let sent = Instant::now();
            let answered = tokio::time::timeout(PATIENCE, self.probe(kind, keeps, &mut kept)).await;
            let answer = answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if answer.is_err() {
                kept = None;
            }
            self.record(kind, answer, sent, Instant::now());
        }
    }

    fn record(&self, kind: ProbeKind, answer: io::Result<SimulatedAnswer>, sent: Instant, received: Instant) {
        let lag = self.lag();
        let judged = answer.map(|answer| {
            let seen = Seen { kind, answer, sent, received };
            self.judge.lock().unwrap().judge(&seen, lag)
        });
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

    async fn probe(
        &self,
        kind: ProbeKind,
        keeps: bool,
        kept: &mut Option<TcpStream>,
    ) -> io::Result<SimulatedAnswer> {
        let path = match kind {
            ProbeKind::AgentCheck => {
                let mut text = String::new();
                TcpStream::connect(self.ports.agent_check).await?.read_to_string(&mut text).await?;
                return Ok(SimulatedAnswer::new(0, &text));
            }
            ProbeKind::Health => "/health",
            ProbeKind::Drain => "/health?drain=404",
            ProbeKind::NodeCheck => "/nodecheck",
            ProbeKind::Conditions => "/health?check=node_ready,custom_conditions",
        };
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => TcpStream::connect(self.ports.http).await?,
        };
        let connection = if keeps { "keep-alive" } else { "close" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: {connection}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let answer = read_answer(&mut stream).await?;
        if keeps {
            *kept = Some(stream);
        }
        Ok(answer)
    }
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
            match bytes.len() {
                found if found == whole => {
                    return Ok(SimulatedAnswer { status, body: bytes[end + 4..].into() });
                }
                found if found > whole => return Err(broken("more than was announced")),
                _ => {}
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
