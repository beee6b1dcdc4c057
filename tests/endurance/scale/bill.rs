//! The load of a whole cluster's agents on the API server, calculated from one agent's figures, beside agents
//! that send the API server a request for each probe.

use super::cost::Cost;
use std::fmt::Write as _;

const CLUSTERS: [u32; 4] = [100, 1_000, 5_000, 15_000];
/// A pair of balancers, each of which probes each node twice a second.
const PROBES_A_SECOND: f64 = 4.0;
/// A kubelet renews its Lease every 10 s, and posts its status every 5 min if nothing changes.
const RENEWALS: f64 = 0.1;
const HEARTBEATS: f64 = 1.0 / 300.0;
/// Two watches, each with a bookmark a minute (some 400 bytes with the frames around it). They resume every
/// 400 to 1,200 s, which is 4.9 times an hour.
const WATCHES: f64 = 2.0;
const BOOKMARKS: f64 = WATCHES / 60.0;
const BOOKMARK_BYTES: f64 = 400.0;
const ROTATIONS: f64 = WATCHES * 4.9 / 3600.0;
/// Consistency checks: one some 89 s after the last, regardless of other events of the Node.
const QUESTIONS: f64 = 40.0 / 3600.0;
const QUESTION_BYTES: f64 = 1_000.0;

/// Returns the table.
pub(crate) fn table(cost: &Cost) -> String {
    let bytes = RENEWALS * cost.lease_event as f64
        + HEARTBEATS * cost.node_event as f64
        + BOOKMARKS * BOOKMARK_BYTES
        + ROTATIONS * BOOKMARK_BYTES
        + QUESTIONS * QUESTION_BYTES;
    let requests = (ROTATIONS + QUESTIONS) * 60.0;
    let mut text = format!(
        "  one agent: {bytes:.0} bytes a second, {requests:.2} requests a minute; polling at {PROBES_A_SECOND} probes a \
         second: {:.0} bytes a second, {:.0} requests a minute\n\n",
        PROBES_A_SECOND * cost.get as f64,
        PROBES_A_SECOND * 60.0
    );
    let _ = writeln!(
        text,
        "  {:>7} {:>12} {:>8} {:>12} {:>13} | {:>14} {:>14}",
        "nodes", "connections", "watches", "MB a second", "requests/min", "polling: MB/s", "requests/min"
    );
    for nodes in CLUSTERS {
        let many = f64::from(nodes);
        let _ = writeln!(
            text,
            "  {nodes:>7} {nodes:>12} {:>8} {:>12.2} {:>13.0} | {:>14.1} {:>14.0}",
            many * WATCHES,
            many * bytes / 1e6,
            many * requests,
            many * PROBES_A_SECOND * cost.get as f64 / 1e6,
            many * PROBES_A_SECOND * 60.0
        );
    }
    text
}
