//! Clients: constant traffic with a new connection for each request, and connections that stay.

use crate::backend::HOLD;
use nodegate_testbed::Reply;
use nodegate_testbed::http;
use nodegate_testbed::prober::{Prober, Saw, exchange};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const CLIENTS: u32 = 4;
/// Enough to show a gap of some milliseconds.
const REQUESTS_A_SECOND: u32 = 100;
/// Far more than a request takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Constant traffic, a new connection for each request; the names of the nodes that answered are kept.
pub(crate) fn traffic(to: SocketAddr) -> Prober {
    Prober::start(to, ask, REQUESTS_A_SECOND, CLIENTS)
}

/// Asks once, on a new connection; gives the name of the node that answered.
pub(crate) fn ask(to: SocketAddr) -> Saw {
    exchange(to, "GET / HTTP/1.0\r\nhost: x\r\n\r\n", PATIENCE, |text| match Reply::parse(text) {
        Some(Reply { status: 200, body, .. }) if !body.is_empty() => Some(Saw::Answer(200, body)),
        _ => Some(Saw::Failed(format!("not an answer: {:?}", text.lines().next().unwrap_or_default()))),
    })
}

/// How many answers each node has given since then.
pub(crate) fn served(traffic: &Prober, since: Instant) -> HashMap<String, u64> {
    let mut served = HashMap::new();
    for probe in traffic.answered_since(since) {
        if let Saw::Answer(_, name) = probe.saw {
            *served.entry(name).or_default() += 1;
        }
    }
    served
}

/// What has failed since then, and how.
pub(crate) fn failures(traffic: &Prober, since: Instant) -> Vec<String> {
    let failed = traffic.failed().into_iter().filter(|probe| probe.answered >= since);
    failed.map(|probe| probe.told()).collect()
}

/// A connection that stays.
pub(crate) struct Held {
    lines: BufReader<TcpStream>,
}

impl Held {
    /// Opens connections until one leads to `node`.
    pub(crate) fn on(node: &str, to: SocketAddr) -> Self {
        for _ in 0..100 {
            let mut held = Self { lines: BufReader::new(http::connect(to).unwrap()) };
            if held.says(HOLD).is_ok_and(|name| name == node) {
                return held;
            }
        }
        panic!("no connection leads to {node}");
    }

    /// Whether the connection still works.
    pub(crate) fn works(&mut self) -> bool {
        self.says("ping").is_ok_and(|answer| answer == "ping")
    }

    fn says(&mut self, text: &str) -> io::Result<String> {
        self.lines.get_mut().write_all(format!("{text}\n").as_bytes())?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}
