//! One look at the agents of many nodes, for the table and for drains.

use super::row::Row;
use crate::agents::AT_ONCE;
use crate::cluster::{Cluster, FleetNode};
use crate::gate::Gate;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

/// The nodes, the most urgent first, and the eviction gate, if there is one.
pub(super) struct Fleet {
    pub(super) rows: Vec<Row>,
    pub(super) gate: Option<Gate>,
}

/// Queries all agents, and sorts their answers by urgency, then by name.
pub(crate) async fn look(cluster: &Cluster, nodes: &[FleetNode]) -> Vec<Row> {
    let rows = nodes.iter().map(async |node| Row::new(node, cluster.ask(node).await));
    let mut rows: Vec<_> = stream::iter(rows).buffer_unordered(AT_ONCE).collect().await;
    rows.sort_by_cached_key(|row| (row.urgency(), row.node.name.clone()));
    rows
}

impl Fleet {
    pub(super) async fn look(cluster: &Cluster, nodes: &[FleetNode]) -> Self {
        let (rows, gate) = tokio::join!(look(cluster, nodes), Gate::glance(cluster));
        Self { rows, gate }
    }

    pub(super) fn exit_code(&self) -> u8 {
        let worst = self.rows.iter().map(Row::exit_code).max().unwrap_or_default();
        if self.are_all_labelled() { worst.max(1) } else { worst }
    }

    /// Returns true if several nodes are shown, and the exclusion label keeps all of them out: then it is no design.
    pub(super) fn are_all_labelled(&self) -> bool {
        self.rows.len() > 1 && self.rows.iter().all(Row::is_out_by_label)
    }

    pub(super) fn json(&self) -> Value {
        json!({"nodes": self.rows.iter().map(Row::json).collect::<Vec<_>>(), "eviction_gate": self.gate})
    }
}
