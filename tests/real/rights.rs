//! The agent's requests to the API servers, from their audit logs.

use crate::daemonset::Installed;
use nodegate_testbed::http;
use nodegate_testbed::real_cluster::{RealCluster, seen};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_mins(4);
/// The requests per hour that the contract allows with Leases.
const AN_HOUR: u32 = 60;

/// Returns the requests of the agent's account since then: verb, resource and code, each once.
pub(crate) fn requests(cluster: &RealCluster, from: jiff::Timestamp) -> Vec<(String, u16)> {
    let mut all = BTreeMap::new();
    for server in ["a", "b"] {
        let file = cluster.directory().join(format!("log/audit-{server}.json"));
        let text = fs::read_to_string(&file).unwrap_or_default();
        // The last line may be incomplete.
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let word =
                |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
            let at: jiff::Timestamp = word("/requestReceivedTimestamp").parse().unwrap();
            if at < from {
                continue;
            }
            let code = event["responseStatus"]["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let what = format!("{} {}", word("/verb"), word("/objectRef/resource"));
            all.insert(word("/auditID"), (what, code.unwrap_or_default()));
        }
    }
    all.into_values().collect()
}

/// Returns the agent's requests in a window of time, the number of probes, and of stale answers among them.
fn watch(cluster: &RealCluster, agent: SocketAddr) -> (Vec<(String, u16)>, u32, u32) {
    let (from, began) = (jiff::Timestamp::now(), Instant::now());
    let (mut probes, mut stale) = (0, 0);
    while began.elapsed() < WINDOW {
        let reply = http::get(agent, "/health").unwrap();
        assert_eq!(reply.status, 200, "{}", reply.body);
        probes += 1;
        stale += u32::from(reply.is_stale());
        std::thread::sleep(Duration::from_millis(50));
    }
    (requests(cluster, from), probes, stale)
}

/// Only a real authorizer judges the RBAC rules, and only the audit log counts requests besides the agent.
#[test]
#[ignore = "make real-cluster-test"]
fn the_shipped_rbac_is_enough_and_requests_per_hour_are_bounded() {
    let cluster = RealCluster::take();
    let started = jiff::Timestamp::now();
    let installed = Installed::by_manifests(&cluster);
    // On a machine that others use, too, the API server may be late, and the agent stale or reconnecting.
    let mut attempts = std::iter::repeat_with(|| watch(&cluster, installed.address)).take(3);
    let is_quiet = |(requests, _, stale): &(Vec<(String, u16)>, u32, u32)| {
        *stale == 0 && requests.iter().all(|(_, code)| *code < 500)
    };
    let watched = attempts.find(is_quiet);
    let (requested, probes, _) = watched.expect("three windows were disturbed; end what else runs here");

    let all = requests(&cluster, started);
    let allowed = ["get nodes", "list nodes", "watch nodes", "list leases", "watch leases"];
    for (what, code) in &all {
        assert!(allowed.contains(&what.as_str()), "the agent has asked: {what}");
        assert!(!(400..500).contains(code), "{what} was answered {code}");
    }
    for what in ["watch nodes", "watch leases"] {
        assert!(all.iter().any(|(found, _)| found == what), "the audit log has no {what}: {all:?}");
    }
    let count = u32::try_from(requested.len()).unwrap();
    let windows = 3600 / u32::try_from(WINDOW.as_secs()).unwrap();
    // The window may begin and end anywhere between two requests.
    assert!(count <= AN_HOUR / windows + 1, "{count} requests in {WINDOW:?}: {requested:?}");
    let an_hour = format!("{} to {} an hour", count.saturating_sub(1) * windows, (count + 1) * windows);
    let sent = format!("{} requests since the start, all allowed", all.len());
    let sent = format!("{sent}; {count} in {WINDOW:?} of {probes} probes: {an_hour}");
    seen("RBAC as shipped, audit log", sent);
}
