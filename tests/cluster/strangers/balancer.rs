//! A load balancer that probes five times a second, on a new connection each time, and as often on a kept
//! one.

use nodegate_testbed::http::{connect, read_answer};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The rate on either kind of connection.
const PROBES_A_SECOND: u32 = 5;

/// The probers on new connections and on the kept one.
pub(crate) struct Balancer([Prober; 2]);

/// The results of its probes.
pub(crate) struct Seen {
    pub(crate) probes: usize,
    /// The results other than an answer, including the end of a kept connection.
    pub(crate) failed: Vec<String>,
    /// On new connections, and on the kept one.
    pub(crate) slowest: [Duration; 2],
}

impl Balancer {
    pub(crate) fn start(agent: SocketAddr) -> Self {
        let reconnecting = |to| saw(connect(to).and_then(|mut stream| ask(&mut stream, "close")));
        let connection = Arc::new(Mutex::new(None));
        let on_the_kept = move |to| {
            let mut kept = connection.lock().unwrap();
            let answered = kept.take().map_or_else(|| connect(to), Ok).and_then(|mut stream| {
                let status = ask(&mut stream, "keep-alive")?;
                *kept = Some(stream);
                Ok(status)
            });
            saw(answered)
        };
        let new = Prober::start(agent, reconnecting, PROBES_A_SECOND, 1);
        Self([new, Prober::start(agent, on_the_kept, PROBES_A_SECOND, 1)])
    }

    /// Waits for this number of probes of each kind.
    pub(crate) fn wait(&self, count: usize) {
        self.0.iter().for_each(|prober| prober.wait(count));
    }

    /// Ends it, and returns the results of its probes.
    pub(crate) fn end(self) -> Seen {
        let kinds = self.0.map(|mut prober| {
            prober.stop();
            prober.probes()
        });
        let slowest = |probes: &Vec<Probe>| probes.iter().map(|probe| probe.answered - probe.sent).max();
        let slowest = kinds.each_ref().map(|probes| slowest(probes).unwrap_or_default());
        let probes = kinds.concat();
        let failed = probes.iter().filter(|probe| !matches!(probe.saw, Saw::Answer(200, _)));
        Seen { probes: probes.len(), failed: failed.map(Probe::result).collect(), slowest }
    }
}

fn saw(answered: io::Result<u16>) -> Saw {
    match answered {
        Ok(status) => Saw::Answer(status, String::new()),
        Err(error) => Saw::Failed(error.to_string()),
    }
}

fn ask(stream: &mut TcpStream, connection: &str) -> io::Result<u16> {
    let request = format!("GET /health HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let reply = read_answer(stream)?.ok_or_else(|| io::Error::other("closed without an answer"))?;
    Ok(reply.status)
}
