//! Scripted checks, and a board with their results.

use nodegate_local_checks::{Check, HostRoot, KnownNode, LocalChecks, OwnCheck, Run, Runner, Timing};
use nodegate_readiness::{Board, Catalog, CheckId, LocalResult, Outcome, Policy, Reason, Timeline};
use nodegate_testbed::http::TIMEOUT;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use tokio::runtime::Handle;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt;

/// A check made of a closure that returns the outcome of the n-th run.
pub(crate) struct Scripted<F> {
    pub(crate) runs: Arc<AtomicUsize>,
    pub(crate) script: F,
}

impl<F: Fn(usize) -> Outcome + Send + Sync + 'static> Scripted<F> {
    pub(crate) fn check(script: F) -> (Arc<dyn Check>, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        (Arc::new(Self { runs: Arc::clone(&runs), script }), runs)
    }
}

impl<F: Fn(usize) -> Outcome + Send + Sync> Check for Scripted<F> {
    fn run<'a>(&'a self, _: &'a KnownNode) -> Run<'a> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { (self.script)(run) })
    }
}

pub(crate) struct Scenario {
    pub(crate) board: Arc<Board>,
    pub(crate) runner: Arc<Runner>,
}

impl Scenario {
    pub(crate) fn start(checks: &LocalChecks, handle: &Handle, eager: &[&str]) -> Self {
        let catalog = Catalog::new(checks.for_catalog());
        let eager: Vec<CheckId> = eager.iter().map(|name| catalog.find(name).unwrap()).collect();
        let all: Vec<CheckId> = catalog.local_ids().collect();
        let catalog = catalog.with_start_modes(&eager, &all);
        let board = Board::new(Some("n".to_owned()), Policy::default(), catalog, &[]);
        let board = Arc::new(board);
        let timeline = Timeline::new(tokio::time::Instant::now().into_std());
        let runner = Arc::new(Runner::start(checks, &board, timeline, handle));
        Self { board, runner }
    }

    pub(crate) fn id(&self, name: &str) -> CheckId {
        self.board.catalog().find(name).unwrap()
    }

    pub(crate) fn result(&self, name: &str) -> Option<LocalResult> {
        self.board.state().local_result(self.id(name)).cloned()
    }

    pub(crate) fn outcome(&self, name: &str) -> Option<Outcome> {
        self.result(name).map(|result| result.outcome)
    }

    pub(crate) async fn activate(&self, name: &str) {
        self.runner.activate(&[self.id(name)]).await;
    }

    /// Polls in real time, which a paused clock does not speed up.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Returns the checks of the registry and those of an operator, with a setting.
pub(crate) fn checks(setting: &str, own: &[OwnCheck], host: &HostRoot) -> LocalChecks {
    let mut mistakes = Vec::new();
    let checks = LocalChecks::new(&[setting], own, host, &mut mistakes);
    assert_eq!(mistakes, [""; 0]);
    checks
}

/// Returns the outcome of a check, through all layers from its setting to the board. `http:mine` and `tcp:mine` are the
/// operator's for this target; it is the URL of another check.
pub(crate) async fn outcome(name: &str, target: &str, settings: &str) -> Outcome {
    let own = match name {
        "http:mine" => vec![OwnCheck::http(&format!("mine={target}")).unwrap()],
        "tcp:mine" => vec![OwnCheck::tcp(&format!("mine={target}")).unwrap()],
        _ => Vec::new(),
    };
    let url = if own.is_empty() { format!("url={target},") } else { String::new() };
    first_outcome(name, &checks(&format!("{name}:{url}{settings}"), &own, &HostRoot::default())).await
}

pub(crate) async fn first_outcome(name: &str, checks: &LocalChecks) -> Outcome {
    let scenario = Scenario::start(checks, &Handle::current(), &[]);
    scenario.activate(name).await;
    scenario.outcome(name).unwrap()
}

/// Starts to collect the log of this thread in a file; it ends when the guard is dropped.
pub(crate) fn log_of() -> (NamedTempFile, DefaultGuard) {
    let log = NamedTempFile::new().unwrap();
    let file = log.as_file().try_clone().unwrap();
    let format = tracing_subscriber::fmt().without_time().with_target(false).with_ansi(false);
    (log, format.with_writer(move || file.try_clone().unwrap()).set_default())
}

pub(crate) fn text(log: &NamedTempFile) -> String {
    std::fs::read_to_string(log.path()).unwrap()
}

pub(crate) fn every(interval_ms: u64, timeout_ms: u64) -> Timing {
    Timing::new(Duration::from_millis(interval_ms), Duration::from_millis(timeout_ms))
}

pub(crate) fn fail(reason: &str) -> Outcome {
    Outcome::Fail(Reason::parse(reason))
}
