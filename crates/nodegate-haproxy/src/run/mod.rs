//! The program: arguments, wiring and tasks, the data that the tasks share, and the answers of `/livez` and `/readyz`.

use crate::plan::{Desired, InEffect};
use crate::run::args::Args;
use crate::run::metrics::HaproxyMetrics;
use crate::watch::life::Life;
use crate::watch::{self, Observed};
use nodegate_http::{AdminPages, PortSharing, bind};
use nodegate_program::{LogSettings, Mistakes, Program, Removed, Signals, block_on, failed};
use publisher::Publisher;
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::{Sender, channel};
use tokio::time::Instant;

mod applying;
mod args;
mod explaining;
mod metrics;
mod planning;
mod publisher;

/// The longest time for the release of the Lease at the end.
const RELEASE: Duration = Duration::from_secs(3);

/// Returns the parser of the command line, for man pages and documents.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    nodegate_program::run::<Args>()
}

impl Program for Args {
    type Setup = Self;

    const REMOVED: &'static [Removed] = args::REMOVED;

    fn log(&self) -> Option<LogSettings> {
        Some(self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Self {
        self.checked(mistakes)
    }

    fn run(setup: Self) -> ExitCode {
        if setup.explain {
            return block_on(explaining::print(setup));
        }
        match lock(&setup.tools.config.path) {
            Ok(_lock) => block_on(run(setup)),
            Err(error) => failed(error),
        }
    }
}

/// Makes sure that no other process writes the same file.
fn lock(config: &Path) -> Result<File, String> {
    let name = config.file_name().unwrap_or_default().to_string_lossy();
    let path = config.with_file_name(format!(".{name}.lock"));
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| format!("can't open {}: {error}", path.display()))?;
    let taken = |error| format!("another nodegate-haproxy writes {}: {error}", config.display());
    file.try_lock().map_err(taken)?;
    Ok(file)
}

/// Runs until a signal comes.
async fn run(setup: Args) -> Result<(), String> {
    let listen = setup.listen;
    let signals = Signals::listen().map_err(|error| format!("can't wait for signals: {error}"))?;
    let listener = listen.map(|at| bind(Some(at.ip()), at.port(), PortSharing::Exclusive)).transpose();
    let listener = listener.map_err(|error| error.to_string())?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = %setup.tools.config.path.display(),
        template = ?setup.tools.template,
        listen = listen.map(tracing::field::display),
        "started"
    );
    let lists = setup.scope.lists();
    let life = Life::new(&lists);
    let shared = Arc::new(Shared::new(setup));
    let pages = AdminPages { health: shared.clone(), registry: shared.metrics.registry(life.clone()) };
    let publisher = Publisher::of(&shared, &life);
    let observer = channel(Observed::of(&lists)).0;
    let mut tasks = tokio::task::JoinSet::new();
    if let Some(listener) = listener {
        tasks.spawn(async move {
            if let Err(error) = pages.serve(listener, std::future::pending()).await {
                tracing::error!(%error, "can't serve the metrics");
            }
        });
    }
    tasks.spawn(applying::run(shared.clone()));
    tasks.spawn(planning::run(shared.clone(), observer.clone()));
    let lease = publisher.as_ref().map(|publisher| publisher.lease.clone());
    if let Some(publisher) = publisher {
        tasks.spawn(publisher.run(observer.subscribe()));
    }
    tasks.spawn(watch::run(shared.setup.scope.clone(), observer, life));
    tokio::select! {
        () = signals.shutdown() => {}
        // No task ends by itself.
        ended = tasks.join_next() => tracing::error!(?ended, "a task has ended"),
    }
    tasks.shutdown().await;
    if let Some(lease) = lease {
        // Nothing writes any more, so another process may.
        let _ = tokio::time::timeout(RELEASE, lease.release()).await;
    }
    Ok(())
}

/// The longest time for any step: a check of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

pub(crate) struct Shared {
    pub(crate) setup: Args,
    pub(crate) metrics: HaproxyMetrics,
    pub(crate) desired: Sender<Option<Arc<Desired>>>,
    /// What the running HAProxy proves that it runs, or why it does not, whatever the API server does.
    pub(crate) applied: Sender<Result<Arc<InEffect>, String>>,
    /// The last sign of life of the loop that applies.
    pub(crate) beat: Sender<Instant>,
}

impl Shared {
    pub(crate) fn new(setup: Args) -> Self {
        let applied = channel(Err("no configuration has been applied yet".to_owned())).0;
        let (desired, beat) = (channel(None).0, channel(Instant::now()).0);
        Self { setup, metrics: HaproxyMetrics::default(), desired, applied, beat }
    }
}

impl nodegate_http::Health for Shared {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let is_stuck = self.beat.borrow().elapsed() >= STUCK;
        if is_stuck { Err("the loop that applies is stuck".into()) } else { Ok(()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        self.applied.borrow().as_ref().map(drop).map_err(|reason| reason.clone().into())
    }
}
