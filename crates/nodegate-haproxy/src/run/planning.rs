//! The loop that plans after each change of the cluster.

use crate::plan::planner::plan;
use crate::plan::removal_limit::RemovalLimit;
use crate::run::known_file::KnownFile;
use crate::run::report::{Lasting, NodeLog, Reported};
use crate::run::shared::Shared;
use crate::watch::Observed;
use crate::watch::life::Life;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;

/// The time after which an outage of the API server is logged.
const OUTAGE: Duration = Duration::from_secs(15);

/// Runs forever.
pub(crate) async fn run(shared: Arc<Shared>, observer: Sender<Observed>, life: Arc<Life>) {
    let (policy, lists) = (&shared.setup.policy, shared.setup.scope.lists());
    let mut observed = observer.subscribe();
    let mut file = KnownFile::new(&shared.setup);
    let mut limit = RemovalLimit::new(policy, file.load());
    let mut is_saved = true;
    let mut reported = Reported::default();
    let mut outage = Lasting::new(
        "can't watch the API server; HAProxy keeps its last configuration",
        "the API server answers again",
    );
    let mut node_log = NodeLog::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                match life.closed_for() {
                    None => outage.end(),
                    Some(time) if time >= OUTAGE => outage.tell("its watches have been closed for more than 15 s"),
                    Some(_) => {}
                }
                if !is_saved {
                    is_saved = file.save(limit.accepted()).await;
                }
                continue;
            }
        }
        let now = observed.borrow_and_update().clone();
        if !lists.iter().all(|list| now.synced.contains(list)) {
            continue;
        }
        is_saved = false;
        let (facts, retained) = limit.accept(&now.facts, |key| now.deleted.contains(key));
        // A deletion that has been accepted need not be remembered. Receivers need not know of this change.
        observer.send_if_modified(|observed| {
            let facts = &observed.facts;
            observed.deleted.retain(|key| {
                limit.accepted().services.contains_key(key) && !facts.services.contains_key(key)
            });
            false
        });
        let desired = plan(&facts, policy);
        reported.problems(&desired.problems);
        node_log.tell(&desired, &facts);
        shared.metrics.planned(&desired, &facts, &retained);
        reported.retained(retained);
        shared.desired.send_if_modified(|before| {
            let is_news = before.as_deref() != Some(&desired);
            if is_news {
                *before = Some(Arc::new(desired));
            }
            is_news
        });
    }
}
