//! A load balancer's prober: a new connection for each probe, a steady pace, every answer with its time.

use crate::http::{self, ProbeReply};
use crate::waiting::until;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The probe timeout, as long as that of most balancers. A longer probe has failed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A load balancer's result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Saw {
    /// An answer: the status code, and `fresh`, `stale` or the reason.
    Answer(u16, String),
    /// No answer, or an unreadable one.
    Failed(String),
}

impl fmt::Display for Saw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(status, what) => write!(f, "{status} {what}"),
            Self::Failed(how) => f.write_str(how),
        }
    }
}

/// One probe, with its time and result.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The time at which the probe was due. The time from here to the answer is the machine's lag.
    pub due: Instant,
    pub sent: Instant,
    /// The time at which the whole answer had arrived, or the probe had failed.
    pub answered: Instant,
    pub saw: Saw,
}

impl Probe {
    pub fn result(&self) -> String {
        self.saw.to_string()
    }
}

/// A running prober. Drop stops it.
pub struct Prober {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Probe>>>,
    workers: Vec<JoinHandle<()>>,
}

impl Prober {
    /// Sends probes by `ask`, at this rate per second.
    pub fn start(
        address: SocketAddr,
        ask: impl FnMut(SocketAddr) -> Saw + Clone + Send + 'static,
        per_second: u32,
        workers: u32,
    ) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let every = Duration::from_secs(1) * workers / per_second;
        let first = Instant::now();
        let work = |number: u32| {
            let (stop, seen, mut ask) = (stop.clone(), seen.clone(), ask.clone());
            let mut due = first + every * number / workers;
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let sent = Instant::now();
                    let saw = ask(address);
                    let answered = Instant::now();
                    seen.lock().unwrap().push(Probe { due, sent, answered, saw });
                    // Probes that could not be sent in time are skipped.
                    due = (due + every).max(answered);
                }
            })
        };
        let workers = (0..workers).map(work).collect();
        Self { stop, seen, workers }
    }

    /// Returns all probes so far, in the order of sending.
    pub fn probes(&self) -> Vec<Probe> {
        let mut probes = self.seen.lock().unwrap().clone();
        probes.sort_by_key(|probe| probe.sent);
        probes
    }

    /// Returns all probes since the last call, and forgets them.
    pub fn take(&self) -> Vec<Probe> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Waits until `count` probes that are sent from now on have an answer.
    pub fn wait(&self, count: usize) {
        let from = Instant::now();
        until("probes to be answered", || {
            let seen = self.seen.lock().unwrap();
            (seen.iter().filter(|probe| probe.sent >= from).count() >= count).then_some(())
        });
    }

    pub fn failed(&self) -> Vec<Probe> {
        self.probes().into_iter().filter(|probe| matches!(probe.saw, Saw::Failed(_))).collect()
    }

    /// Returns the probes that were answered, or failed, after this time.
    pub fn answered_since(&self, then: Instant) -> Vec<Probe> {
        self.probes().into_iter().filter(|probe| probe.answered >= then).collect()
    }

    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for probe in self.probes() {
            *counts.entry(probe.result()).or_default() += 1;
        }
        counts
    }

    /// Stops the prober and lets the current probes end.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            worker.join().unwrap();
        }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Returns the largest delay of these probes by the machine.
pub fn lag<'a>(probes: impl IntoIterator<Item = &'a Probe>) -> Duration {
    probes.into_iter().map(|probe| probe.answered - probe.due).max().unwrap_or_default()
}

/// Returns the median and the longest of some times, as text for a table.
pub fn median_and_longest(times: impl IntoIterator<Item = Duration>) -> String {
    let mut times: Vec<_> = times.into_iter().map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    let spread = times.get(times.len() / 2).zip(times.last());
    spread.map_or("-".to_owned(), |(median, longest)| format!("{median:.1} s, {longest:.1} s"))
}

/// Returns the results in order, without repetitions in a row.
pub fn trail(probes: &[Probe]) -> Vec<String> {
    let mut trail: Vec<String> = probes.iter().map(Probe::result).collect();
    trail.dedup();
    trail
}

pub fn health(address: SocketAddr) -> Saw {
    exchange(address, "GET /health HTTP/1.0\r\n\r\n", TIMEOUT, |text| {
        let reply = ProbeReply::parse(text)?;
        let json: serde_json::Value = serde_json::from_str(&reply.body).ok()?;
        let checks = json.get("checks")?.as_array()?;
        let reason = checks.iter().find_map(|check| check.get("reason")?.as_str());
        let stale = checks.iter().any(|check| check.get("stale").is_some_and(|stale| *stale == true));
        let what = reason.unwrap_or(if stale { "stale" } else { "fresh" });
        Some(Saw::Answer(reply.status, what.to_owned()))
    })
}

/// Sends a probe as HAProxy's agent-check does.
pub fn agent_check(address: SocketAddr) -> Saw {
    exchange(address, "", TIMEOUT, |line| {
        line.ends_with('\n').then(|| Saw::Answer(200, line.trim_end().to_owned()))
    })
}

/// Sends a request on a new connection, and interprets the bytes up to its end.
pub fn exchange(
    address: SocketAddr,
    request: &str,
    timeout: Duration,
    read: impl FnOnce(&str) -> Option<Saw>,
) -> Saw {
    let failed = |how: &str| Saw::Failed(how.to_owned());
    match http::exchange(address, request, timeout) {
        Ok(text) if text.is_empty() => failed("empty"),
        Ok(text) => read(&text).unwrap_or_else(|| failed("garbled")),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => failed("refused"),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => failed("reset"),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => failed("timeout"),
            other => failed(&other.to_string()),
        },
    }
}
