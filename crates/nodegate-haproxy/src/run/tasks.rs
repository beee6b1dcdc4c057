//! The program as a whole: it watches, plans, applies and sets server states.

use crate::plan::guard::Guard;
use crate::plan::planner::plan;
use crate::run::health::LoopHealth;
use crate::run::http::{Pages, serve};
use crate::run::memory::MemoryFile;
use crate::run::metrics::HaproxyMetrics;
use crate::run::node_log::NodeLog;
use crate::run::pause::PauseLog;
use crate::run::publisher::Publisher;
use crate::run::report::{Outage, Reported};
use crate::run::shared::{Setup, Shared};
use crate::run::{states, structure};
use crate::watch;
use crate::watch::counts::Counts;
use crate::watch::life::Life;
use crate::watch::observed::Observed;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::sync::{Notify, mpsc};

/// The longest time for the release of the Lease at the end.
const RELEASE: Duration = Duration::from_secs(3);

/// Runs until `shutdown` resolves.
pub async fn run(setup: Setup, listener: Option<TcpListener>, shutdown: impl Future<Output = ()>) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %setup.tools.file.path().display(),
        template = ?setup.tools.template,
        listen = listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(tracing::field::display),
        "started"
    );
    let lists = setup.scope.lists();
    let life = Life::new(&lists);
    let metrics = Arc::new(HaproxyMetrics::default());
    let health = Arc::new(LoopHealth::new());
    let (observed, observations) = channel(Observed::default());
    let (save, saves) = mpsc::channel(1);
    let (desired, _) = channel(None);
    let (layout, _) = channel(None);
    let (left_out, _) = channel(Vec::new());
    let counts = Arc::new(Counts::default());
    let pages = Pages { health: health.clone(), registry: metrics.registry(&counts, life.clone()) };
    let reload = Notify::new();
    let shared = Arc::new(Shared { setup, metrics, health, desired, layout, left_out, reload, save });
    let publisher = Publisher::of(&shared, &counts);
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(listener) = listener {
        tasks.spawn(serve(listener, Arc::new(pages)));
    }
    tasks.spawn(structure::run(shared.clone()));
    tasks.spawn(states::run(shared.clone(), saves));
    tasks.spawn(plan_each_change(shared.clone(), (observed.clone(), observations), lists, life.clone()));
    let statuses = publisher.as_ref().map(Publisher::sink).unwrap_or_default();
    let lease = publisher.as_ref().map(|publisher| publisher.lease.clone());
    if let Some(publisher) = publisher {
        tasks.spawn(publisher.run());
    }
    tasks.spawn(watch::run(shared.setup.scope.clone(), observed, statuses, life, counts));
    tokio::select! {
        () = shutdown => tracing::info!("shutting down; HAProxy keeps its last configuration"),
        // No task ends by itself.
        ended = tasks.join_next() => tracing::error!(?ended, "a task has ended"),
    }
    tasks.shutdown().await;
    if let Some(lease) = lease {
        // Nothing writes any more, so another process may.
        let _ = tokio::time::timeout(RELEASE, lease.release()).await;
    }
}

/// Plans again after each change of the observed facts.
async fn plan_each_change(
    shared: Arc<Shared>,
    (observer, mut observed): (Sender<Observed>, Receiver<Observed>),
    lists: Vec<String>,
    life: Arc<Life>,
) {
    let policy = &shared.setup.tools.policy;
    let mut memory = MemoryFile::new(&shared.setup);
    let (known, mut holds) = memory.load();
    let mut guard = Guard::new(policy, known);
    let mut unsaved = false;
    let mut reported = Reported::default();
    let mut outage = Outage::default();
    let mut pause = PauseLog::default();
    let mut node_log = NodeLog::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                outage.look(&life);
                pause.look(&shared.setup.pause, &shared.metrics);
                if unsaved {
                    unsaved = !memory.save(guard.accepted(), &holds, &shared.metrics).await;
                }
                if !holds.expire(seconds()) {
                    continue;
                }
            }
        }
        let now = observed.borrow_and_update().clone();
        if !lists.iter().all(|list| now.synced.contains(list)) {
            continue;
        }
        unsaved = true;
        let (mut facts, held) = guard.accept(&now.facts, &|key| now.deleted.contains(key));
        // Receivers need not know of this change.
        observer.send_if_modified(|observed| {
            observed.keep_deleted(|key| guard.holds(key));
            false
        });
        holds.expire(seconds());
        facts.held_ports = holds.reserved(&facts);
        let desired = plan(&facts, policy);
        holds.learn(&desired, &facts, seconds());
        reported.report(&desired.problems, &held);
        node_log.tell(&desired, &facts);
        shared.metrics.planned(&desired, &facts, &held);
        shared.desired.send_replace(Some(Arc::new(desired)));
    }
}

/// Returns the seconds since 1970.
pub(crate) fn seconds() -> i64 {
    let since = nodegate_clock::wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
