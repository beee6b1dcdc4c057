//! A forger at the balancer's own address, who asks what the balancer asks.

use super::attacks::{QUESTION, address_of, connect_from};
use super::told;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::{Agent, Cluster, NODE};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// As many answers take a server out.
const FALL: usize = 3;
/// How long a cordon, or its end, may take to be told.
const PATIENCE: Duration = Duration::from_secs(20);

/// A balancer that asks once a second from the address of the first stranger, on a new connection each time.
pub(super) struct SlowBalancer(Prober);

impl SlowBalancer {
    pub(super) fn start(to: SocketAddr) -> Self {
        let ask = |to| match ask(to) {
            Ok(status) => Saw::Answer(status, String::new()),
            Err(error) => Saw::Failed(error.to_string()),
        };
        Self(Prober::start(to, ask, 1, 1))
    }

    /// How many answers have taken the node out between these two instants.
    fn heard(&self, from: Instant, until: Instant) -> usize {
        let probes = self.0.probes().into_iter();
        let between = probes.filter(|probe| probe.sent >= from && probe.answered <= until);
        between.filter(|probe| matches!(probe.saw, Saw::Answer(503, _))).count()
    }

    /// Cordons the node again and again, for so long. Returns the smallest number of its answers after which `told` was true, and
    /// of how many cordons.
    pub(super) fn told_after(&self, agent: &Agent, cluster: &Cluster, duration: Duration) -> (usize, usize) {
        let (began, mut rounds, mut fewest) = (Instant::now(), 0, usize::MAX);
        while began.elapsed() < duration || rounds == 0 {
            let cordoned = Instant::now();
            cluster.sim.cordon(NODE);
            // It counts what the balancer had heard when `told` was seen to be false for the last time.
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
    stream.write_all(QUESTION.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
