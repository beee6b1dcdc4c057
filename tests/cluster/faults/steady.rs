//! Costs that the protection against faults must not have without a fault.

use super::answers::LASTING;
use super::scene::{Scene, cluster};
use nodegate_testbed::until;

/// Shows that both watches share one connection, so that a heartbeat on the Lease proves the Node's watch
/// works.
#[test]
fn both_watches_share_a_connection_also_after_a_resume() {
    let mut scene = Scene::with(cluster(), &[]);
    let sim = scene.cluster.sim.clone();
    assert_eq!(sim.counters().read().connections, 1);
    // Watches that have lived for a while, five seconds, resume without a log line.
    scene.prober.wait(LASTING);
    for resource in ["nodes", "leases"] {
        sim.close_watches(Some(resource));
        until("the watch to be resumed", || (sim.counters().read().watches == 2).then_some(()));
    }
    assert_eq!(sim.counters().read().connections, 1);
    assert_eq!(scene.agent.logged("watch failed"), 0, "{}", scene.agent.log_text());
    scene.goes_on();
}
