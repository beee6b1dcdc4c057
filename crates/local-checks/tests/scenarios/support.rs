//! Scripted checks, and a board with their results.

use http::Uri;
use nodegate_local_checks::{Check, CheckSettings, HostRoot, KnownNode, LocalChecks, Run, Runner, Timing};
use nodegate_readiness::{Board, Catalog, CheckId, LocalResult, Outcome, Policy, Reason, Timeline};
use nodegate_testbed::http::TIMEOUT;
use nodegate_testbed::stub::StubServer;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt;

/// Returns the health URL of a server.
pub(crate) fn healthz(server: &StubServer) -> Uri {
    server.url("/healthz").parse().unwrap()
}

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

/// A runner with its board.
pub(crate) struct World {
    pub(crate) board: Arc<Board>,
    pub(crate) runner: Arc<Runner>,
}

impl World {
    pub(crate) fn start(checks: &LocalChecks, handle: &Handle, eager: &[&str]) -> Self {
        let catalog = Catalog::new(checks.for_catalog());
        let eager: Vec<CheckId> = eager.iter().map(|name| catalog.find(name).unwrap()).collect();
        let all: Vec<CheckId> = catalog.local_ids().collect();
        let catalog = catalog.with_start_modes(&eager, &all);
        let board = Board::new(Some("n".to_owned()), Policy::default(), catalog, &[], Box::new(|_| {}));
        let board = Arc::new(board);
        let timeline = Timeline::new(tokio::time::Instant::now().into_std());
        let runner = Arc::new(Runner::start(checks, &board, timeline, handle));
        Self { board, runner }
    }

    pub(crate) fn id(&self, name: &str) -> CheckId {
        self.board.catalog().find(name).unwrap()
    }

    pub(crate) fn result(&self, name: &str) -> Option<LocalResult> {
        self.board.published().state.local_result(self.id(name)).cloned()
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

/// Returns the outcome of the check of this name with `url`, through all layers from its settings to the
/// board.
pub(crate) async fn check(name: &str, url: &Uri, timeout: &str) -> Outcome {
    let checks = checks(&format!("{name}:url={url},timeout={timeout}"), &HostRoot::default());
    let world = World::start(&checks, &Handle::current(), &[]);
    world.activate(name).await;
    world.outcome(name).unwrap()
}

/// Returns the checks of the registry with a setting.
pub(crate) fn checks(setting: &str, host: &HostRoot) -> LocalChecks {
    LocalChecks::new(&CheckSettings::parse(&[setting], &[]).unwrap(), &[], host)
}

/// The log of this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// Starts to collect the log; it ends when the returned value is dropped.
pub(crate) fn log_of() -> (Log, DefaultGuard) {
    let log = Log::default();
    let writer = log.clone();
    let format = tracing_subscriber::fmt().without_time().with_target(false).with_ansi(false);
    (log, format.with_writer(move || writer.clone()).set_default())
}

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn lines_with(&self, needle: &str) -> usize {
        self.text().lines().filter(|line| line.contains(needle)).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn every(interval_ms: u64, timeout_ms: u64) -> Timing {
    Timing::new(Duration::from_millis(interval_ms), Duration::from_millis(timeout_ms))
}

pub(crate) fn fail(reason: &str) -> Outcome {
    Outcome::Fail(Reason::parse(reason))
}
