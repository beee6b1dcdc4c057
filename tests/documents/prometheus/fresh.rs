//! All metrics of a fresh agent, against a golden file.

use super::check_metrics;
use nodegate_testbed::{NODE, Scenario, until};
use std::time::Duration;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/documents/prometheus/metrics.txt");

/// Removes values and version, and sorts the series of a family: prometheus-client keeps them in a hash map.
fn masked(text: &str) -> String {
    let mut masked = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('#') {
            masked.push(line.to_owned());
            continue;
        }
        let mut family = vec![line];
        family.extend(std::iter::from_fn(|| lines.next_if(|line| !line.starts_with('#'))));
        family.sort_unstable();
        // The test's own requests may have made it a regular prober.
        let family = family.iter().filter(|line| !line.contains("{prober="));
        let names = family.filter_map(|line| line.rsplit_once(' '));
        masked.extend(names.map(|(name, _)| name.replace(env!("CARGO_PKG_VERSION"), "VERSION")));
    }
    masked.join("\n") + "\n"
}

#[test]
fn the_metrics_of_a_fresh_agent_match_the_golden_file() {
    // Nothing happens but the start: no renewal of the Lease, no consistency check.
    let long = Duration::from_hours(1);
    let cluster = Scenario::with(|builder| builder.kubelets(true).lease_interval(long));
    until("the Lease", || cluster.sim.get("leases", "kube-node-lease", NODE));
    let args = [
        "--background-checks=kubelet",
        "--stale-after=10m",
        "--check-settings=kubelet:interval=1h",
        "--host-signals=/nowhere",
    ];
    let agent = cluster.ready_agent(&args);
    until("the kubelet's check to have run", || {
        agent.metric("nodegate_check_passed{check=\"kubelet\",configured=\"true\"}")
    });
    until("the Lease's watch", || {
        agent.metric("nodegate_watch_events_total{resource=\"leases\",type=\"init\"}")
    });
    until("a watch to be accepted", || {
        agent.metric("nodegate_api_requests_total{verb=\"watch\",code=\"200\"}")
    });
    let text = agent.get("/metrics").body;
    check_metrics(&text);
    let found = masked(&text).replace(&cluster.sim.address().to_string(), "ADDRESS");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert_eq!(found, golden, "if that is meant: UPDATE_GOLDEN=1 cargo test --test documents fresh");
}
