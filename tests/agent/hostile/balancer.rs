//! A well-behaved load balancer: a new connection for each probe, and a kept-alive one beside it.

use nodegate_testbed::http::{connect, read_answer};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The rate of each kind of probe.
const PROBES_A_SECOND: u32 = 50;

const READY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;
const CORDONED: &str = r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#;

/// The result for a connection that the agent closed before an answer began.
const LOST: &str = "lost";

pub(crate) struct Balancer {
    new: Prober,
    kept: Prober,
}

impl Balancer {
    pub(crate) fn start(to: SocketAddr) -> Self {
        let anew =
            |to| connect(to).map_or_else(|error| failed(&error), |mut stream| ask(&mut stream, "close"));
        let connection = Arc::new(Mutex::new(None));
        let on_the_kept = move |to| {
            let mut kept = connection.lock().unwrap();
            let mut stream = match kept.take().map_or_else(|| connect(to), Ok) {
                Ok(stream) => stream,
                Err(error) => return failed(&error),
            };
            let saw = ask(&mut stream, "keep-alive");
            if matches!(saw, Saw::Answer(..)) {
                *kept = Some(stream);
            }
            saw
        };
        Self {
            new: Prober::start(to, anew, PROBES_A_SECOND, 1),
            kept: Prober::start(to, on_the_kept, PROBES_A_SECOND, 1),
        }
    }

    /// Waits for this number of probes of each kind.
    pub(crate) fn wait(&self, count: usize) {
        self.new.wait(count);
        self.kept.wait(count);
    }

    pub(crate) fn end(self) -> Seen {
        let [new, kept] = [self.new, self.kept].map(|mut prober| {
            prober.stop();
            prober.probes()
        });
        let right = |probes: &[Probe]| probes.iter().filter(|probe| !is_failed(probe)).count();
        Seen {
            new: right(&new),
            kept: right(&kept),
            lost: kept.iter().filter(|probe| is_lost(probe)).count(),
            slowest: new.iter().chain(&kept).map(|probe| probe.answered - probe.sent).max().unwrap(),
            wrong: new
                .into_iter()
                .chain(kept.into_iter().filter(|probe| !is_lost(probe)))
                .filter(is_failed)
                .collect(),
        }
    }
}

/// The results of the probes.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The number of correct answers of each kind.
    pub(crate) new: usize,
    pub(crate) kept: usize,
    /// The answers that were wrong or did not come.
    pub(crate) wrong: Vec<Probe>,
    /// The number of times that the agent closed the kept connection between two answers.
    pub(crate) lost: usize,
    pub(crate) slowest: Duration,
}

fn is_failed(probe: &Probe) -> bool {
    matches!(probe.saw, Saw::Failed(_))
}

fn is_lost(probe: &Probe) -> bool {
    probe.saw == Saw::Failed(LOST.to_owned())
}

fn failed(error: &std::io::Error) -> Saw {
    Saw::Failed(error.to_string())
}

/// Sends a probe. Only an answer that is correct to the last byte counts.
fn ask(stream: &mut TcpStream, connection: &str) -> Saw {
    let request = format!("GET /health HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return Saw::Failed(LOST.to_owned());
    }
    match read_answer(stream) {
        Ok(None) => Saw::Failed(LOST.to_owned()),
        Ok(Some(reply)) => match (reply.status, reply.body.as_str()) {
            (200, READY) | (503, CORDONED) => Saw::Answer(reply.status, String::new()),
            _ => Saw::Failed(format!("{reply:?}")),
        },
        Err(error) => failed(&error),
    }
}
