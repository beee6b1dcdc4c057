//! Faults of the API server and of the connections to it.

use super::scene::{CORDONED, FRESH, STALE, STALE_AFTER_ARG, Scene, cluster};
use super::simulator::Simulator;
use super::table::Row;
use nodegate_testbed::{Agent, NODE, needs_root};
use std::time::Duration;

/// The time to detect and replace a connection whose packets vanish: 4 s for the kernel, and the first
/// backoff.
pub(crate) const REPLACED: Duration = Duration::from_secs(6);

pub(crate) fn api_server_killed_and_restarted() -> Row {
    let mut scene = Scene::start();
    let address = scene.cluster.sim.address();
    let up = format!(r#"nodegate_api_server_up{{address="{address}"}}"#);
    assert_eq!(scene.agent.metric(&up), Some(1.0));
    scene.fault(|scene| scene.cluster.wait(scene.cluster.sim.kill()));
    scene.fails_open();
    assert_eq!(scene.agent.metric(&up), Some(0.0));
    let lost = |line: &&str| {
        line.contains("watch failed; retrying") && line.contains(&format!(r#"server="{address}""#))
    };
    assert_eq!(scene.agent.log_text().lines().filter(lost).count(), 1, "{}", scene.agent.log_text());
    scene.cluster.sim.cordon(NODE);
    scene.heal(|scene| scene.cluster.wait(scene.cluster.sim.restart(false)).unwrap());
    scene.restarts("disconnected");
    scene.lost_watch_is_logged_once();
    scene.recovers(CORDONED);
    scene.row(&[FRESH, STALE, CORDONED])
}

pub(crate) fn api_server_down_at_agent_start() -> Row {
    let cluster = cluster();
    cluster.wait(cluster.sim.kill());
    let agent = cluster.agent(&[STALE_AFTER_ARG]);
    let mut scene = Scene::probed(cluster, agent);
    scene.fault(|scene| {
        scene.cluster.sim.cordon(NODE);
    });
    scene.fails_open();
    scene.logged_once("no answer from the API server yet");
    scene.heal(|scene| scene.cluster.wait(scene.cluster.sim.restart(false)).unwrap());
    scene.recovers(CORDONED);
    scene.row(&[STALE, CORDONED])
}

pub(crate) fn api_server_frozen() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| scene.cluster.sim.freeze());
    scene.fails_open();
    scene.heal(|scene| scene.cluster.sim.heal());
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

/// Stops the simulator, a process of its own, with SIGSTOP.
pub(crate) fn api_server_stopped() -> Row {
    let simulator = Simulator::start(NODE);
    let agent = Agent::start(NODE, &simulator.kubeconfig(), &[STALE_AFTER_ARG]);
    let mut scene = Scene::of(simulator, agent);
    scene.fault(|scene| scene.cluster.signal("STOP"));
    scene.fails_open();
    scene.heal(|scene| scene.cluster.signal("CONT"));
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

pub(crate) fn half_open() -> Row {
    half_open_in(Scene::with(cluster(), &[]))
}

fn half_open_in(mut scene: Scene) -> Row {
    needs_root("packets that the kernel drops");
    scene.fault(|scene| {
        scene.cluster.sim.half_open();
        scene.cluster.sim.cordon(NODE);
    });
    scene.notices(CORDONED, REPLACED);
    scene.restarts("disconnected");
    scene.lost_watch_is_logged_once();
    let open = scene.cluster.sim.counters().read().connections_max;
    assert!(open <= 3 + 2, "{open}: three of the agent's, and the dead ones");
    scene.heal(|scene| scene.cluster.sim.heal());
    scene.never_stale();
    scene.recovers(CORDONED);
    scene.row(&[FRESH, CORDONED])
}

pub(crate) fn connections_blackholed() -> Row {
    needs_root("packets that the kernel drops");
    let mut scene = Scene::start();
    scene.fault(|scene| {
        scene.cluster.sim.half_open();
        scene.cluster.sim.blackhole_new().unwrap();
    });
    scene.fails_open();
    // The first is the end of the old connection; then the agent gives up an attempt to connect, too.
    scene.restarts_often("disconnected", 2.0);
    scene.heal(|scene| scene.cluster.sim.heal());
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

pub(crate) fn connections_accepted_and_never_served() -> Row {
    let mut scene = Scene::start();
    scene.fault(|scene| {
        scene.cluster.sim.ignore_new();
        scene.cluster.sim.reset_connections();
    });
    scene.fails_open();
    scene.restarts("timeout");
    scene.heal(|scene| scene.cluster.sim.heal());
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}
