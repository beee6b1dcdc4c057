//! Costs that the protection against faults must not have without a fault.

use super::answers::LASTING;
use super::scene::{STALE_AFTER_ARG, Scene, cluster};
use nodegate_testbed::{Cluster, until};
use std::time::Duration;

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

/// Shows that a Lease is not silent as long as it is renewed in time. With a short `--stale-after`,
/// consistency checks fall between any two renewals.
#[test]
fn a_lease_that_is_renewed_in_time_is_not_taken_for_silent() {
    let cluster = Cluster::with(|builder| builder.kubelets(true).lease_interval(Duration::from_secs(5)));
    let scene = Scene::with(cluster, &[STALE_AFTER_ARG]);
    let asked = r#"nodegate_api_requests_total{verb="get",code="200"}"#;
    until("questions", || scene.agent.metric(asked).filter(|count| *count >= 3.0));
    for resource in ["nodes", "leases"] {
        let unresponsive =
            format!(r#"nodegate_watch_restarts_total{{resource="{resource}",reason="unresponsive"}}"#);
        assert_eq!(scene.agent.metric(&unresponsive), Some(0.0), "{}", scene.agent.log_text());
    }
}
