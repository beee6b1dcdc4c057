//! A load balancer that probes on new connections and on a kept one, and the kubelet, which asks for `/livez`.

use nodegate_testbed::http::{connect_from, read_answer};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PROBES_A_SECOND: u32 = 5;
/// The longest time that a probe may take, as long as that of most balancers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The probers: on new connections, on the kept one, and the kubelet.
pub(crate) struct Balancer([Prober; 3]);

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) probes: usize,
    /// The results other than an answer, including the end of a kept connection.
    pub(crate) failed: Vec<String>,
    /// On new connections, on the kept one, and of the kubelet.
    pub(crate) slowest: [Duration; 3],
}

impl Balancer {
    /// Starts a balancer at this address that requests `path`, or an agent-check if that is empty.
    pub(crate) fn start(from: IpAddr, to: SocketAddr, path: &'static str, kubelet: SocketAddr) -> Self {
        let new = move |from, path: &'static str| {
            move |to| {
                saw(connect_from(from, to, TIMEOUT).and_then(|mut stream| ask(&mut stream, path, "close")))
            }
        };
        let connection = Arc::new(Mutex::new(None));
        let on_the_kept = move |to| {
            let mut kept = connection.lock().unwrap();
            let answered =
                kept.take().map_or_else(|| connect_from(from, to, TIMEOUT), Ok).and_then(|mut stream| {
                    let status = ask(&mut stream, path, "keep-alive")?;
                    *kept = Some(stream).filter(|_| !path.is_empty());
                    Ok(status)
                });
            saw(answered)
        };
        let start = |ask| Prober::start(to, ask, PROBES_A_SECOND, 1);
        let kubelet = Prober::start(kubelet, new(kubelet.ip(), "/livez"), PROBES_A_SECOND, 1);
        Self([start(new(from, path)), Prober::start(to, on_the_kept, PROBES_A_SECOND, 1), kubelet])
    }

    pub(crate) fn wait(&self, count: usize) {
        self.0.iter().for_each(|prober| prober.wait(count));
    }

    /// Returns the results of the probes since the last call.
    pub(crate) fn take(&self) -> Seen {
        let kinds = self.0.each_ref().map(Prober::take);
        let slowest = |probes: &Vec<Probe>| probes.iter().map(|probe| probe.answered - probe.sent).max();
        let slowest = kinds.each_ref().map(|probes| slowest(probes).unwrap_or_default());
        let probes = kinds.concat();
        let failed = probes.iter().filter(|probe| !matches!(probe.saw, Saw::Answer(200, _)));
        Seen { probes: probes.len(), failed: failed.map(Probe::result).collect(), slowest }
    }
}

impl Seen {
    pub(crate) fn slowest(&self) -> Duration {
        self.slowest.into_iter().max().unwrap_or_default()
    }
}

fn saw(answered: io::Result<u16>) -> Saw {
    match answered {
        Ok(status) => Saw::Answer(status, String::new()),
        Err(error) => Saw::Failed(error.to_string()),
    }
}

fn ask(stream: &mut TcpStream, path: &str, connection: &str) -> io::Result<u16> {
    if path.is_empty() {
        let mut line = String::new();
        stream.read_to_string(&mut line)?;
        return if line.ends_with('\n') { Ok(200) } else { Err(io::Error::other("no line")) };
    }
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let reply = read_answer(stream)?.ok_or_else(|| io::Error::other("closed without an answer"))?;
    Ok(reply.status)
}
