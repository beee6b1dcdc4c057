//! The servers on the nodes, and clients that send requests without a pause.

use crate::scenario::Scenario;
use nodegate_testbed::http::{self, read_answer};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::stub::StubServer;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) type Counts = Arc<Mutex<BTreeMap<IpAddr, u64>>>;

pub(crate) fn node_name(index: usize) -> String {
    format!("node-{index:03}")
}

pub(crate) fn node_address(index: usize) -> IpAddr {
    let byte = |number| u8::try_from(number).unwrap();
    IpAddr::from([127, 1, byte(index / 250), byte(index % 250 + 1)])
}

pub(crate) fn count(counts: &Counts, index: usize) -> u64 {
    counts.lock().unwrap().get(&node_address(index)).copied().unwrap_or(0)
}

/// The status that a node's server answers with, if it is another one than 200.
pub(crate) type Statuses = Arc<Mutex<BTreeMap<IpAddr, &'static str>>>;

/// Starts a server as [`serve_requests`], which counts requests by the address that they reached.
pub(crate) fn serve(counts: &Counts, statuses: &Statuses) -> u16 {
    let (counts, statuses) = (counts.clone(), statuses.clone());
    serve_requests(move |at, _| {
        *counts.lock().unwrap().entry(at).or_default() += 1;
        statuses.lock().unwrap().get(&at).copied().unwrap_or("200 OK")
    })
}

/// Starts an HTTP server on all addresses, which answers with the status for an address and a request. With an empty
/// one, it closes the connection without an answer. Returns its port.
pub(crate) fn serve_requests(status: impl Fn(IpAddr, &str) -> &'static str + Send + Sync + 'static) -> u16 {
    let answer = move |request: &str, stream: &mut TcpStream| {
        // A check of the connection alone sends nothing.
        let at = stream.local_addr().ok().filter(|_| !request.is_empty());
        let status = at.map(|at| status(at.ip(), request)).unwrap_or_default();
        if !status.is_empty() {
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
            let _ = stream.write_all(answer.as_bytes());
        }
    };
    StubServer::start_at(SocketAddr::from(([0; 4], 0)), answer).address().port()
}

pub(crate) fn get(port: u16) -> Result<(), String> {
    get_from(local(port))
}

pub(crate) fn get_from(address: SocketAddr) -> Result<(), String> {
    match http::get(address, "/") {
        Ok(reply) if reply.status == 200 => Ok(()),
        Ok(reply) => Err(format!("status {}", reply.status)),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

pub(crate) fn answers(mut stream: TcpStream) -> bool {
    let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    sent.is_ok() && read_answer(&mut stream).is_ok_and(|reply| reply.is_some_and(|reply| reply.status == 200))
}

const CLIENTS: u32 = 4;
/// More requests than the clients can send if each takes a millisecond.
const REQUESTS_A_SECOND: u32 = 1_000;

pub(crate) struct Traffic(Prober);

impl Traffic {
    /// Starts some clients, each with a new connection for each request.
    pub(crate) fn start(port: u16) -> Self {
        Self::to(local(port))
    }

    pub(crate) fn to(address: SocketAddr) -> Self {
        let ask = |to| get_from(to).map_or_else(Saw::Failed, |()| Saw::Answer(200, String::new()));
        Self(Prober::start(address, ask, REQUESTS_A_SECOND, CLIENTS))
    }

    pub(crate) fn lost(&self) -> Vec<String> {
        self.0.failed().iter().map(Probe::result).collect()
    }

    /// Returns the time from then to the last failed request.
    pub(crate) fn back_after(&self, then: Instant) -> Duration {
        let probes = self.0.answered_since(then);
        let failed = |probe: &&Probe| matches!(probe.saw, Saw::Failed(_));
        let last = probes.iter().filter(failed).map(|probe| probe.answered).max().unwrap_or(then);
        last - then
    }

    pub(crate) fn answered(&self) -> usize {
        self.0.probes().len() - self.0.failed().len()
    }

    /// Stops the clients, and checks that each request was answered.
    pub(crate) fn none_lost(mut self, scenario: &Scenario) {
        self.0.stop();
        assert_eq!(self.lost(), Vec::<String>::new(), "{}", scenario.log());
    }
}
