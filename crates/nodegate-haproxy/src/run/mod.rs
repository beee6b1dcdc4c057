//! The program: its wiring and its tasks.

mod applying;
mod args;
mod explaining;
mod publisher;
mod shared;

pub use args::Args;

use crate::run::publisher::Publisher;
use crate::run::shared::{Shared, registry};
use crate::watch;
use nodegate_http::{AdminPages, PortSharing, bind};
use nodegate_program::{LogSettings, Mistakes, Program, Signals, Tasks, block_on, failed, os_words};
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::watch::channel;

impl Program for Args {
    const USUAL: &'static [&'static str] =
        &["config", "template", "master_socket", "bind", "forward", "publish_status", "explain"];

    fn log(&self) -> Option<LogSettings> {
        Some(self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode> {
        let setup = self.checked(mistakes);
        Box::new(|| {
            if setup.explain {
                return block_on(explaining::print(setup));
            }
            match lock(&setup.tools.config.path) {
                Ok(_lock) => block_on(run(setup)),
                Err(error) => failed(error),
            }
        })
    }
}

/// Makes sure that no other process writes the same file.
fn lock(config: &Path) -> Result<File, String> {
    let name = config.file_name().unwrap_or_default().to_string_lossy();
    let path = config.with_file_name(format!(".{name}.lock"));
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| format!("can't open {}: {}", path.display(), os_words(&error)))?;
    let taken = |_| {
        format!("--config (NODEGATE_HAPROXY_CONFIG) {}: another nodegate-haproxy writes it", config.display())
    };
    file.try_lock().map_err(taken)?;
    Ok(file)
}

/// Runs until a signal comes.
async fn run(setup: Args) -> Result<(), String> {
    let listen = setup.listen;
    let signals = Signals::listen().map_err(|error| format!("can't wait for signals: {error}"))?;
    let listener = bind(listen, PortSharing::Exclusive)
        .map_err(|error| format!("--listen (NODEGATE_HAPROXY_LISTEN): {error}"))?;
    let config = setup.tools.config.path.display();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %config, %listen, "started");
    let (nothing, life) = setup.scope.begin();
    let shared = Arc::new(Shared::new(setup));
    let pages = AdminPages { health: shared.clone(), registry: registry(&shared, life.clone()) };
    let observer = channel(nothing).0;
    let mut tasks = Tasks::default();
    tasks.spawn(async move {
        if let Err(error) = pages.serve(listener, std::future::pending()).await {
            tracing::error!(%error, "can't serve the metrics");
        }
    });
    let observed = observer.subscribe();
    if let Some(publisher) = Publisher::of(&shared) {
        tasks.spawn(publisher.run(observer.subscribe()));
    }
    tasks.spawn(watch::run(shared.setup.scope.clone(), observer, life));
    tasks.spawn(applying::run(shared, observed));
    tokio::select! {
        () = signals.shutdown() => Ok(()),
        error = tasks.ended() => Err(error.to_string()),
    }
}
