//! Agents replaced under load; tests/agent/upgrade.rs has a few replacements of each kind.

use super::scene::FRESH;
use super::table::Row;
use nodegate_testbed::network::cable::{Cable, NODE_IP};
use nodegate_testbed::prober::{Prober, agent_check, health, trail};
use nodegate_testbed::programs;
use nodegate_testbed::rollout::Rollout;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const REPLACEMENTS: usize = 50;
const PROBES_A_SECOND: u32 = 200;
const WORKERS: u32 = 8;

pub(crate) fn fifty_agent_replacements() -> Row {
    replace(Ipv4Addr::LOCALHOST.into(), |start| start())
}

/// Replaces agents 5 ms away, so that packets of a handshake are in flight at any time.
pub(crate) fn fifty_agent_replacements_from_afar() -> Row {
    let cable = Cable::start(Duration::from_millis(5));
    cable.on_node(|| replace(NODE_IP.into(), |start| cable.on_balancer(start)))
}

fn replace(node: IpAddr, there: impl Fn(&(dyn Fn() -> [Prober; 2] + Sync)) -> [Prober; 2]) -> Row {
    let mut rollout = Rollout::start(Ipv4Addr::UNSPECIFIED.into(), &programs::agent());
    let (http, line) = (rollout.http(node), rollout.agent_check(node));
    let mut probers = there(&|| {
        [
            Prober::start(http, health, PROBES_A_SECOND, WORKERS),
            Prober::start(line, agent_check, PROBES_A_SECOND / 10, 1),
        ]
    });
    probers[0].wait(100);
    rollout.cluster.sim.counters().reset();
    for _ in 0..REPLACEMENTS {
        rollout.replace(&programs::agent());
    }
    probers[0].wait(100);
    probers.iter_mut().for_each(Prober::stop);
    let expected = [FRESH, "200 up ready"];
    for (prober, expected) in probers.iter().zip(expected) {
        assert_eq!(prober.counts().into_keys().collect::<Vec<_>>(), [expected], "{:?}", prober.counts());
    }
    Row {
        trail: trail(&probers[0].probes()),
        probes: probers.iter().map(|prober| prober.probes().len()).sum(),
        requests: Some(rollout.cluster.sim.counters().read().total()),
        ..Row::default()
    }
}
