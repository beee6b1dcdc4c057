//! Faulty answers of the API server.

use super::connections::REPLACED;
use super::scene::{Api, CORDONED, FRESH, STALE, Scene, cluster, restarts};
use super::table::Row;
use nodegate_kube_sim::{Effect, Fault, FaultScope};
use nodegate_testbed::until;
use std::time::{Duration, Instant};

pub(crate) fn history_compacted_under_an_open_watch() -> Row {
    let mut scene = Scene::patient();
    scene.fault(|scene| scene.cluster.sim.compact(true));
    scene.restarts("expired");
    scene.lost_watch_is_logged_once();
    scene.watches_again();
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}

pub(crate) fn storm_of_429() -> Row {
    storm(&[429], 4.0, "throttled", 1)
}

/// Answers with 5xx. Another server behind the address may be healthy, so the agent tries another connection,
/// but not each time.
pub(crate) fn storm_of_5xx() -> Row {
    storm(&[500, 503, 504], 2.0, "server-error", 2)
}

/// Refuses everything with each of the codes, `times` times each. The agent must not open a storm of new
/// connections.
fn storm(codes: &[u16], times: f64, reason: &str, connections: u64) -> Row {
    let mut scene = Scene::start();
    let mut raging = scene.fault(|scene| {
        let raging = rage(scene, codes[0]);
        scene.cluster.sim.reset_connections();
        raging
    });
    scene.fails_open();
    for &code in codes {
        scene.cluster.sim.faults().remove(raging);
        raging = rage(&scene, code);
        let refused = format!(r#"nodegate_api_requests_total{{verb="list",code="{code}"}}"#);
        until("refused lists", || scene.agent.metric(&refused).filter(|count| *count >= times));
    }
    let accepted = scene.cluster.sim.counters().read().connections_accepted;
    assert!(accepted <= connections, "{accepted} connections in the storm, of {connections}");
    scene.restarts(reason);
    scene.heal(|scene| scene.cluster.sim.faults().remove(raging));
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

fn rage(scene: &Scene, code: u16) -> u64 {
    scene.cluster.sim.faults().add(Effect::Status { code, retry_after: 1 }.everywhere())
}

/// Closes each watch at once. An accepted watch proves that the cache is current, but the agent must not
/// flood the API server with watches.
pub(crate) fn watches_closed_at_once_in_a_loop() -> Row {
    let mut scene = Scene::patient();
    let closing = scene.fault(|scene| {
        let closing = scene.cluster.sim.faults().add(Effect::CloseWatch.everywhere());
        scene.cluster.sim.close_watches(None);
        closing
    });
    let began = Instant::now();
    scene.restarts_often("closed-early", 3.0);
    let (requests, seconds) = (scene.cluster.requests(), began.elapsed().as_secs());
    assert!(requests <= 4 * (seconds + 2), "{requests} requests in {seconds} s");
    scene.heal(|scene| scene.cluster.sim.faults().remove(closing));
    scene.watches_again();
    scene.goes_on();
    scene.row(&[FRESH])
}

fn next_node_event(effect: Effect) -> Fault {
    effect.on(FaultScope::all().resources(&["nodes"]).verbs(&["watch"]))
}

pub(crate) fn malformed_watch_events() -> Row {
    let scene = broken_events(Effect::Malformed);
    assert!(restarts(&scene.agent, "malformed") >= 1.0);
    scene.row(&[FRESH, CORDONED, FRESH])
}

pub(crate) fn watch_cut_in_mid_event() -> Row {
    broken_events(Effect::CutEvent).row(&[FRESH, CORDONED, FRESH])
}

/// Breaks the next event; the next list has its content.
fn broken_events(effect: Effect) -> Scene {
    let mut scene = Scene::patient();
    let broken = scene.fault(|scene| {
        let broken = scene.cluster.sim.faults().add(next_node_event(effect));
        scene.cluster.cordon();
        broken
    });
    scene.notices(CORDONED, REPLACED);
    scene.heal(|scene| {
        scene.cluster.sim.faults().remove(broken);
        scene.cluster.uncordon();
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene
}

pub(crate) fn malformed_lists() -> Row {
    let mut scene = Scene::start();
    let broken = scene.fault(|scene| {
        let broken = scene.cluster.sim.faults().add(Effect::Malformed.everywhere());
        scene.cluster.sim.reset_connections();
        broken
    });
    scene.fails_open();
    scene.restarts("malformed");
    scene.heal(|scene| scene.cluster.sim.faults().remove(broken));
    scene.lost_watch_is_logged_once();
    scene.recovers(FRESH);
    scene.row(&[FRESH, STALE, FRESH])
}

/// The number of probes in more than five seconds. A watch that lasts that long is replaced without a pause.
pub(crate) const LASTING: usize = 300;

/// Makes all watches unresponsive, while the connection works and new watches would, too: only a consistency
/// check detects it.
pub(crate) fn all_watches_unresponsive() -> Row {
    let mut scene = Scene::with(cluster(), &["--stale-after=10s"]);
    scene.prober.wait(LASTING);
    let unresponsive = scene.fault(|scene| {
        let unresponsive =
            scene.cluster.sim.faults().add(Effect::LoseEvents { bookmarks: false }.everywhere());
        scene.cluster.cordon();
        unresponsive
    });
    scene.notices(CORDONED, Duration::from_secs(11));
    scene.restarts("unresponsive");
    scene.logged_once("the watch missed a change that the API server has");
    scene.heal(|scene| {
        scene.cluster.sim.faults().remove(unresponsive);
        scene.cluster.sim.close_watches(None);
        scene.cluster.uncordon();
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH, CORDONED, FRESH])
}

/// Makes the Node's watch unresponsive while the Lease's heartbeats continue: only the overdue bookmark,
/// after 70 s, shows it.
pub(crate) fn node_watch_unresponsive_beside_a_live_lease() -> Row {
    let mut scene = Scene::patient();
    let unresponsive = scene.fault(|scene| {
        let unresponsive =
            Effect::LoseEvents { bookmarks: false }.on(FaultScope::all().resources(&["nodes"]));
        let unresponsive = scene.cluster.sim.faults().add(unresponsive);
        scene.cluster.cordon();
        unresponsive
    });
    scene.notices(CORDONED, Duration::from_secs(73));
    scene.restarts("unresponsive");
    scene.heal(|scene| {
        scene.cluster.sim.faults().remove(unresponsive);
        scene.cluster.sim.close_watches(None);
        scene.cluster.uncordon();
    });
    scene.never_stale();
    scene.recovers(FRESH);
    scene.row(&[FRESH, CORDONED, FRESH])
}
