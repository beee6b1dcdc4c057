//! Renders the fleet as JSON, for programs.

use super::row::Row;
use crate::agents::Way;
use crate::gate::Gate;
use nodegate_readiness::Verdict;
use serde_json::{Value, json};

/// Returns the whole fleet.
pub(super) fn document(rows: &[Row], gate: Option<&Gate>) -> Value {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    json!({
        "nodes": rows.iter().map(row).collect::<Vec<_>>(),
        "ready": count(Some(Verdict::Ready)),
        "draining": count(Some(Verdict::Draining)),
        "not_ready": count(Some(Verdict::NotReady)),
        "unknown": count(None),
        "out_by_design": rows.iter().filter(|row| row.is_out_by_design()).count(),
        "eviction_gate": gate,
    })
}

/// Returns a node with its whole `/status.json` as received. `null` means not known.
pub(super) fn row(row: &Row) -> Value {
    let status: Value = row
        .said
        .as_ref()
        .ok()
        .and_then(|answer| serde_json::from_slice(&answer.said.body).ok())
        .unwrap_or_default();
    let acknowledged = row.acknowledged();
    let way = match row.said.as_ref().map(|answer| &answer.way) {
        Ok(Way::Node(_)) => json!("node"),
        Ok(Way::Proxy { .. }) => json!("proxy"),
        Err(_) => Value::Null,
    };
    json!({
        "node": row.node.name,
        "address": row.node.address,
        "verdict": row.verdict(),
        "out_by_design": row.is_out_by_design(),
        "reason": row.status().and_then(|status| status.reason.as_ref()),
        "since_ms": row.since().and_then(Result::ok).map(|since| since.as_millis()),
        "stale": row.status().map(|status| status.cache.stale),
        "acknowledged": acknowledged.map(|(acknowledged, ..)| acknowledged),
        "probers": acknowledged.map(|(_, of, _)| of),
        "acknowledged_known": acknowledged.map(|(.., known)| known),
        "sessions": row.sessions(),
        "version": row.status().map(|status| &status.version),
        "via": way,
        "why": row.why(),
        "error": row.said.as_ref().err().map(|error| &error.detail),
        "status": status,
    })
}
