//! Properties of the API server that change under the agent: its history, its connection.

use super::answers::LASTING;
use super::scene::{Api, CORDONED, FRESH, Scene, cluster};
use super::table::Row;
use nodegate_kube_sim::Effect;
use std::time::{Duration, Instant};

/// The default of `--stale-after`, and a second.
const NOTICED: Duration = Duration::from_secs(16);
/// The maximum of open connections: one that the agent leaves stays open until its watches have ended.
const CONNECTIONS: u64 = 6;

/// Restores etcd to a state before the cordon. The API server accepts a watch from the newer version, but
/// sends nothing: that version does not exist yet.
pub(crate) fn etcd_restored_to_an_older_revision() -> Row {
    let mut scene = Scene::patient();
    let sim = scene.cluster.sim.clone();
    let (backup, now) = (sim.back_up_etcd(), Instant::now());
    scene.cluster.cordon();
    scene.first(CORDONED, now);
    scene.fault(|scene| {
        scene.cluster.wait(async {
            sim.kill().await;
            sim.restore_etcd(&backup);
            sim.restart(false).await.unwrap();
        });
    });
    scene.notices(FRESH, NOTICED);
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH, CORDONED, FRESH])
}

/// Sends GOAWAY after every answer, fifty times as often as the maximum of `--goaway-chance`.
pub(crate) fn goaway_after_every_answer() -> Row {
    // Long enough for each watch to live for more than 5 s before the consistency check moves it. A watch
    // that ends sooner counts as failed, and backs off for up to 10 s.
    let mut scene = Scene::with(cluster(), &["--stale-after=12s"]);
    let going = scene.fault(|scene| {
        let going = scene.cluster.sim.faults().add(Effect::GoAway.everywhere());
        scene.cluster.sim.close_watches(None);
        going
    });
    scene.prober.wait(2 * LASTING);
    let counted = scene.cluster.sim.counters().read();
    let seconds = LASTING as u64 / 25;
    assert!(counted.total() <= 4 * (seconds + 2), "{} requests in {seconds} s", counted.total());
    assert!(counted.connections_max <= CONNECTIONS, "{} connections", counted.connections_max);
    scene.heal(|scene| scene.cluster.sim.faults().remove(going));
    scene.watches_again();
    scene.never_stale();
    scene.goes_on();
    scene.row(&[FRESH])
}
