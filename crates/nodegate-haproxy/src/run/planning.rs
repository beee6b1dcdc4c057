//! The loop that plans after each change of the cluster.

use crate::plan::planner::plan;
use crate::plan::removal_limit::RemovalLimit;
use crate::run::known_file::KnownFile;
use crate::run::node_log::NodeLog;
use crate::run::report::{Outage, Reported};
use crate::run::shared::Shared;
use crate::watch::life::Life;
use crate::watch::observed::Observed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Receiver, Sender};

/// Runs forever.
pub(crate) async fn run(
    shared: Arc<Shared>,
    observer: Sender<Observed>,
    mut observed: Receiver<Observed>,
    life: Arc<Life>,
) {
    let (policy, lists) = (&shared.setup.policy, shared.setup.scope.lists());
    let mut file = KnownFile::new(&shared.setup);
    let mut limit = RemovalLimit::new(policy, file.load());
    let mut unsaved = false;
    let mut reported = Reported::default();
    let mut outage = Outage::default();
    let mut node_log = NodeLog::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                outage.look(&life);
                if unsaved {
                    unsaved = !file.save(limit.accepted(), &shared.metrics).await;
                }
                continue;
            }
        }
        let now = observed.borrow_and_update().clone();
        if !lists.iter().all(|list| now.synced.contains(list)) {
            continue;
        }
        unsaved = true;
        let (facts, retained) = limit.accept(&now.facts, &|key| now.deleted.contains(key));
        // Receivers need not know of this change.
        observer.send_if_modified(|observed| {
            observed.keep_deleted(|key| limit.holds(key));
            false
        });
        let desired = plan(&facts, policy);
        reported.report(&desired.problems, &retained);
        node_log.tell(&desired, &facts);
        shared.metrics.planned(&desired, &facts, &retained);
        shared.desired.send_replace(Some(Arc::new(desired)));
    }
}
