//! Agents that are replaced under load balancers' probes, each on a new connection, as in a surge rollout: no
//! probe fails.

use nodegate_testbed::network::cable::{Cable, NODE_IP};
use nodegate_testbed::prober::{Ask, Prober, agent_check, health};
use nodegate_testbed::rollout::Rollout;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DELAY: Duration = Duration::from_millis(5);
const PROBES_A_SECOND: u32 = 200;

fn probed(targets: &[(SocketAddr, Ask)]) -> Vec<Prober> {
    let each = PROBES_A_SECOND / u32::try_from(targets.len()).unwrap();
    let probers: Vec<Prober> =
        targets.iter().map(|(address, ask)| Prober::start(*address, *ask, each, 4)).collect();
    for prober in &probers {
        prober.wait(10);
    }
    probers
}

/// Asserts that every probe had one of these answers.
fn all_saw(probers: Vec<Prober>, answers: &[&str]) {
    for mut prober in probers {
        prober.wait(10);
        prober.stop();
        let counts = prober.counts();
        eprintln!("{counts:?}");
        assert!(counts.keys().all(|saw| answers.contains(&saw.as_str())), "{counts:?}");
    }
}

/// Replaces agents, and undoes rollouts: then the agent that ends is the newer one, to which the kernel gives the
/// connections.
#[test]
fn no_probe_fails_while_agents_are_replaced() {
    let mut rollout = Rollout::start(V4);
    let probers = probed(&[(rollout.http(V4), health), (rollout.agent_check(V4), agent_check)]);
    for _ in 0..4 {
        rollout.replace();
        rollout.undo();
    }
    all_saw(probers, &["200 fresh", "200 up ready"]);
}

/// Shows that a replacement loses no handshake. With 5 ms to the node and 5 ms back, two handshakes are in
/// flight at any time.
#[test]
fn no_handshake_in_flight_is_lost_while_agents_are_replaced() {
    let cable = Cable::start(DELAY);
    cable.on_node(|| {
        let mut rollout = Rollout::start(Ipv4Addr::UNSPECIFIED.into());
        let probers = cable.on_balancer(|| probed(&[(rollout.http(NODE_IP.into()), health)]));
        for _ in 0..5 {
            rollout.replace();
            rollout.undo();
        }
        all_saw(probers, &["200 fresh"]);
    });
}
