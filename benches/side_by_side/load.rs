//! The load, the same for both servers. Each client is one blocking thread.

use nodegate_testbed::http::{self, ProbeReply, TIMEOUT};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// nodegate's answer for a ready node. nginx answers with a constant of the same size.
pub(crate) const BODY: &str = r#"{"status":"ready","checks":[{"name":"node_ready","passed":true,"duration_ms":0}],"total_duration_ms":0}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// True if each client sends all of its probes on one connection; else each probe opens one.
    pub(crate) kept: bool,
    pub(crate) clients: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    After(Duration),
    Requests(u64),
}

const CLOSING: &str = "GET /health HTTP/1.1\r\nHost: 127.0.0.1:25001\r\nUser-Agent: probe\r\nAccept: */*\r\nConnection: close\r\n\r\n";
const KEEPING: &[u8] =
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:25001\r\nUser-Agent: probe\r\nAccept: */*\r\n\r\n";

impl Load {
    pub(crate) const ALL: [Self; 4] = [
        Self { kept: false, clients: 1 },
        Self { kept: false, clients: 64 },
        Self { kept: true, clients: 1 },
        Self { kept: true, clients: 64 },
    ];

    pub(crate) fn name(self) -> String {
        let connection = if self.kept { "kept" } else { "new" };
        let plural = if self.clients == 1 { "" } else { "s" };
        format!("{connection} connection, {} client{plural}", self.clients)
    }

    /// Runs the load until `end`, and returns the latency of each probe in microseconds. Each must be answered with 200.
    pub(crate) fn run(self, address: SocketAddr, end: End) -> Vec<f64> {
        let (left, time) = match end {
            End::After(time) => (i64::MAX, time),
            End::Requests(requests) => (requests.cast_signed(), Duration::from_hours(1)),
        };
        let (left, deadline) = (AtomicI64::new(left), Instant::now() + time);
        let again = || Instant::now() < deadline && left.fetch_sub(1, Ordering::Relaxed) > 0;
        let client = || {
            let (mut latencies, mut prober) = (Vec::new(), Prober::new(address, self.kept));
            while again() {
                let began = Instant::now();
                let status = prober.probe();
                latencies.push(began.elapsed().as_secs_f64() * 1e6);
                assert_eq!(status, 200, "{address}");
            }
            latencies
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients).map(|_| scope.spawn(client)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        })
    }
}

/// A client that sends one probe after the other.
pub(crate) struct Prober {
    address: SocketAddr,
    kept: Option<TcpStream>,
}

impl Prober {
    pub(crate) fn new(address: SocketAddr, kept: bool) -> Self {
        let open = || {
            let stream = http::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        };
        Self { address, kept: kept.then(open) }
    }

    /// Sends one probe and returns the status code.
    pub(crate) fn probe(&mut self) -> u16 {
        let answer = if let Some(stream) = &mut self.kept {
            stream.write_all(KEEPING).unwrap();
            let (mut answer, mut chunk) = (Vec::with_capacity(4096), [0; 4096]);
            while !answer.ends_with(BODY.as_bytes()) {
                let length = stream.read(&mut chunk).unwrap();
                assert!(length > 0, "{} closed a connection that is kept", self.address);
                answer.extend_from_slice(chunk.get(..length).unwrap_or_default());
            }
            String::from_utf8(answer).unwrap()
        } else {
            http::exchange(self.address, CLOSING, TIMEOUT).unwrap()
        };
        ProbeReply::parse(&answer).expect("an answer in HTTP").status
    }
}
