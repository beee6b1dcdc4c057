//! `--once`, `--print`, `--diff` and `--explain`: they read the current state of the cluster, and exit.

use crate::apply::applier::{Applier, ApplyError, Reload};
use crate::apply::layout::Layout;
use crate::plan::desired::{Desired, Problem, Unpublished};
use crate::plan::explain;
use crate::plan::facts::Facts;
use crate::plan::guard::{Guard, Held};
use crate::plan::holds::Holds;
use crate::plan::planner::plan;
use crate::plan::render::render;
use crate::run::memory::MemoryFile;
use crate::run::metrics::HaproxyMetrics;
use crate::run::report::{Reported, tell_applied};
use crate::run::shared::Setup;
use crate::run::states::{new_mover, save};
use crate::run::tasks::seconds;
use crate::watch;
use crate::watch::life::Life;
use crate::watch::observed::Observed;
use crate::watch::statuses::StatusSink;
use similar::TextDiff;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::channel;

/// The timeout for reading from the API server.
const ONCE: Duration = Duration::from_mins(1);
/// The longest time for finding the shortest difference.
const DIFF: Duration = Duration::from_secs(5);

/// The error of such a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The API server did not answer.
    #[error("no complete list of Nodes and Services within {} s; the lines above say why", ONCE.as_secs())]
    NoFacts,
    /// The configuration was not applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The server states could not be set.
    #[error(transparent)]
    Move(#[from] crate::apply::mover::MoveError),
}

/// Returns the plan for the current state of the cluster, with the accepted facts and the ports. Facts that
/// have vanished may be kept.
async fn plan_once(setup: &Setup, memory: &mut MemoryFile) -> Result<(Desired, Facts, Holds), RunError> {
    let lists = setup.scope.lists();
    let (sender, mut observed) = channel(Observed::default());
    let watching =
        watch::run(setup.scope.clone(), sender, StatusSink::default(), Life::new(&lists), Arc::default());
    let complete = observed.wait_for(|now| lists.iter().all(|list| now.synced.contains(list)));
    let facts = tokio::select! {
        complete = tokio::time::timeout(ONCE, complete) => match complete {
            Ok(Ok(observed)) => observed.facts.clone(),
            _ => return Err(RunError::NoFacts),
        },
        () = watching => return Err(RunError::NoFacts),
    };
    let policy = &setup.tools.policy;
    let (known, mut holds) = memory.load();
    let (mut facts, held) = Guard::new(policy, known).accept(&facts, &|_| false);
    report(&[], &held);
    holds.expire(seconds());
    facts.held_ports = holds.reserved(&facts);
    let desired = plan(&facts, policy);
    holds.learn(&desired, &facts, seconds());
    Ok((desired, facts, holds))
}

fn report(problems: &[Problem], held: &Held) {
    Reported::default().report(problems, held);
}

/// Applies the current state of the cluster once.
pub async fn once(setup: &Setup) -> Result<(), RunError> {
    if setup.pause.is_on() {
        tracing::warn!("paused (--pause-file); changing nothing");
        return Ok(());
    }
    let mut memory = MemoryFile::new(setup);
    let (desired, facts, holds) = plan_once(setup, &mut memory).await?;
    report(&desired.problems, &Held::default());
    let tools = &setup.tools;
    let (mut mover, metrics) = (new_mover(tools), HaproxyMetrics::default());
    let guess = Layout::guess(Arc::new(desired.clone()), tools.have_our_sections());
    save(&mut mover, &metrics, &desired, &guess, true).await;
    let mut applier = Applier::new(tools.clone());
    let applied = applier.apply(&desired, Reload::IF_NEEDED).await?;
    report(applier.problems(), &Held::default());
    memory.save(&facts, &holds, &metrics).await;
    tell_applied(applied, Some(desired.frontends.len()));
    if let Some(layout) = applier.layout() {
        mover.round(&desired, layout).await?;
        save(&mut mover, &metrics, &desired, layout, true).await;
    }
    Ok(())
}

/// The current content of the file, and the content that would be written.
struct Wanted {
    old: String,
    new: String,
}

async fn wanted(setup: &Setup) -> Result<Wanted, RunError> {
    let (mut desired, ..) = plan_once(setup, &mut MemoryFile::new(setup)).await?;
    let tools = &setup.tools;
    let template = tools.read_template().map_err(ApplyError::from)?;
    let old = tools.file.read().map_err(ApplyError::from)?.unwrap_or_default();
    let old = String::from_utf8_lossy(&old).into_owned();
    tools.leave_out(&template, &mut desired, &old).await;
    report(&desired.problems, &Held::default());
    let (check, state_file) = (tools.check().await, tools.state_file_name());
    let new = render(&template, &desired, &check, state_file.as_deref()).map_err(ApplyError::from)?;
    Ok(Wanted { old, new })
}

/// Returns the configuration that would be written now.
pub async fn print(setup: &Setup) -> Result<String, RunError> {
    Ok(wanted(setup).await?.new)
}

/// Returns the pending changes of the file. Empty if there are none.
pub async fn diff(setup: &Setup) -> Result<String, RunError> {
    let Wanted { old, new } = wanted(setup).await?;
    let name = setup.tools.file.path().display().to_string();
    // A search that takes longer ends with fewer and larger changes.
    let diff = TextDiff::configure().timeout(DIFF).diff_lines(&old, &new);
    Ok(diff.unified_diff().header(&name, &format!("{name} (new)")).to_string())
}

/// Returns the tables of published Services, of unpublished ones with the reasons, and of nodes.
pub async fn explain(setup: &Setup) -> Result<String, RunError> {
    let (mut desired, facts, _) = plan_once(setup, &mut MemoryFile::new(setup)).await?;
    let tools = &setup.tools;
    let template = tools.read_template().map_err(ApplyError::from)?;
    let old = tools.file.read().map_err(ApplyError::from)?.unwrap_or_default();
    for problem in tools.leave_out(&template, &mut desired, &String::from_utf8_lossy(&old)).await {
        let Problem { about: service, text: why, .. } = problem;
        desired.unpublished.push(Unpublished { service, port: None, why, intended: false });
    }
    desired.unpublished.sort();
    Ok(explain::explain(&desired, &facts))
}
