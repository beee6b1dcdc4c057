//! The servers on the nodes, and clients that send requests without a pause.

use crate::lab::{Lab, get_from, local, node_address};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use socket2::SockRef;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Requests by the node that they reached.
pub(crate) type Counts = Arc<Mutex<BTreeMap<IpAddr, u64>>>;

pub(crate) fn count(counts: &Counts, index: usize) -> u64 {
    counts.lock().unwrap().get(&node_address(index)).copied().unwrap_or(0)
}

/// Starts an HTTP server on all addresses, which counts requests by the address that they reached. Returns
/// its port.
pub(crate) async fn serve(counts: Counts, healthy: impl Fn(IpAddr) -> bool + Clone + Send + 'static) -> u16 {
    serve_requests(move |at, _| {
        *counts.lock().unwrap().entry(at).or_insert(0) += 1;
        if healthy(at) { "200 OK" } else { "503 Service Unavailable" }
    })
    .await
}

/// Starts an HTTP server on all addresses, which answers with the status for an address and a request. With an empty
/// one, it closes the connection without an answer. Returns its port.
pub(crate) async fn serve_requests(
    status: impl Fn(IpAddr, &str) -> &'static str + Clone + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    // HAProxy begins all its checks within a second, and one socket here is all nodes.
    SockRef::from(&listener).listen(4096).unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { continue };
            let status = status.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 2048];
                let Ok(bytes @ 1..) = stream.read(&mut buffer).await else { return };
                let at = stream.local_addr().map_or(IpAddr::from([0; 4]), |at| at.ip());
                let status = status(at, &String::from_utf8_lossy(&buffer[..bytes]));
                if status.is_empty() {
                    return;
                }
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read(&mut buffer).await;
            });
        }
    });
    port
}

/// Nodes whose server answers 404, and nodes whose server does not answer.
#[derive(Clone, Default)]
pub(crate) struct Switches {
    pub(crate) draining: Arc<Mutex<BTreeSet<IpAddr>>>,
    pub(crate) dead: Arc<Mutex<BTreeSet<IpAddr>>>,
}

/// Starts a server as [`serve`], whose nodes can be drained and die.
pub(crate) async fn serve_switched(counts: Counts, switches: &Switches) -> u16 {
    let switches = switches.clone();
    serve_requests(move |at, _| {
        *counts.lock().unwrap().entry(at).or_insert(0) += 1;
        let is_in = |set: &Mutex<BTreeSet<IpAddr>>| set.lock().unwrap().contains(&at);
        match (is_in(&switches.dead), is_in(&switches.draining)) {
            (true, _) => "",
            (false, true) => "404 Not Found",
            (false, false) => "200 OK",
        }
    })
    .await
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

    /// Returns how many requests failed that were sent after this time.
    pub(crate) fn lost_since(&self, then: Instant) -> usize {
        self.0.failed().iter().filter(|probe| probe.sent > then).count()
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

    /// Stops the clients. Returns the errors of the requests that were not answered.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.0.stop();
        self.0.failed().iter().map(Probe::result).collect()
    }

    /// Stops the clients, and checks that each request was answered.
    pub(crate) fn none_lost(self, lab: &Lab) {
        assert_eq!(self.end(), Vec::<String>::new(), "{}", lab.log());
    }
}
