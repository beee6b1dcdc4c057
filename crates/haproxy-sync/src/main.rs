//! nodegate-haproxy: HAProxy's configuration from Nodes and Services.
//!
//! Arguments, wiring and signals; everything else is in the library.

mod args;
mod settings;

use clap::Parser;
use clap::error::ErrorKind;
use nodegate_haproxy_sync::{once, sync};
use settings::Settings;
use std::io::Write;
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A setting is wrong.
const BAD_SETTING: u8 = 2;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // Nobody is left to tell if stdout is closed.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("nodegate-haproxy: {}", one_line(&error));
            return ExitCode::from(BAD_SETTING);
        }
    };
    let mut settings = match Settings::parse(&args) {
        Ok(settings) => settings,
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("nodegate-haproxy: {mistake}");
            }
            return ExitCode::from(BAD_SETTING);
        }
    };
    nodegate_logging::init(settings.log_format, std::mem::take(&mut settings.log_filter));
    match run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Two threads: a large configuration is rendered and written on one of them while the other moves servers.
fn run(settings: Settings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    let result = runtime.block_on(work(settings));
    runtime.shutdown_background();
    result
}

async fn work(settings: Settings) -> Result<(), String> {
    if settings.print {
        let text = once::print(&settings.setup).await.map_err(|error| error.to_string())?;
        return std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("can't write: {error}"));
    }
    if settings.once {
        return once::once(&settings.setup).await.map_err(|error| error.to_string());
    }
    let listener = match settings.listen {
        Some(address) => {
            let listener = TcpListener::bind(address).await;
            Some(listener.map_err(|error| format!("can't listen on {address}: {error}"))?)
        }
        None => None,
    };
    let signals = |kind| signal(kind).map_err(|error| format!("can't wait for signals: {error}"));
    let (mut terminate, mut interrupt) =
        (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    sync::run(settings.setup, listener, shutdown).await;
    Ok(())
}

/// What clap says in several lines, without its advice to read the manual.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    telling.collect::<Vec<_>>().join("; ").replacen("error: ", "", 1)
}
