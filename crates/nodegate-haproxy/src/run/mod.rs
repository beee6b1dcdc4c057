//! The program: arguments, wiring and signals.

mod args;
mod exposure;
pub mod health;
pub mod http;
mod memory;
pub mod metrics;
mod node_log;
pub mod once;
pub mod pause;
pub mod publisher;
mod report;
mod settings;
pub mod shared;
mod states;
mod structure;
pub mod tasks;

use crate::apply::config_file::ConfigFile;
use crate::apply::writer::{Taken, Writer};
use crate::haproxy::version::Version;
use args::Args;
use nodegate_program::{BAD_SETTING, failed, read};
use once::RunError;
use shared::Setup;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The work to do with a setup.
enum Work {
    Show(Show),
    Once,
    Run { listen: Option<SocketAddr> },
}

/// The outputs that change nothing.
enum Show {
    Configuration,
    Difference,
    Explanation,
}

/// Returns the parser of the command line, for man pages and documents.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs the program. Returns its exit code.
pub fn main() -> ExitCode {
    start().err().unwrap_or(ExitCode::SUCCESS)
}

/// Does the requested work. The error is the exit code.
fn start() -> Result<(), ExitCode> {
    let (args, mut wrong) = read::<Args>(BAD_SETTING)?;
    let work = match &args {
        Args { print: true, .. } => Work::Show(Show::Configuration),
        Args { diff: true, .. } => Work::Show(Show::Difference),
        Args { explain: true, .. } => Work::Show(Show::Explanation),
        Args { once: true, .. } => Work::Once,
        Args { listen, .. } => Work::Run { listen: *listen },
    };
    let log = args.log.clone();
    let setup = settings::setup(args, &mut wrong);
    wrong.ensure_none()?;
    log.start();
    run(work, setup).map_err(failed)
}

/// The error of a program that can't start, or that ends badly.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error("HAProxy {0} is too old ({1} -v): it takes {oldest} or later", oldest = Version::OLDEST)]
    TooOld(Version, String),
    #[error(transparent)]
    Taken(#[from] Taken),
    #[error("can't start: {0}")]
    Start(io::Error),
    #[error("can't listen on {0}: {1}")]
    Listen(SocketAddr, io::Error),
    #[error("can't wait for signals: {0}")]
    Signals(io::Error),
    #[error("can't write: {0}")]
    Write(io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Runs the work on two threads. One can render and write a large configuration while the other sets server
/// states.
fn run(work: Work, setup: Setup) -> Result<(), ProgramError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(ProgramError::Start)?;
    let result = runtime.block_on(done(work, setup));
    runtime.shutdown_background();
    result
}

async fn done(work: Work, setup: Setup) -> Result<(), ProgramError> {
    let haproxy = &setup.tools.haproxy;
    // A program that can't be run is reported when it has to read a configuration; it may be installed by
    // then.
    if let Some(version) = Version::of(haproxy).await
        && version < Version::OLDEST
    {
        return Err(ProgramError::TooOld(version, haproxy.display().to_string()));
    }
    let _writer = match work {
        Work::Show(_) => None,
        Work::Once | Work::Run { .. } => {
            let known = setup.tools.notes.path(memory::FILE);
            let others: Vec<ConfigFile> =
                setup.tools.state_file.iter().cloned().chain([known]).map(ConfigFile::new).collect();
            Some(Writer::of(&setup.tools.file, &setup.tools.notes, &others)?)
        }
    };
    let listener = match work {
        Work::Show(what) => {
            let text = match what {
                Show::Configuration => once::print(&setup).await?,
                Show::Difference => once::diff(&setup).await?,
                Show::Explanation => once::explain(&setup).await?,
            };
            return std::io::stdout().write_all(text.as_bytes()).map_err(ProgramError::Write);
        }
        Work::Once => return Ok(once::once(&setup).await?),
        Work::Run { listen: Some(address) } => {
            let listener = TcpListener::bind(address).await;
            Some(listener.map_err(|error| ProgramError::Listen(address, error))?)
        }
        Work::Run { listen: None } => None,
    };
    let signals = |kind| signal(kind).map_err(ProgramError::Signals);
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    tasks::run(setup, listener, shutdown).await;
    Ok(())
}
