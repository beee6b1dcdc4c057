//! An attacker at the balancer's own address, who sends the balancer's own request.

use super::attacks::{address_of, connect_from};
use super::target::Port;
use super::told;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::{Agent, Cluster, NODE};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// The number of answers that take a server out.
const FALL: usize = 3;
/// The longest time until a cordon, or its end, is told.
const PATIENCE: Duration = Duration::from_secs(20);

/// A balancer that probes once a second from the address of the first stranger, on a new connection each
/// time.
pub(super) struct SlowBalancer(Prober);

impl SlowBalancer {
    pub(super) fn start(to: SocketAddr) -> Self {
        let ask = |to| match ask(to) {
            Ok(status) => Saw::Answer(status, String::new()),
            Err(error) => Saw::Failed(error.to_string()),
        };
        Self(Prober::start(to, ask, 1, 1))
    }

    /// Returns the number of answers between these two instants that take the node out.
    fn heard(&self, from: Instant, until: Instant) -> usize {
        let probes = self.0.probes().into_iter();
        let between = probes.filter(|probe| probe.sent >= from && probe.answered <= until);
        between.filter(|probe| matches!(probe.saw, Saw::Answer(503, _))).count()
    }

    /// Cordons the node again and again for this time. Returns the smallest number of the balancer's answers
    /// after which `told` was true, and the number of cordons.
    pub(super) fn told_after(&self, agent: &Agent, cluster: &Cluster, duration: Duration) -> (usize, usize) {
        let (began, mut rounds, mut fewest) = (Instant::now(), 0, usize::MAX);
        while began.elapsed() < duration || rounds == 0 {
            let cordoned = Instant::now();
            cluster.sim.cordon(NODE);
            // The balancer's answers count until the last time that `told` was false.
            let mut not_yet = cordoned;
            loop {
                let asked = Instant::now();
                match told(agent) {
                    Some(true) => break,
                    _ => not_yet = asked,
                }
                assert!(cordoned.elapsed() < PATIENCE, "told never comes");
                thread::sleep(Duration::from_millis(50));
            }
            fewest = fewest.min(self.heard(cordoned, not_yet));
            rounds += 1;
            cluster.sim.uncordon(NODE);
            thread::sleep(Duration::from_secs(4));
        }
        (fewest, rounds)
    }
}

/// Returns true if `told` has never been true before the balancer could act on it.
pub(super) fn holds((fewest, _): (usize, usize)) -> bool {
    fewest >= FALL
}

fn ask(to: SocketAddr) -> io::Result<u16> {
    let mut stream = connect_from(address_of(1), to)?;
    stream.write_all(Port::of_agent(to).question().as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
