//! The loop that plans after each change of the cluster.

use crate::plan::{RemovalLimit, plan};
use crate::run::known_file::KnownFile;
use crate::run::report::{NodeLog, Reported};
use crate::run::shared::Shared;
use crate::watch::Observed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Sender;

pub(crate) async fn run(shared: Arc<Shared>, observer: Sender<Observed>) {
    let policy = &shared.setup.policy;
    let mut observed = observer.subscribe();
    let mut file = KnownFile::new(&shared.setup);
    let mut limit = RemovalLimit::new(policy, file.load());
    let mut is_saved = true;
    let mut reported = Reported::default();
    let mut node_log = NodeLog::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                if !is_saved {
                    is_saved = file.save(&limit.accepted);
                }
                continue;
            }
        }
        let now = observed.borrow_and_update().clone();
        let Some(facts) = now.facts() else { continue };
        is_saved = false;
        let (facts, retained) = limit.accept(&facts, |key| now.deleted.contains(key));
        // A deletion that has been accepted need not be remembered. Receivers need not know of this change.
        observer.send_if_modified(|observed| {
            let mut deleted = std::mem::take(&mut observed.deleted);
            deleted.retain(|key| limit.accepted.services.contains_key(key) && !observed.has(key));
            observed.deleted = deleted;
            false
        });
        let desired = plan(&facts, policy);
        reported.problems(&desired.problems);
        node_log.tell(&desired);
        shared.metrics.planned(&desired, &retained);
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
