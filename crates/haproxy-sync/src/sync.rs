//! The program as a whole: watch, plan, apply, move.

use crate::applier::{Applied, Applier, ApplyError, Tools};
use crate::config_file::ConfigFile;
use crate::desired::{Desired, Problem};
use crate::guard::{Guard, Held};
use crate::health::{Health, Loop};
use crate::http::{Pages, serve};
use crate::layout::Layout;
use crate::life::Life;
use crate::metrics::Metrics;
use crate::mover::Mover;
use crate::observed::Observed;
use crate::plan::plan;
use crate::render::render;
use crate::watch::{self, Scope};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// A burst of changes is over after so much quiet.
const QUIET: Duration = Duration::from_millis(100);
/// A burst is not waited for longer than this.
const BURST: Duration = Duration::from_secs(1);
/// How often HAProxy is looked at.
const AUDIT: Duration = Duration::from_secs(5);
/// Waits between attempts that fail.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_mins(1);
/// An outage of the API server is told after this time, and every minute.
const OUTAGE: Duration = Duration::from_secs(15);
/// How long `--once` and `--print` wait for the API server.
const ONCE: Duration = Duration::from_mins(1);

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What is watched.
    pub scope: Scope,
    /// What it is applied with.
    pub tools: Tools,
}

/// Why the program could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The API server did not answer.
    #[error("no complete list of Nodes and Services within {} s", ONCE.as_secs())]
    NoFacts,
    /// The configuration was not taken.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The servers could not be moved.
    #[error(transparent)]
    Move(#[from] crate::mover::MoveError),
}

/// What the tasks share.
struct Shared {
    setup: Setup,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    desired: Sender<Option<Arc<Desired>>>,
    layout: Sender<Option<Arc<Layout>>>,
    /// HAProxy lacks what it should have.
    reload: Notify,
    /// Asks the mover to save the states, and waits until it has.
    save: mpsc::Sender<oneshot::Sender<()>>,
}

/// Runs until `shutdown` resolves.
pub async fn run(setup: Setup, listener: Option<TcpListener>, shutdown: impl Future<Output = ()>) {
    let lists = setup.scope.lists();
    let life = Life::new(&lists);
    let metrics = Arc::new(Metrics::default());
    let health = Arc::new(Health::new());
    let (observed, observations) = channel(Observed::default());
    let (save, saves) = mpsc::channel(1);
    let (desired, _) = channel(None);
    let (layout, _) = channel(None);
    let pages = Pages { health: health.clone(), registry: metrics.registry(life.clone()) };
    let shared = Arc::new(Shared { setup, metrics, health, desired, layout, reload: Notify::new(), save });
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(listener) = listener {
        tasks.spawn(serve(listener, Arc::new(pages)));
    }
    tasks.spawn(apply(shared.clone()));
    tasks.spawn(shift(shared.clone(), saves));
    tasks.spawn(consider(shared.clone(), observations, lists, life.clone()));
    tasks.spawn(watch::run(shared.setup.scope.clone(), observed, life, shared.metrics.clone()));
    tokio::select! {
        () = shutdown => {}
        // None of them ends by itself.
        ended = tasks.join_next() => tracing::error!(?ended, "a task has ended"),
    }
    tasks.shutdown().await;
}

/// Turns what is observed into what is desired.
async fn consider(
    shared: Arc<Shared>,
    mut observed: Receiver<Observed>,
    lists: Vec<String>,
    life: Arc<Life>,
) {
    let policy = &shared.setup.tools.policy;
    let mut guard = Guard::new(policy.max_removal);
    let mut reported = Reported::default();
    let mut outage = Outage::default();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            changed = observed.changed() => if changed.is_err() { return },
            _ = tick.tick() => {
                outage.look(&life);
                continue;
            }
        }
        let now = observed.borrow_and_update().clone();
        if !lists.iter().all(|list| now.synced.contains(list)) {
            continue;
        }
        let (facts, held) = guard.accept(&now.facts, &|key| now.deleted.contains(key));
        let desired = plan(&facts, policy);
        reported.report(&desired.problems, held);
        shared.metrics.planned(&desired, held);
        shared.desired.send_replace(Some(Arc::new(desired)));
    }
}

/// Says what is wrong when it begins, and when it ends.
#[derive(Default)]
struct Reported {
    problems: BTreeSet<Problem>,
    held: Held,
}

impl Reported {
    fn report(&mut self, problems: &[Problem], held: Held) {
        let now: BTreeSet<Problem> = problems.iter().cloned().collect();
        for problem in now.difference(&self.problems) {
            tracing::warn!(about = problem.about, kind = problem.kind, "{}", problem.text);
        }
        for problem in self.problems.difference(&now) {
            tracing::info!(about = problem.about, kind = problem.kind, "no longer: {}", problem.text);
        }
        if held != self.held && held.any() {
            let Held { nodes, services } = held;
            tracing::warn!(
                nodes,
                services,
                "more than --max-removal allows has vanished at once: kept as it was"
            );
        } else if held != self.held {
            tracing::info!("nothing is kept against the API server's word any more");
        }
        self.problems = now;
        self.held = held;
    }
}

/// Tells of API outages.
#[derive(Default)]
struct Outage {
    told: Option<Instant>,
    closed_since: Option<Instant>,
}

impl Outage {
    fn look(&mut self, life: &Life) {
        if life.all_open() {
            if self.told.take().is_some() {
                tracing::info!("the API server is back");
            }
            self.closed_since = None;
            return;
        }
        let since = *self.closed_since.get_or_insert_with(Instant::now);
        let due = self.told.is_none_or(|told| told.elapsed() >= Duration::from_mins(1));
        if since.elapsed() >= OUTAGE && due {
            self.told = Some(Instant::now());
            let seconds = since.elapsed().as_secs();
            tracing::warn!(seconds, "the API server can't be watched: HAProxy keeps its last configuration");
        }
    }
}

/// Brings the file and HAProxy's structure to what is desired.
async fn apply(shared: Arc<Shared>) {
    let mut applier = Applier::new(shared.setup.tools.clone());
    let mut desired = shared.desired.subscribe();
    let mut retry: Option<Instant> = None;
    let mut wait = FIRST_RETRY;
    let mut busy = Reported::default();
    let mut last_error = String::new();
    loop {
        shared.health.beat(Loop::Applier);
        let idle = Instant::now() + AUDIT * 6;
        let mut force = false;
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = shared.reload.notified() => force = true,
            () = sleep_until(retry.unwrap_or(idle)) => {
                applier.tidy().await;
                if retry.is_none() && applier.problems().is_empty() {
                    continue;
                }
            }
        }
        settle_down(&mut desired).await;
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        shared.metrics.pending(true);
        save_states(&shared).await;
        match applier.settle(&now, force).await {
            Ok(applied) => {
                retry = (applied == Applied::NotRunning).then(|| Instant::now() + AUDIT);
                wait = FIRST_RETRY;
                last_error.clear();
                shared.succeeded(applied, applier.layout());
            }
            Err(error) => {
                shared.metrics.failed(error.kind());
                let text = error.to_string();
                if text == last_error {
                    tracing::debug!(error = text, retry_ms = wait.as_millis(), "still not applied");
                } else {
                    tracing::error!(
                        error = text,
                        retry_ms = wait.as_millis(),
                        "not applied; HAProxy goes on as it is"
                    );
                }
                last_error = text;
                retry = Some(Instant::now() + wait.mul_f64(0.8 + 0.4 * fastrand::f64()));
                wait = (wait * 2).min(LAST_RETRY);
            }
        }
        busy.report(applier.problems(), Held::default());
    }
}

impl Shared {
    fn succeeded(&self, applied: Applied, layout: Option<&Layout>) {
        self.metrics.applied(applied);
        self.metrics.pending(applied == Applied::NotRunning);
        self.health.applied();
        if applied != Applied::Unchanged {
            let frontends = layout.map(|layout| layout.desired.frontends.len());
            tracing::info!(how = ?applied, frontends, "configuration applied");
        }
        self.layout.send_replace(layout.cloned().map(Arc::new));
    }
}

/// Waits for the end of a burst of changes.
async fn settle_down(desired: &mut Receiver<Option<Arc<Desired>>>) {
    let last = Instant::now() + BURST;
    loop {
        desired.borrow_and_update();
        let quiet = (Instant::now() + QUIET).min(last);
        tokio::select! {
            changed = desired.changed() => if changed.is_err() { return },
            () = sleep_until(quiet) => return,
        }
        if Instant::now() >= last {
            return;
        }
    }
}

/// The next process must find the states; a HAProxy that does not answer must not keep us from writing its file.
async fn save_states(shared: &Shared) {
    let (done, saved) = oneshot::channel();
    if shared.save.try_send(done).is_ok() {
        let _ = tokio::time::timeout(AUDIT, saved).await;
    }
}

/// Moves servers.
async fn shift(shared: Arc<Shared>, mut saves: mpsc::Receiver<oneshot::Sender<()>>) {
    let mut mover = new_mover(&shared.setup.tools, shared.metrics.clone());
    let mut desired = shared.desired.subscribe();
    let mut layouts = shared.layout.subscribe();
    let mut audit = tokio::time::interval(AUDIT);
    audit.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    let mut reloaded_for = None;
    loop {
        shared.health.beat(Loop::Mover);
        let mut look = false;
        let mut asked = None;
        tokio::select! {
            biased;
            changed = desired.changed() => if changed.is_err() { return },
            changed = layouts.changed() => if changed.is_err() { return },
            asker = saves.recv() => asked = asker,
            _ = audit.tick() => look = true,
        }
        let Some(now) = desired.borrow_and_update().clone() else { continue };
        let layout = layouts.borrow_and_update().clone();
        let Some(layout) = layout else {
            // Nothing is known to run yet; if it is an earlier run of ours that does, it has the same backends.
            let guess = Layout { desired: now.clone(), ours: true, ..Layout::default() };
            mover.save(&now, &guess, asked.is_some()).await;
            drop(asked);
            continue;
        };
        let result = async {
            if look && !failing && !mover.audit(&layout).await? {
                return Ok(Default::default());
            }
            mover.round(&now, &layout).await
        };
        match result.await {
            Ok(round) => {
                if round.missing > 0 && reloaded_for != Some(layout.generation) {
                    tracing::warn!(
                        servers = round.missing,
                        "HAProxy runs another configuration: loading it again"
                    );
                    reloaded_for = Some(layout.generation);
                    shared.reload.notify_one();
                }
                if std::mem::take(&mut failing) {
                    tracing::info!("HAProxy can be told the states of servers again");
                }
                if round.moved > 0 || asked.is_some() {
                    mover.save(&now, &layout, true).await;
                }
            }
            Err(error) => {
                shared.metrics.failed("runtime");
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "HAProxy can't be told the states of servers; trying again");
                }
                mover.save(&now, &layout, false).await;
                audit.reset_after(FIRST_RETRY);
            }
        }
        drop(asked);
    }
}

fn new_mover(tools: &Tools, metrics: Arc<Metrics>) -> Mover {
    let state_file = tools.state_file.clone().map(ConfigFile::new);
    Mover::new(tools.runtime.clone(), state_file, tools.policy.check.agent_port.is_some(), metrics)
}

/// The plan for what there is now.
async fn plan_once(setup: &Setup) -> Result<Desired, RunError> {
    let lists = setup.scope.lists();
    let (sender, mut observed) = channel(Observed::default());
    let watching = watch::run(setup.scope.clone(), sender, Life::new(&lists), Arc::new(Metrics::default()));
    let complete = observed.wait_for(|now| lists.iter().all(|list| now.synced.contains(list)));
    let facts = tokio::select! {
        complete = tokio::time::timeout(ONCE, complete) => match complete {
            Ok(Ok(observed)) => observed.facts.clone(),
            _ => return Err(RunError::NoFacts),
        },
        () = watching => return Err(RunError::NoFacts),
    };
    let desired = plan(&facts, &setup.tools.policy);
    Reported::default().report(&desired.problems, Held::default());
    Ok(desired)
}

/// Applies what there is now, and ends.
pub async fn once(setup: &Setup) -> Result<(), RunError> {
    let desired = plan_once(setup).await?;
    let tools = &setup.tools;
    let mut mover = new_mover(tools, Arc::new(Metrics::default()));
    let guess = Layout { desired: Arc::new(desired.clone()), ours: true, ..Layout::default() };
    mover.save(&desired, &guess, true).await;
    let mut applier = Applier::new(tools.clone());
    let applied = applier.settle(&desired, false).await?;
    tracing::info!(how = ?applied, frontends = desired.frontends.len(), "configuration applied");
    if let Some(layout) = applier.layout() {
        mover.round(&desired, layout).await?;
        mover.save(&desired, layout, true).await;
    }
    Ok(())
}

/// Renders what there is now.
pub async fn print(setup: &Setup) -> Result<String, RunError> {
    let desired = plan_once(setup).await?;
    let tools = &setup.tools;
    let template = Applier::read_template(tools.template.as_deref())?;
    let state_file = tools.state_file.as_deref().map(Path::to_string_lossy);
    Ok(render(&template, &desired, &tools.policy.check, state_file.as_deref()).map_err(ApplyError::from)?)
}
